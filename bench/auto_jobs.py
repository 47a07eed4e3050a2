#!/usr/bin/env python3
"""What AUTO makes of whole jobs, against one stream: it is to be within 2 % of it, or better.

usage: auto_jobs.py [--braid BINARY] [--repeat N] [--streams N] [--criteo-rows N] [--only NAME,...]

Runs `braid train` with one stream, with AUTO on N streams, and with one stream once more, in turn and N times over
(interleaved, so that a slow minute of the machine hits all alike). Batches are large enough for steps of a millisecond
and more, except for linear_regression, which has 17 points. Prints a JSON line a model: median milliseconds of a step,
the median, smallest and largest ratio of AUTO to the one stream of the same turn, the same of the second run of one
stream, which is the noise, and what AUTO took. Criteo rows are generated into a temporary folder.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import models

# model: overrides that make steps long enough, and their number of steps
SIZES = {
    "linear_regression": ["steps=20000"],
    "mmoe": ["input.global_batch_size=4096", "steps=150", "epochs=0"],
    "dlrm": ["input.global_batch_size=4096", "steps=150", "epochs=0"],
    "wide_deep": ["input.global_batch_size=4096", "steps=150", "epochs=0"],
}
WAYS = {
    "one": ["streams.count=1", "streams.policy=NONE"],
    "auto": ["streams.policy=AUTO"],
    "again": ["streams.count=1", "streams.policy=NONE"],
}


def train(args, name, data, overrides):
    """Milliseconds of a step, and what AUTO said."""
    command = [args.braid, "train", "--job", models.job_path(name), "--data-dir", data]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    result = json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    took = re.search(r"streams: (AUTO took .*)", done.stderr)
    return 1e3 * result["seconds"] / result["steps"], took.group(1) if took else ""


def spread(ratios):
    return {"median": round(statistics.median(ratios), 4), "min": round(min(ratios), 4), "max": round(max(ratios), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models.add_arguments(parser)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--streams", type=int, default=cores)
    args = parser.parse_args()
    names = [name for name in args.only.split(",") if name] or ["linear_regression", "mmoe", "dlrm"]
    for name in names:
        if name not in SIZES:
            sys.exit(f"--only: there is no model '{name}' here; there are: {', '.join(SIZES)}")
    common = ["evaluation.enabled=false", "runtime.device=CPU", "runtime.intra_op_threads=1"]
    with tempfile.TemporaryDirectory() as criteo:
        if any(models.JOBS[name][1] == "criteo" for name in names):
            models.make_criteo(args, criteo)
        for name in names:
            data = models.data_folder(name, args, criteo)
            ms = {way: [] for way in WAYS}
            took = set()
            for _ in range(args.repeat):
                for way, overrides in WAYS.items():
                    streams = [f"streams.count={args.streams}"] if way == "auto" else []
                    step, said = train(args, name, data, common + SIZES[name] + overrides + streams)
                    ms[way].append(step)
                    took |= {re.sub(r":.*", "", said)} - {""}
            ratio = {way: [a / b for a, b in zip(ms[way], ms["one"])] for way in ("auto", "again")}
            print(json.dumps({"bench": "auto_jobs", "model": name, "overrides": SIZES[name],
                              "one_stream_ms": round(statistics.median(ms["one"]), 4),
                              "auto_ms": round(statistics.median(ms["auto"]), 4), "auto": spread(ratio["auto"]),
                              "one_stream_again": spread(ratio["again"]), "took": sorted(took), "repeats": args.repeat,
                              "streams": args.streams, "cores": cores}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
