"""bag_bench beside PyTorch's EmbeddingBag on one CPU thread: the same sizes, lengths of the same distribution, SGD on sparse
gradients. Rounds are interleaved; times are CPU time a step, ratios the median of ours by theirs. A JSON line each.

    python3 bench/peers/torch_bags.py --bench build/release/bench/bag_bench
"""
import argparse
import json
import os
import statistics
import subprocess
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--bench", required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=50)
args = parser.parse_args()
torch.set_num_threads(1)


def torch_us(rows, dim, batch, mean, pooling, weighted):
    random = np.random.default_rng(3)
    bag = torch.nn.EmbeddingBag(rows, dim, mode=pooling, sparse=pooling != "max", include_last_offset=True)
    optimizer = torch.optim.SGD(bag.parameters(), lr=1e-3)
    batches = []
    for _ in range(8):
        lengths = random.geometric(1 / (1 + mean), batch) - 1
        ids = torch.from_numpy(random.integers(0, rows, lengths.sum()))
        weights = torch.from_numpy(random.uniform(0.5, 1.5, lengths.sum()).astype(np.float32)) if weighted else None
        batches.append((ids, torch.from_numpy(np.concatenate([[0], lengths.cumsum()])), weights))

    def step(i):
        ids, offsets, weights = batches[i % len(batches)]
        optimizer.zero_grad()
        bag(ids, offsets, weights).mean().backward()
        optimizer.step()

    for i in range(args.steps // 4 + 1):
        step(i)
    begin = time.process_time()
    for i in range(args.steps):
        step(i)
    return (time.process_time() - begin) / args.steps * 1e6


def ours_us(rows, dim, batch, mean, pooling, weighted):
    command = [args.bench, "--rows", str(rows), "--dim", str(dim), "--batch", str(batch), "--mean", str(mean), "--pooling",
               pooling, "--steps", str(args.steps), "--rounds", "1"] + (["--weighted"] if weighted else [])
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["cpu_us"]


for case in [(1_000_000, 16, 4096, 10, "sum", False), (1_000_000, 16, 4096, 10, "mean", False),
             (1_000_000, 16, 4096, 10, "sum", True), (1_000_000, 64, 4096, 10, "sum", False),
             (1_000_000, 16, 512, 100, "sum", False), (100_000, 16, 4096, 10, "max", False)]:
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(ours_us(*case))
        theirs.append(torch_us(*case))
    print(json.dumps({"bench": "bags", "case": case, "braid_us": round(statistics.median(ours)),
                      "torch_us": round(statistics.median(theirs)),
                      "ratio": round(statistics.median(a / b for a, b in zip(ours, theirs)), 3)}), flush=True)
