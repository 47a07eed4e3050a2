"""bag_bench beside PyTorch's EmbeddingBag, on one CPU thread or on a GPU: the same sizes, lengths of the same distribution,
SGD on sparse gradients (of max on dense ones, which it has alone). Rounds are interleaved. On the CPU times are CPU time a
step; on the GPU elapsed ones of batches that lie there: ours a captured graph; PyTorch's launched, and where that can be, with
dense gradients in a graph too, of which the better counts ("way"). Ratios are the median of ours by theirs. A JSON line each.

    python3 bench/peers/torch_bags.py --bench build/release/bench/bag_bench [--device cuda]
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

parser = argparse.ArgumentParser()
parser.add_argument("--bench", required=True)
parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=50)
args = parser.parse_args()
torch.set_num_threads(1)


def elapsed_us(step):
    """Of --steps steps, after some."""
    on_cpu = args.device == "cpu"
    for i in range(args.steps // 4 + 8):
        step(i)
    if not on_cpu:
        torch.cuda.synchronize()
    begin = time.process_time() if on_cpu else time.perf_counter()
    for i in range(args.steps):
        step(i)
    if not on_cpu:
        torch.cuda.synchronize()
    return ((time.process_time() if on_cpu else time.perf_counter()) - begin) / args.steps * 1e6


def make_batches(rows, batch, mean, weighted):
    random = np.random.default_rng(3)
    batches = []
    for _ in range(8):
        lengths = random.geometric(1 / (1 + mean), batch) - 1
        ids = torch.from_numpy(random.integers(0, rows, lengths.sum()))
        weights = torch.from_numpy(random.uniform(0.5, 1.5, lengths.sum()).astype(np.float32)) if weighted else None
        offsets = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]))
        batches.append([t if t is None else t.to(args.device) for t in (ids, offsets, weights)])
    return batches


def launched_us(rows, dim, batch, mean, pooling, weighted):
    bag = torch.nn.EmbeddingBag(rows, dim, mode=pooling, sparse=pooling != "max", include_last_offset=True,
                                device=args.device)
    optimizer = torch.optim.SGD(bag.parameters(), lr=1e-3)
    batches = make_batches(rows, batch, mean, weighted)

    def step(i):
        ids, offsets, weights = batches[i % len(batches)]
        optimizer.zero_grad()
        bag(ids, offsets, weights).mean().backward()
        optimizer.step()

    return elapsed_us(step)


def graph_us(rows, dim, batch, mean, pooling, weighted):
    """Dense gradients, as sparse ones cannot be captured; a graph a batch, since lengths differ."""
    bag = torch.nn.EmbeddingBag(rows, dim, mode=pooling, include_last_offset=True, device="cuda")
    optimizer = torch.optim.SGD(bag.parameters(), lr=1e-3, foreach=True)
    graphs = []
    for ids, offsets, weights in make_batches(rows, batch, mean, weighted)[:2]:
        def step():
            optimizer.zero_grad(set_to_none=True)
            bag(ids, offsets, weights).mean().backward()
            optimizer.step()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graphs.append(graph)
    return elapsed_us(lambda i: graphs[i % len(graphs)].replay())


def torch_us(*case):
    found = {"launched": launched_us(*case)}
    if args.device == "cuda":
        try:
            found["graph"] = graph_us(*case)
        except RuntimeError:  # an op that cannot be captured
            pass
    way = min(found, key=found.get)
    return found[way], way


def ours_us(rows, dim, batch, mean, pooling, weighted):
    command = [args.bench, "--device", args.device, "--rows", str(rows), "--dim", str(dim), "--batch", str(batch), "--mean",
               str(mean), "--pooling", pooling, "--steps", str(args.steps), "--rounds", "1"]
    said = subprocess.run(command + (["--weighted"] if weighted else []), check=True, capture_output=True, text=True).stdout
    return json.loads(said)["cpu_us" if args.device == "cpu" else "us"]


for case in [(1_000_000, 16, 4096, 10, "sum", False), (1_000_000, 16, 4096, 10, "mean", False),
             (1_000_000, 16, 4096, 10, "sum", True), (1_000_000, 64, 4096, 10, "sum", False),
             (1_000_000, 16, 512, 100, "sum", False), (100_000, 16, 4096, 10, "max", False)]:
    ours, theirs, way = [], [], ""
    for _ in range(args.rounds):
        ours.append(ours_us(*case))
        us, way = torch_us(*case)
        theirs.append(us)
    print(json.dumps({"bench": "bags", "device": args.device, "case": case, "braid_us": round(statistics.median(ours), 1),
                      "torch_us": round(statistics.median(theirs), 1), "way": way,
                      "ratio": round(statistics.median(a / b for a, b in zip(ours, theirs)), 3)}), flush=True)
