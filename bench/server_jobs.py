#!/usr/bin/env python3
"""What two workers and a server on this host take, beside one process of one thread.

usage: server_jobs.py [--braid BINARY] [--beside BINARY] [--turns N] [--cases wide_deep_256,...] [--data-dir DIR]

Trains wide_deep at 256 and 4096 rows a step and dlrm at 512 (DIR holds the rows of `braid data criteo`), on the CPU:
one process (LOCAL), and two workers of one thread and one server under PS and PS_ALLREDUCE, in turn. `--beside`: PS by
another build, too. Prints a JSON line a way, medians over turns of what a longer run takes beyond a shorter one, so that
starting counts nothing: microseconds a step by the clock, and of CPU time of all processes, of which so much in the
kernel (both hold on a machine that has other work better than the clock does), and voluntary switches of threads.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = {"wide_deep_256": ("wide_deep_generated.pbtxt", 256, 2000), "wide_deep_4096": ("wide_deep_generated.pbtxt", 4096, 300),
         "dlrm_512": ("dlrm_criteo.pbtxt", 512, 200)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--beside")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cases", default="wide_deep_256,wide_deep_4096")
    parser.add_argument("--data-dir")
    return parser.parse_args()


def run(args, binary, strategy, job, batch, steps):
    command = [binary] + ([] if strategy == "LOCAL" else ["launch", "--workers", "2", "--ps", "1", "--"])
    command += ["train", "--job", os.path.join(ROOT, "examples/jobs", job), "--device", "cpu"]
    command += ["--data-dir", args.data_dir] if args.data_dir else []
    for key, value in {"steps": steps, "input.global_batch_size": batch, "evaluation.enabled": "false",
                       "strategy.kind": strategy, "runtime.intra_op_threads": 1, "streams.policy": "NONE",
                       "streams.count": 1}.items():
        command += ["--set", f"{key}={value}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(re.search(r"result: (\{.*\})", done.stdout).group(1))
    kernel = after.ru_stime - before.ru_stime
    return (1e6 * result["seconds"], 1e6 * (after.ru_utime - before.ru_utime + kernel), 1e6 * kernel,
            after.ru_nvcsw - before.ru_nvcsw)


def main():
    args = arguments()
    ways = [("LOCAL", args.braid), ("PS", args.braid), ("PS_ALLREDUCE", args.braid)]
    ways += [("PS", args.beside)] if args.beside else []
    for name in args.cases.split(","):
        job, batch, steps = CASES[name]
        samples = {way: [] for way in ways}
        for _ in range(args.turns):
            for strategy, binary in ways:
                short, long = (run(args, binary, strategy, job, batch, n) for n in (steps, 3 * steps))
                samples[strategy, binary].append([(b - a) / (2 * steps) for a, b in zip(short, long)])
        for (strategy, binary), its in samples.items():
            clock, cpu, kernel, switches = (round(statistics.median(column), 1) for column in zip(*its))
            print(json.dumps({"bench": "server_jobs", "case": name, "strategy": strategy, "braid": binary,
                              "us_a_step": clock, "cpu_us_a_step": cpu, "kernel_us_a_step": kernel,
                              "switches_a_step": switches, "turns": args.turns}), flush=True)


if __name__ == "__main__":
    main()
