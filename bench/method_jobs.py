#!/usr/bin/env python3
"""What training methods save and cost on the workers of this host, beside plain ALLREDUCE.

usage: method_jobs.py [--braid BINARY] [--device CPU|CUDA] [--workers N] [--layers N] [--width N] [--batch N] [--steps N]
                      [--repeat N] [--precision FP32|TF32|BF16] [--bucket BYTES] [--ways WAY,...]

Trains the zoo's mlp with `--layers` hidden layers of `--width`, whose inputs are as wide, on random images. Ways: LOCAL (one
process), ALLREDUCE, and ALLREDUCE with a method: states spread (OPTIMIZER), gradients too (GRADIENTS), variables too
(PARAMETERS); ACCUMULATE (4 parts), RECOMPUTE (each layer), LOCAL_SGD (means every 8 steps), INT8, TOP_K, POWER_SGD, WIRE_BF16,
ADASUM, MEDIAN. All share the same global batch. In turn, N times over; on CUDA over NCCL, a GPU each, else over TCP, a thread
each. Prints a JSON line a way: median, smallest and largest examples/s of the step loop, the median of the steps behind its
first half (without what the first ones do once), the loop's ratio to the first way, the largest relative difference of a loss
from that one's, what `braid graph plan` says of a worker's variables with slots and of its arena, and the most memory that was
seen in use: of a GPU, with what CUDA and NCCL take, or of a process.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import threading

import tensor_jobs

WAYS = {
    "LOCAL": {"kind": "LOCAL"},
    "ALLREDUCE": {},
    "OPTIMIZER": {"shard": "OPTIMIZER"},
    "GRADIENTS": {"shard": "GRADIENTS"},
    "PARAMETERS": {"shard": "PARAMETERS"},
    "ACCUMULATE": {"optimizer.accumulate_steps": 4},
    "RECOMPUTE": {"runtime.recompute.scope": "mlp/(layer[0-9]+)/.*"},
    "LOCAL_SGD": {"average_every_steps": 8},
    "INT8": {"compression.kind": "INT8"},
    "TOP_K": {"compression.kind": "TOP_K"},
    "POWER_SGD": {"compression.kind": "POWER_SGD"},
    "WIRE_BF16": {"wire": "BF16"},
    "ADASUM": {"reduction": "ADASUM"},
    "MEDIAN": {"reduction": "MEDIAN"},
}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--device", choices=["CPU", "CUDA"], default="CPU")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096, help="a square: images are so many pixels")
    parser.add_argument("--batch", type=int, default=4096, help="rows of a step over all workers")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--precision", choices=["FP32", "TF32", "BF16"], default="FP32")
    parser.add_argument("--bucket", type=int, default=1 << 20)
    parser.add_argument("--ways", default="LOCAL,ALLREDUCE,OPTIMIZER,GRADIENTS,PARAMETERS")
    return parser.parse_args()


class MostMemory(threading.Thread):
    """MiB: of the fullest GPU, or of the largest of the processes that train this job."""

    def __init__(self, device, job):
        super().__init__(daemon=True)
        self.device, self.job, self.over, self.most = device, job, threading.Event(), 0

    def run(self):
        while not self.over.wait(0.1):
            self.most = max([self.most, *(self.of_gpus() if self.device == "CUDA" else self.of_processes())])

    @staticmethod
    def of_gpus():
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=False).stdout
        return [int(line) for line in said.split() if line.isdigit()]

    def of_processes(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    words = file.read().split("\0")
                if words[1:2] != ["train"] or self.job not in words:
                    continue
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
                if found:
                    yield int(found.group(1)) >> 10
            except OSError:
                pass


def settings(args, way):
    backend = "NCCL" if args.device == "CUDA" else "RING"
    fields = {"kind": "ALLREDUCE", "backend": backend, "bucket_bytes": args.bucket, **WAYS[way]}
    if way == "LOCAL":
        fields = WAYS[way]
    words = []
    for name, value in fields.items():
        words += ["--set", f"{name if name.startswith(('optimizer.', 'runtime.')) else 'strategy.' + name}={value}"]
    return words


def run(args, job, folder, way):
    """The slowest worker's result, the losses of the leader's steps, their steady rate, and the most memory."""
    command = [args.braid]
    if way != "LOCAL":
        command += ["launch", "--workers", str(args.workers), "--"]
    command += ["train", "--job", job, "--data-dir", folder, "--set", f"metrics.steps_file={folder}/steps-%r.jsonl"]
    memory = MostMemory(args.device, job)
    memory.start()
    done = subprocess.run(command + settings(args, way), capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    memory.over.set()
    memory.join()
    if done.returncode != 0:
        raise SystemExit(f"{way}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", done.stdout)]
    names = sorted(name for name in os.listdir(folder) if name.startswith("steps-"))
    with open(os.path.join(folder, names[0]), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for name in names:
        os.remove(os.path.join(folder, name))
    steady = tensor_jobs.steady_rate(lines, args.batch)
    return max(results, key=lambda r: r["seconds"]), [line["loss"] for line in lines], steady, memory.most


def planned(args, job, folder, way):
    """MiB of a worker's variables with slots, and of its arena."""
    workers = "1" if way == "LOCAL" else str(args.workers)
    shown = subprocess.run([args.braid, "graph", "plan", "--workers", workers, "--job", job, "--data-dir", folder]
                           + settings(args, way), check=True, capture_output=True, text=True).stdout
    line = next(line for line in shown.splitlines() if line.startswith("memory: "))
    sizes = {name: re.search(name + r" ([\d.]+) (B|KiB|MiB|GiB)", line) for name in ("variables", "arena")}
    units = {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}
    return {name: round(float(size.group(1)) * units[size.group(2)], 1) for name, size in sizes.items()}


def main():
    args = arguments()
    ways = args.ways.split(",")
    with tempfile.TemporaryDirectory() as folder:
        tensor_jobs.make_images(args, folder)
        job = tensor_jobs.write_job(args, folder)
        rates, steady, losses, memory = {way: [] for way in ways}, {way: [] for way in ways}, {}, {}
        for _ in range(args.repeat):
            for way in ways:
                result, losses[way], late, memory[way] = run(args, job, folder, way)
                steady[way].append(late)
                rates[way].append(result["steps"] * args.batch / result["seconds"])
        first = statistics.median(rates[ways[0]])
        for way in ways:
            apart = [abs(a - b) / abs(b) for a, b in zip(losses[way], losses[ways[0]])]
            line = {"bench": "method_jobs", "way": way, "workers": 1 if way == "LOCAL" else args.workers,
                    "examples_per_s": round(statistics.median(rates[way])), "least": round(min(rates[way])),
                    "most": round(max(rates[way])), "steady": round(statistics.median(steady[way])),
                    f"of_{ways[0]}": round(statistics.median(rates[way]) / first, 3),
                    "losses_apart": float(f"{max(apart):.1e}"), "planned_mib": planned(args, job, folder, way),
                    "used_mib": memory[way]}
            line["settings"] = {name: getattr(args, name) for name in
                                ("device", "layers", "width", "batch", "steps", "repeat", "precision", "bucket")}
            line["settings"].update(cpu=platform.processor() or platform.machine(), cores=os.cpu_count())
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
