"""ragged_attention_bench beside PyTorch on one CPU thread: rows of the same lengths, padded to the longest, with a matrix of all
scores, as the reference's PyTorch path has it (silu), or scaled_dot_product_attention row by row (softmax). Forward and
backward. Rounds are interleaved; times are CPU time, ratios the median of ours by theirs. A JSON line each.

    python3 bench/peers/torch_ragged_attention.py --bench build/release/bench/ragged_attention_bench
"""
import argparse
import json
import os
import statistics
import subprocess
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--bench", required=True)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
torch.set_num_threads(1)


def padded_silu(x, offsets, heads, dim):
    lengths = offsets.diff()
    longest = int(lengths.max())
    place = torch.arange(longest)
    there = place[None, :] < lengths[:, None]
    dense = x.new_zeros(len(lengths), longest, x.shape[1])
    dense[there] = x
    q, k, v = dense.view(len(lengths), longest, 3, heads, dim).permute(2, 0, 3, 1, 4)
    scores = F.silu(q @ k.transpose(2, 3) * dim ** -0.5) / longest
    scores = scores * (place[:, None] >= place[None, :])
    return (scores @ v).transpose(1, 2)[there].mean()


def softmax_by_row(x, offsets, heads, dim):
    parts = []
    for begin, end in zip(offsets.tolist(), offsets.tolist()[1:]):
        q, k, v = x[begin:end].view(end - begin, 3, heads, dim).permute(1, 2, 0, 3)
        parts.append(F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0].transpose(0, 1))
    return torch.cat(parts).mean()


def torch_us(offsets, heads, dim, activation, steps=3):
    x = torch.rand(offsets[-1], 3 * heads * dim) * 2 - 1
    x.requires_grad_()
    step = {"silu": padded_silu, "softmax": softmax_by_row}[activation]
    offsets = torch.tensor(offsets)
    step(x, offsets, heads, dim).backward()
    begin = time.process_time()
    for _ in range(steps):
        x.grad = None
        step(x, offsets, heads, dim).backward()
    return (time.process_time() - begin) / steps * 1e6


for batch, longest, heads, dim, activation in [(64, 64, 4, 32, "silu"), (8, 1024, 4, 32, "silu"), (4, 1024, 4, 128, "silu"),
                                               (8, 1024, 4, 32, "softmax"), (4, 1024, 4, 128, "softmax")]:
    ours, theirs = [], []
    for _ in range(args.rounds):
        command = [args.bench, "--batch", str(batch), "--longest", str(longest), "--heads", str(heads), "--dim", str(dim),
                   "--activation", activation, "--rounds", "1", "--steps", "3"]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours.append(said["cpu_us"])
        theirs.append(torch_us(said["offsets"], heads, dim, activation))
    ours_us, theirs_us = statistics.median(ours), statistics.median(theirs)
    print(json.dumps({"batch": batch, "longest": longest, "heads": heads, "dim": dim, "activation": activation,
                      "braid_us": round(ours_us), "torch_us": round(theirs_us), "ratio": round(ours_us / theirs_us, 2),
                      "torch": torch.__version__}), flush=True)
