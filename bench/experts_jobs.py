#!/usr/bin/env python3
"""What spreading the experts of a sparse mixture over the workers of this host gains: EXPERTS and ALLREDUCE beside one
process.

usage: experts_jobs.py [--braid BINARY] [--device CPU|CUDA] [--workers N] [--mesh DxE]... [--layers N] [--dim N]
                       [--hidden N] [--experts N] [--choices N] [--length N] [--batch N] [--steps N] [--repeat N]
                       [--precision FP32|TF32|BF16] [--ways WAY,...]

Trains the zoo's transformer, each of whose layers is a mixture, on rows that are made: one process, and `--workers` workers
under ALLREDUCE and, for each `--mesh` of D groups of E workers, EXPERTS. All share the same global batch, whose tokens are
cut into as many groups as there are workers, so that all compute the same. In turn, N times over; on CUDA over NCCL, a GPU
each, else over TCP, a thread each. Prints a JSON line a way: median, smallest and largest examples/s of the step loop, the
median's ratio to one process, both of the loop's later half (`steady`), the largest relative difference of a loss from that one's, dropped choices, and for EXPERTS
what its plan says.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile

import tensor_jobs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--device", choices=["CPU", "CUDA"], default="CPU")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--mesh", action="append", default=[], help="groups x workers of a group, as 2x2")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--choices", type=int, default=2)
    parser.add_argument("--length", type=int, default=16, help="tokens of a row")
    parser.add_argument("--batch", type=int, default=64, help="rows of a step over all workers")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--precision", choices=["FP32", "TF32", "BF16"], default="TF32")
    parser.add_argument("--ways", default="LOCAL,ALLREDUCE,EXPERTS")
    args = parser.parse_args()
    args.mesh = args.mesh or [f"1x{args.workers}"]
    return args


def write_job(args, folder):
    path = os.path.join(folder, "job.pbtxt")
    hidden = " ".join([f"hidden: {args.hidden}"] * args.layers)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'''name: "mixture" seed: 7 steps: {args.steps}
model {{
  name: "transformer" {hidden} embedding_dim: {args.dim} classes: 4 sparse_tables: true
  mixture {{ experts: {args.experts} choices: {args.choices} groups: {args.workers} }}
}}
input {{
  format: GENERATOR generator {{ rows: {8 * args.batch} test_rows: 0 }} global_batch_size: {args.batch} shuffle: false
  columns {{ name: "words" kind: CATEGORICAL buckets: 1000 length: {args.length} output: "tokens" }}
  columns {{ name: "topic" kind: CLASS buckets: 4 }}
}}
optimizer {{ kind: MOMENTUM learning_rate: 0.001 }}
evaluation {{ enabled: false }}
runtime {{ device: {args.device} precision: {args.precision} {"intra_op_threads: 1" if args.device == "CPU" else ""} }}
''')
    return path


def settings(args, way):
    kind = way.split()[0]
    words = ["--set", f"strategy.kind={kind}"]
    if kind != "LOCAL":
        words += ["--set", f"strategy.backend={'NCCL' if args.device == 'CUDA' else 'RING'}"]
    if kind == "EXPERTS":
        data, experts = way.split()[1].split("x")
        words += ["--set", f"strategy.mesh.data={data}", "--set", f"strategy.mesh.experts={experts}"]
    return words


def run(args, job, folder, way):
    """The leader's result, the losses of its steps, and its steady rate; dropped choices of all workers."""
    command = [args.braid]
    if way != "LOCAL":
        command += ["launch", "--workers", str(args.workers), "--"]
    command += ["train", "--job", job, "--set", f"metrics.steps_file={folder}/steps-%r.jsonl"]
    done = subprocess.run(command + settings(args, way), capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise SystemExit(f"{way}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", done.stdout)]
    names = sorted(name for name in os.listdir(folder) if name.startswith("steps-"))
    losses, steady, dropped = [], 0, 0
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        losses = losses or [line["loss"] for line in lines]
        steady = steady or tensor_jobs.steady_rate(lines, args.batch)
        dropped += sum(line["dropped"] for line in lines)
        os.remove(os.path.join(folder, name))
    return max(results, key=lambda r: r["seconds"]), losses, steady, dropped


def plan(args, job, way):
    shown = subprocess.run([args.braid, "graph", "plan", "--workers", str(args.workers), "--job", job]
                           + settings(args, way), check=True, capture_output=True, text=True)
    wanted = ("experts: ", "  forward: ", "  backward: ", "  gradients: ", "  a worker: ", "  layer0/experts/route")
    return [line.strip() for line in shown.stdout.splitlines() if line.startswith(wanted)]


def main():
    args = arguments()
    ways = [way for way in args.ways.split(",") if way != "EXPERTS"]
    if "EXPERTS" in args.ways.split(","):
        ways += [f"EXPERTS {mesh}" for mesh in args.mesh]
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(args, folder)
        rates, steady, losses, dropped = {way: [] for way in ways}, {way: [] for way in ways}, {}, {}
        for _ in range(args.repeat):
            for way in ways:
                result, losses[way], late, dropped[way] = run(args, job, folder, way)
                steady[way].append(late)
                rates[way].append(result["steps"] * args.batch / result["seconds"])
        first = ways[0]
        alone = statistics.median(rates[first])
        for way in ways:
            apart = [abs(a - b) / abs(b) for a, b in zip(losses[way], losses[first])]
            line = {"bench": "experts_jobs", "strategy": way, "workers": 1 if way == "LOCAL" else args.workers,
                    "examples_per_s": round(statistics.median(rates[way])), "least": round(min(rates[way])),
                    "most": round(max(rates[way])), f"of_{first}": round(statistics.median(rates[way]) / alone, 3),
                    "steady": round(statistics.median(steady[way])),
                    f"steady_of_{first}": round(statistics.median(steady[way]) / statistics.median(steady[first]), 3),
                    "losses_apart": float(f"{max(apart):.1e}"), "dropped": dropped[way]}
            if way.startswith("EXPERTS"):
                line["plan"] = plan(args, job, way)
            line["settings"] = {name: getattr(args, name) for name in
                                ("device", "layers", "dim", "hidden", "experts", "choices", "length", "batch", "steps",
                                 "repeat", "precision")}
            line["settings"].update(cpu=platform.processor() or platform.machine(), cores=os.cpu_count())
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
