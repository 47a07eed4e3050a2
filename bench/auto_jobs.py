#!/usr/bin/env python3
"""What AUTO makes of whole jobs, against one stream: it is to be within 2 % of it, or better.

usage: auto_jobs.py [--braid BINARY] [--device cpu|cuda] [--repeat N] [--streams N] [--criteo-rows N] [--only NAME,...]
                    [--ids]

Runs `braid train` with one stream, with AUTO on N streams, and with one stream once more, in turn and N times over
(interleaved, so that a slow minute of the machine hits all alike). Batches are large enough for steps of a millisecond
and more, except for linear_regression, which has 17 points. Prints a JSON line a model: median milliseconds of a step,
the median, smallest and largest ratio of AUTO to the one stream of the same turn, the same of the second run of one
stream, which is the noise, and what AUTO took. Criteo rows are generated into a temporary folder.

--ids adds AUTO with streams that a person would set: half of the experts, or what is wide, or the tables, on stream 1 and
the rest on stream 0, by rules, which AUTO keeps.
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

# model: overrides that make steps long enough, by device; their number is added
BATCH = ["input.global_batch_size=4096", "epochs=0"]
SIZES = {
    "linear_regression": [],
    "mmoe": [*BATCH, "model.experts=8"],
    "dlrm": BATCH,
    "wide_deep": BATCH,
}
JOBS = {"wide_deep": "wide_deep_generated.pbtxt"}  # instead of those of models.py, which needs data
STEPS = {"cpu": 150, "cuda": 3000}
# model: the rules of --ids
IDS = {
    "linear_regression": r"1:(gradients/|update/)?y.*",
    "mmoe": r"1:(gradients/|update/)?expert\d*[13579]/.*,(gradients/|update/)?purchase_task/.*" "\n"
            r"0:(gradients/|update/)?expert\d*[02468]/.*,(gradients/|update/)?click_task/.*",
    "dlrm": r"1:(gradients/|update/)?[^/]*/(table|ResourceGather).*" "\n" r"0:(gradients/|update/)?(bottom|top)/.*",
    "wide_deep": r"1:(gradients/|update/)?wide/.*" "\n" r"0:(gradients/|update/)?deep/.*",
}
WAYS = {
    "one": ["streams.count=1", "streams.policy=NONE"],
    "auto": ["streams.policy=AUTO"],
    "again": ["streams.count=1", "streams.policy=NONE"],
}


def train(args, name, data, overrides):
    """Milliseconds of a step, and what AUTO said."""
    job = os.path.join(models.ROOT, "examples/jobs", JOBS.get(name, models.JOBS[name][0]))
    command = [args.braid, "train", "--job", job, "--data-dir", data]
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
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ids", action="store_true")
    args = parser.parse_args()
    names = [name for name in args.only.split(",") if name] or ["linear_regression", "mmoe", "dlrm"]
    for name in names:
        if name not in SIZES:
            sys.exit(f"--only: there is no model '{name}' here; there are: {', '.join(SIZES)}")
    common = ["evaluation.enabled=false", f"runtime.device={args.device.upper()}", "runtime.intra_op_threads=1"]
    ways = {**WAYS, **({"ids": WAYS["auto"]} if args.ids else {})}
    with tempfile.TemporaryDirectory() as criteo:
        rules = os.path.join(criteo, "rules")
        if any(models.JOBS[name][1] == "criteo" for name in names):
            models.make_criteo(args, criteo)
        for name in names:
            data = "." if name in JOBS else models.data_folder(name, args, criteo)
            steps = 20000 if name == "linear_regression" else STEPS[args.device]
            sizes = [*SIZES[name], f"steps={steps}"]
            with open(rules, "w", encoding="utf-8") as file:
                file.write(IDS[name] + "\n")
            ms = {way: [] for way in ways}
            took = {"auto": set(), "ids": set()}
            for _ in range(args.repeat):
                for way, overrides in ways.items():
                    streams = [f"streams.count={args.streams}"] if way in took else []
                    if way == "ids":
                        streams.append(f"streams.rules_file={rules}")
                    step, said = train(args, name, data, common + sizes + overrides + streams)
                    ms[way].append(step)
                    if way in took:
                        took[way] |= {re.sub(r":.*", "", said)} - {""}
            ratio = {way: spread([a / b for a, b in zip(ms[way], ms["one"])]) for way in ways if way != "one"}
            print(json.dumps({"bench": "auto_jobs", "model": name, "overrides": sizes,
                              "one_stream_ms": round(statistics.median(ms["one"]), 4),
                              "auto_ms": round(statistics.median(ms["auto"]), 4), "auto": ratio["auto"],
                              "one_stream_again": ratio["again"], "took": sorted(took["auto"]),
                              **({"with_ids": ratio["ids"], "took_with_ids": sorted(took["ids"])} if args.ids else {}),
                              "repeats": args.repeat, "streams": args.streams, "cores": cores}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
