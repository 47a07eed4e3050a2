#!/usr/bin/env python3
"""What cutting wide layers over the workers of this host gains: TENSOR and ALLREDUCE beside one process.

usage: tensor_jobs.py [--braid BINARY] [--device CPU|CUDA] [--workers N] [--data N] [--layers N] [--width N] [--batch N]
                      [--steps N] [--repeat N] [--precision FP32|BF16] [--set FIELD=VALUE]...

Trains the zoo's mlp with `--layers` hidden layers of `--width`, whose inputs are as wide, on random images: one process,
and `--workers` workers under ALLREDUCE and TENSOR (`--data` groups), which share the same global batch, in turn, N times
over; on CUDA over NCCL, a GPU each, else over TCP, a thread each. Prints a JSON line a way: median, smallest and largest
examples/s of the step loop, the same of its later half (`steady`), the medians' ratios to one process, the largest relative
difference of a loss from that one's, and for TENSOR what its plan says.
"""
import argparse
import json
import math
import os
import platform
import re
import statistics
import struct
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLASSES = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--device", choices=["CPU", "CUDA"], default="CPU")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=int, default=1, help="groups of strategy.mesh")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096, help="a square: images are so many pixels")
    parser.add_argument("--batch", type=int, default=4096, help="rows of a step over all workers")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--precision", choices=["FP32", "BF16"], default="FP32")
    parser.add_argument("--set", action="append", default=[], help="a field of the job under TENSOR, as strategy.wire=BF16")
    args = parser.parse_args()
    if math.isqrt(args.width) ** 2 != args.width:
        parser.error("--width is no square")
    return args


def make_images(args, folder):
    side = math.isqrt(args.width)
    with open(os.path.join(folder, "images"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, args.batch, side, side))
        for _ in range(args.batch):
            file.write(os.urandom(args.width))
    with open(os.path.join(folder, "labels"), "wb") as file:
        file.write(struct.pack(">II", 0x801, args.batch))
        file.write(bytes(byte % CLASSES for byte in os.urandom(args.batch)))


def write_job(args, folder):
    path = os.path.join(folder, "job.pbtxt")
    hidden = " ".join([f"hidden: {args.width}"] * args.layers)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'''name: "wide" seed: 7 steps: {args.steps}
model {{ name: "mlp" {hidden} classes: {CLASSES} }}
input {{ format: IDX train_files: "images" train_files: "labels" global_batch_size: {args.batch} shuffle: false }}
optimizer {{ kind: MOMENTUM learning_rate: 0.001 }}
evaluation {{ enabled: false }}
runtime {{ device: {args.device} precision: {args.precision} {"intra_op_threads: 1" if args.device == "CPU" else ""} }}
''')
    return path


IN_FLIGHT = 2  # steps, by default


def steady_rate(lines, batch):
    """Examples/s of the steps behind the first half, without what the first ones do once (connections, captured graphs). A
    step's seconds are from its start, when the step IN_FLIGHT before it has ended, to its end."""
    seconds = [line["seconds"] for line in lines[len(lines) // 2:]]
    return batch * IN_FLIGHT / statistics.median(seconds)


def settings(args, way):
    words = ["--set", f"strategy.kind={way}"]
    if way != "LOCAL":
        words += ["--set", f"strategy.backend={'NCCL' if args.device == 'CUDA' else 'RING'}"]
    if way == "TENSOR":
        words += ["--set", f"strategy.mesh.data={args.data}"]
        for field in args.set:
            words += ["--set", field]
    return words


def run(args, job, folder, way):
    """The leader's result, the losses of its steps, and its steady rate."""
    steps = os.path.join(folder, f"{way}.jsonl")
    command = [args.braid]
    if way != "LOCAL":
        command += ["launch", "--workers", str(args.workers), "--"]
    command += ["train", "--job", job, "--data-dir", folder, "--set", f"metrics.steps_file={folder}/{way}-%r.jsonl"]
    done = subprocess.run(command + settings(args, way), capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise SystemExit(f"{way}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", done.stdout)]
    names = [name for name in os.listdir(folder) if name.startswith(f"{way}-") and name.endswith(".jsonl")]
    leader = min(names)
    with open(os.path.join(folder, leader), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for name in names:
        os.remove(os.path.join(folder, name))
    return max(results, key=lambda r: r["seconds"]), [line["loss"] for line in lines], steady_rate(lines, args.batch)


def plan(args, job, folder):
    shown = subprocess.run([args.braid, "graph", "plan", "--workers", str(args.workers), "--job", job, "--data-dir", folder]
                           + settings(args, "TENSOR"), check=True, capture_output=True, text=True)
    lines = shown.stdout.splitlines()
    wanted = ("tensor: ", "  forward: ", "  backward: ", "  between groups: ", "  a worker: ")
    return [line.strip() for line in lines if line.startswith(wanted)]


def main():
    args = arguments()
    ways = ["LOCAL", "ALLREDUCE", "TENSOR"]
    with tempfile.TemporaryDirectory() as folder:
        make_images(args, folder)
        job = write_job(args, folder)
        rates, steady, losses = {way: [] for way in ways}, {way: [] for way in ways}, {}
        for _ in range(args.repeat):
            for way in ways:
                result, losses[way], late = run(args, job, folder, way)
                steady[way].append(late)
                rates[way].append(result["steps"] * args.batch / result["seconds"])
        alone = statistics.median(rates["LOCAL"])
        for way in ways:
            apart = [abs(a - b) / abs(b) for a, b in zip(losses[way], losses["LOCAL"])]
            line = {"bench": "tensor_jobs", "strategy": way, "workers": 1 if way == "LOCAL" else args.workers,
                    "examples_per_s": round(statistics.median(rates[way])), "least": round(min(rates[way])),
                    "most": round(max(rates[way])), "of_one_process": round(statistics.median(rates[way]) / alone, 3),
                    "steady": round(statistics.median(steady[way])),
                    "steady_of_one_process": round(statistics.median(steady[way]) / statistics.median(steady["LOCAL"]), 3),
                    "losses_apart": float(f"{max(apart):.1e}")}
            if way == "TENSOR":
                line["plan"] = plan(args, job, folder)
            line["settings"] = {"device": args.device, "data": args.data, "layers": args.layers, "width": args.width,
                                "batch": args.batch, "steps": args.steps, "repeat": args.repeat,
                                "precision": args.precision, "set": args.set, "cpu": platform.processor() or platform.machine(),
                                "cores": os.cpu_count()}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
