#!/usr/bin/env python3
"""Whether strategies change what a model learns: quality by strategy, and bits of caches.

usage: strategy_quality.py [--braid BINARY] [--models dlrm,wide_deep] [--rows N] [--cache-steps N]

Trains each model once on one process and once under each strategy with two workers (and a server), the same job and
seed, and prints a JSON line a model: the metric of the test rows by one process, and how far each strategy is from it.
Then dlrm under PS (BSP, two workers) with caches of 1, 10 and 100 % of the tables' rows: a JSON line with the arrays of
the last checkpoint that differ from those of a run without a cache, of how many. Needs no data and no GPU.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import models

HYBRID = ["strategy.kind=HYBRID"]
# way: (settings, workers, servers)
WAYS = {
    "HYBRID": (HYBRID, 2, 0),
    "HYBRID_HOT": ([*HYBRID, "strategy.hybrid=table { match: '.*' plan: ROW hot_rows: 64 }"], 2, 0),
    "HYBRID_BF16": ([*HYBRID, "strategy.wire=BF16"], 2, 0),
    "ALLREDUCE_BF16": (["strategy.kind=ALLREDUCE", "strategy.wire=BF16"], 2, 0),
    "PS": (["strategy.kind=PS"], 2, 1),
    "PS_CACHE": (["strategy.kind=PS", "strategy.ps.cache_rows=200000"], 2, 1),
    "PS_ALLREDUCE": (["strategy.kind=PS_ALLREDUCE"], 2, 1),
}
# model: (job, settings)
MODELS = {
    "dlrm": ("dlrm_criteo.pbtxt", ["model.sparse_tables=true", "epochs=1", "steps=0"]),
    "wide_deep": ("wide_deep_generated.pbtxt", []),
}
CACHES = (1, 10, 100)
BUCKETS = 5000
CATEGORIES = 26


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(models.ROOT, "build/release/cli/braid"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--criteo-rows", "--rows", dest="criteo_rows", type=int, default=100000)
    parser.add_argument("--cache-steps", type=int, default=1000)
    return parser.parse_args()


def train(args, job, folder, settings, workers=1, servers=0):
    """The leader's result line."""
    words = [args.braid]
    if workers > 1:
        words += ["launch", "--workers", str(workers), "--ps", str(servers), "--"]
    words += ["train", "--job", os.path.join(models.ROOT, "examples/jobs", job), "--data-dir", folder]
    common = ["runtime.device=CPU", "runtime.intra_op_threads=1", "streams.count=1", "streams.policy=NONE"]
    for setting in [*common, *settings]:
        words += ["--set", setting]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, env={**os.environ, "BRAID_PROGRESS": "off"})
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", done.stdout)]
    if done.returncode != 0 or not results:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return results[0]


def quality(result):
    return next(result[name] for name in models.QUALITY if name in result)


def compare(args, name, folder):
    job, settings = MODELS[name]
    alone = quality(train(args, job, folder, settings))
    line = {"bench": "strategy_quality", "model": name, "one_process": alone}
    for way, (more, workers, servers) in WAYS.items():
        line[way] = round(quality(train(args, job, folder, settings + more, workers, servers)) - alone, 6)
    print(json.dumps(line), flush=True)


def caches(args, folder):
    line = {"bench": "strategy_quality", "model": "dlrm", "steps": args.cache_steps, "rows": BUCKETS * CATEGORIES}
    with tempfile.TemporaryDirectory() as kept:
        for percent in (0, *CACHES):
            train(args, "dlrm_criteo.pbtxt", folder,
                  ["model.sparse_tables=true", f"model.hash_buckets={BUCKETS}", f"steps={args.cache_steps}", "epochs=0",
                   "input.global_batch_size=32", "evaluation.enabled=false", "strategy.kind=PS",
                   f"strategy.ps.cache_rows={BUCKETS * CATEGORIES * percent // 100}",
                   f"checkpoint.directory={kept}/{percent}"], 2, 1)
        for percent in CACHES:
            done = subprocess.run([args.braid, "ckpt", "diff", f"{kept}/{percent}", f"{kept}/0"], capture_output=True, text=True)
            line[f"cache_{percent}_percent"] = done.stdout.strip().splitlines()[-1]
    print(json.dumps(line), flush=True)


def main():
    args = arguments()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        sys.exit(f"--models: unknown: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        models.make_criteo(args, folder)
        for name in names:
            compare(args, name, folder)
        caches(args, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
