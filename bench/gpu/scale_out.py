#!/usr/bin/env python3
"""What more GPUs of one host gain for models with tables, by strategy.

usage: scale_out.py [--braid BINARY] [--workers N,...] [--servers N] [--rows 4096,16384] [--models NAME,...] [--ways WAY,...]
                    [--repeat N] [--steps N] [--lines] [--trace DIR]

Trains each model (dlrm, dlrm_large with 1,000,000 rows of 32 numbers a table, deepfm, wide_deep, mmoe) as a user would,
from rows in memory through the stage, with as many rows a worker: on one GPU (LOCAL), on N of them under HYBRID and
ALLREDUCE over NCCL, on N of one process (MIRRORED), and with parameter servers on the host: PS (BSP), PS_AHEAD (the same
with pulls ahead), PS_CACHE (a cache of 200,000 rows of each width a worker), PS_ASP. dlrm_huge has 5,000,000 rows of 128
numbers a worker in each of its 26 tables: on four workers 266 GB of tables, under HYBRID and SGD. Beside it stands the most
memory that a GPU had in use, and what `braid graph plan` said of it. The ways take turns, and the median of the turns
counts. Prints a JSON line a model, size and number of workers: us a step, examples/s over all workers, the gain over one
GPU, and the share of the time that the leader waited for input.
--trace also writes each way's Perfetto trace there.

A turn is two runs, one of a quarter of the steps, whose difference counts: starting costs nothing. --lines makes it one
run, timed between the progress lines of the leader that come after its first fifth: half the time, 2 % less exact.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import models  # noqa: E402

# name: (job, overrides)
MODELS = {
    "dlrm": ("dlrm", []),
    "dlrm_large": ("dlrm", ["model.hash_buckets=1000000", "model.embedding_dim=32"]),
    "deepfm": ("deepfm", []),
    "wide_deep": ("wide_deep", []),
    "mmoe": ("mmoe", ["input.generator.rows=400000"]),
    "dlrm_huge": ("dlrm", ["model.embedding_dim=128", "optimizer.kind=SGD"]),
}
HUGE_ROWS = 5_000_000  # of a table, a worker
JOB_FILES = {"wide_deep": "wide_deep_generated.pbtxt"}
NCCL = ["strategy.backend=NCCL"]
# way: (strategy, settings, share of the steps)
WAYS = {
    "LOCAL": ("LOCAL", [], 1),
    "HYBRID": ("HYBRID", NCCL, 1),
    "ALLREDUCE": ("ALLREDUCE", NCCL, 0.4),
    "MIRRORED": ("MIRRORED", [], 0.4),
    "PS": ("PS", [], 0.2),
    "PS_AHEAD": ("PS", ["strategy.ps.pull_ahead=true"], 0.2),
    "PS_CACHE": ("PS", ["model.sparse_tables=true", "strategy.ps.cache_rows=200000"], 0.2),
    "PS_ASP": ("PS", ["strategy.consistency=ASP"], 0.2),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(models.ROOT, "build/release/cli/braid"))
    parser.add_argument("--workers", default="2", help="numbers, between commas; one GPU is measured once for all of them")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--rows", default="4096,16384", help="of a worker in a step")
    parser.add_argument("--models", default=",".join(name for name in MODELS if name != "dlrm_huge"))
    parser.add_argument("--ways", default="LOCAL,HYBRID,ALLREDUCE", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--criteo-rows", type=int, default=400000)
    parser.add_argument("--set", action="append", default=[], help="further settings of every job")
    parser.add_argument("--lines", action="store_true", help="one run a turn")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a run")
    parser.add_argument("--trace", default="")
    return parser.parse_args()


class MostMemory:
    """The most bytes that one of these GPUs has had in use since the beginning."""

    def __init__(self):
        self.bytes, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.over.wait(0.5):
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            self.bytes = max([self.bytes, *(int(line) << 20 for line in said.split() if line.isdigit())])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def planned_bytes(args, workers, rows, data):
    """What `braid graph plan` says of the tables and slots on the worker that has most of them."""
    settings = [*model_settings("dlrm_huge", workers), "strategy.kind=HYBRID", f"input.global_batch_size={rows * workers}"]
    command = [args.braid, "graph", "plan", "--job", job_file("dlrm_huge"), "--data-dir", data, "--workers", str(workers),
               "--card", "H200", "--json"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["sharded_tables"]["memory_bytes"] if done.returncode == 0 else None


def job_file(name):
    model = MODELS[name][0]
    return os.path.join(models.ROOT, "examples/jobs", JOB_FILES.get(model, models.JOBS[model][0]))


def model_settings(name, workers):
    return [*MODELS[name][1], *([f"model.hash_buckets={HUGE_ROWS * workers}"] if name == "dlrm_huge" else [])]


def run(args, name, way, workers, rows, data, steps):
    """The result line of the slowest worker, and when the leader had done how many steps."""
    strategy, settings, _ = WAYS[way]
    workers = 1 if way == "LOCAL" else workers
    processes = 1 if way == "MIRRORED" else workers
    servers = args.servers if strategy == "PS" else 0
    settings = [f"strategy.kind={strategy}", f"input.global_batch_size={rows * workers}", f"steps={steps}", "epochs=0",
                "streams.count=8", "staging.capacity=8", "staging.num_threads=8", "evaluation.enabled=false",
                "runtime.device=CUDA", "metrics.progress_seconds=0.05", *settings, *model_settings(name, workers), *args.set]
    if args.trace:
        settings += [f"metrics.trace_file={args.trace}/{name}-{rows}-{way}-{workers}-%r.json", "metrics.sample_every_seconds=0.1"]
    if way == "MIRRORED":
        settings.append(f"strategy.mirrored.devices={workers}")
    command = [args.braid, *([] if processes == 1 else ["launch", "--workers", str(processes), "--ps", str(servers), "--"]),
               "train", "--job", job_file(name), "--data-dir", data]
    code, text, said, done = models.watch(command, settings, args.limit, "lines" if args.lines else "off")
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", text)]
    if code != 0 or not results:
        words = "".join(line for line in said if not re.search(r"step \d+/\d+", line))
        raise RuntimeError(f"{' '.join(command)}: exit code {code}\n{words[-3000:]}")
    return max(results, key=lambda result: result["seconds"]), done


def step(args, name, way, workers, rows, data):
    """us of a step, and the share of it that waits for input, without the first steps.

    These open connections, capture graphs and find out how many threads the input needs.
    """
    steps = max(50, int(args.steps * WAYS[way][2]))
    whole, done = run(args, name, way, workers, rows, data, steps)
    if args.lines:
        us = models.us_a_step(done, steps // 5)
        if us is None:
            raise RuntimeError(f"{steps} steps ended between two progress lines")
        return us, whole["input_wait_seconds"] / whole["seconds"]
    short, _ = run(args, name, way, workers, rows, data, steps // 4)
    seconds = whole["seconds"] - short["seconds"]
    return (1e6 * seconds / (whole["steps"] - short["steps"]),
            max(0.0, whole["input_wait_seconds"] - short["input_wait_seconds"]) / seconds)


def take_turns(args, name, ways, rows, data):
    """(way, workers) -> the medians of its turns as a line has them; without those that failed each time."""
    took = {}
    for _ in range(args.repeat):
        for way, workers in ways:
            try:
                took.setdefault((way, workers), []).append(step(args, name, way, workers, rows, data))
            except RuntimeError as error:
                print(f"{name} {rows} {way} on {workers}: {error}", file=sys.stderr, flush=True)
    found = {}
    for (way, workers), turns in took.items():
        us = statistics.median(turn[0] for turn in turns)
        found[way, workers] = {"step_us": round(us, 1), "examples_per_second": round(rows * workers / us * 1e6),
                               "input_wait": round(statistics.median(turn[1] for turn in turns), 3)}
    return found


def measure_huge(args, workers, rows, data):
    line = {"model": "dlrm_huge", "rows": rows, "workers": workers, "rows_of_a_table": HUGE_ROWS * workers}
    with MostMemory() as most:
        found = take_turns(args, "dlrm_huge", [("HYBRID", workers)], rows, data)
    line["HYBRID"] = found.get(("HYBRID", workers), "failed")
    planned = planned_bytes(args, workers, rows, data)
    line["GiB_planned_of_tables"] = round(planned / 2**30, 1) if planned else "unknown"
    line["GiB_most_in_use"] = round(most.bytes / 2**30, 1)
    print(json.dumps(line), flush=True)


def measure(args, name, rows, data):
    counts = [int(count) for count in args.workers.split(",")]
    if name == "dlrm_huge":
        for workers in counts:
            measure_huge(args, workers, rows, data)
        return
    chosen = [way for way in WAYS if way in args.ways.split(",")]
    ways = [("LOCAL", 1)] if "LOCAL" in chosen else []
    ways += [(way, workers) for workers in counts for way in chosen if way != "LOCAL"]
    found = take_turns(args, name, ways, rows, data)
    one = found.get(("LOCAL", 1))
    for workers in counts:
        line = {"model": name, "rows": rows, "workers": workers}
        for way in chosen:
            line[way] = at = found.get((way, 1 if way == "LOCAL" else workers), "failed")
            if one and way != "LOCAL" and at != "failed":
                at["gain"] = round(at["examples_per_second"] / one["examples_per_second"], 3)
        print(json.dumps(line), flush=True)


def main():
    args = arguments()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        sys.exit(f"--models: unknown: {', '.join(unknown)}")
    if unknown := [way for way in args.ways.split(",") if way not in WAYS]:
        sys.exit(f"--ways: unknown: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        if any(MODELS[name][0] in ("dlrm", "deepfm") for name in names):
            models.make_criteo(args, folder)
        for name in names:
            for rows in args.rows.split(","):
                measure(args, name, int(rows), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
