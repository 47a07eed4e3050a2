#!/usr/bin/env python3
"""PyTorch beside bench/memory_jobs.py: step time and peak memory of activation checkpointing and of saved tensors on the host.

usage: torch_memory.py [--model mlp|transformer] [--layers N] [--width N] [--batch N] [--length N] [--steps N]
                       [--precision tf32|bf16] [--ways WAY,...]

The same models, Adam (fused). Ways: PLAIN; CHECKPOINT (torch.utils.checkpoint, each layer); SAVE_ON_CPU
(torch.autograd.graph.save_on_cpu(pin_memory=True) around the forward pass). Prints a JSON line a way; peak memory is
torch.cuda.max_memory_allocated(), and step time is by events over all steps after warm-up.
"""
import argparse
import contextlib
import json

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    """Pre-norm, four heads, feed-forward of four times the width; without biases in attention, as the zoo's."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, length, width))
        return x + self.outer(torch.relu(self.inner(self.second(x))))


class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args, w = args, args.width
        if args.model == "mlp":
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(w, w), nn.ReLU()) for _ in range(args.layers))
        else:
            self.embed = nn.Embedding(66, w)
            self.layers = nn.ModuleList(Layer(w) for _ in range(args.layers))
        self.head = nn.Linear(w, 10)

    def forward(self, x, checkpoints):
        if self.args.model == "transformer":
            x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if checkpoints else layer(x)
        return self.head(x if self.args.model == "mlp" else x.mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["mlp", "transformer"], default="mlp")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=["tf32", "bf16"], default="tf32")
    parser.add_argument("--ways", default="PLAIN,CHECKPOINT,SAVE_ON_CPU")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    for way in args.ways.split(","):
        torch.cuda.empty_cache()
        torch.manual_seed(0)
        net = Net(args).cuda()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
        shape = (args.batch, args.width) if args.model == "mlp" else (args.batch, args.length)
        x = torch.rand(shape, device="cuda") if args.model == "mlp" else torch.randint(66, shape, device="cuda")
        y = torch.randint(10, (args.batch,), device="cuda")

        def step():
            optimizer.zero_grad(set_to_none=True)
            away = torch.autograd.graph.save_on_cpu(pin_memory=True) if way == "SAVE_ON_CPU" else contextlib.nullcontext()
            with away, torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16"):
                loss = nn.functional.cross_entropy(net(x, way == "CHECKPOINT"), y)
            loss.backward()
            optimizer.step()

        for _ in range(3):
            step()
        torch.cuda.reset_peak_memory_stats()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        steps = args.steps if way != "SAVE_ON_CPU" else max(3, args.steps // 4)
        begin.record()
        for _ in range(steps):
            step()
        end.record()
        torch.cuda.synchronize()
        print(json.dumps({"peer": "torch", "model": args.model, "way": way, "step_ms": round(begin.elapsed_time(end) / steps, 3),
                          "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1)}), flush=True)
        del net, optimizer, x, y


if __name__ == "__main__":
    main()
