#!/usr/bin/env python3
"""What a second worker on this host gains for dlrm, by strategy: HYBRID, ALLREDUCE, and one process.

usage: hybrid_jobs.py [--braid BINARY] [--repeat N] [--batch N] [--buckets N] [--dim N] [--steps N] [--workers N]

Trains dlrm on generated Criteo rows: one process of one thread, and `--workers` workers of one thread each under
ALLREDUCE and HYBRID (AUTO plan), which share the same global batch, in turn, N times over. Prints a JSON line a way:
median, smallest and largest examples/s of the step loop, the median's ratio to one process, and the CPU time of a step
over all workers (what a longer run takes beyond a shorter one, so that starting counts nothing; it also holds on a
machine that has other work); for HYBRID also what a worker receives in a step at most (braid graph plan).
"""
import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4096, help="rows of a step over all workers")
    parser.add_argument("--buckets", type=int, default=100000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=100000, help="of the data")
    return parser.parse_args()


def job(args, folder, strategy, steps):
    settings = {"model.hash_buckets": args.buckets, "model.embedding_dim": args.dim, "steps": steps,
                "input.global_batch_size": args.batch, "evaluation.enabled": "false", "strategy.kind": strategy,
                "runtime.intra_op_threads": 1, "runtime.device": "CPU", "streams.count": 1, "streams.policy": "NONE"}
    words = ["--job", os.path.join(ROOT, "examples/jobs/dlrm_criteo.pbtxt"), "--data-dir", folder]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    return words


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(args, folder, strategy, steps):
    """The leader's result, and the CPU seconds of all processes."""
    before = cpu_seconds()
    command = [args.braid]
    if strategy != "LOCAL":
        command += ["launch", "--workers", str(args.workers), "--"]
    done = subprocess.run(command + ["train"] + job(args, folder, strategy, steps), capture_output=True, text=True,
                          timeout=1800, env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    results = re.findall(r"result: (\{.*\})", done.stdout)
    return max((json.loads(line) for line in results), key=lambda r: r["seconds"]), cpu_seconds() - before


def received(args, folder):
    shown = subprocess.run([args.braid, "graph", "plan", "--workers", str(args.workers)] + job(args, folder, "HYBRID", args.steps),
                           check=True, capture_output=True, text=True)
    return re.search(r"tables: .*at most (.*) received a step", shown.stdout).group(1)


def main():
    args = arguments()
    ways = ["LOCAL", "ALLREDUCE", "HYBRID"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.braid, "data", "criteo", "--rows", str(args.rows), "--out", folder], check=True,
                       capture_output=True)
        rates, cpu = {way: [] for way in ways}, {way: [] for way in ways}
        short = max(1, args.steps // 5)
        for _ in range(args.repeat):
            for way in ways:
                _, begun = run(args, folder, way, short)
                result, used = run(args, folder, way, args.steps)
                rates[way].append(result["steps"] * args.batch / result["seconds"])
                cpu[way].append((used - begun) / (args.steps - short) * 1e3)
        alone = statistics.median(rates["LOCAL"])
        for way in ways:
            line = {"bench": "hybrid_jobs", "strategy": way, "workers": 1 if way == "LOCAL" else args.workers,
                    "examples_per_s": round(statistics.median(rates[way])), "least": round(min(rates[way])),
                    "most": round(max(rates[way])), "of_one_process": round(statistics.median(rates[way]) / alone, 3),
                    "cpu_ms_a_step": round(statistics.median(cpu[way]), 1)}
            if way == "HYBRID":
                line["received_a_step_at_most"] = received(args, folder)
            line["settings"] = {"batch": args.batch, "buckets": args.buckets, "dim": args.dim, "steps": args.steps,
                                "repeat": args.repeat, "cpu": platform.processor() or platform.machine(),
                                "cores": os.cpu_count()}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
