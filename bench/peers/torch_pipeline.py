#!/usr/bin/env python3
"""PyTorch's pipelining (torch.distributed.pipelining) on the perceptron of bench/pipeline_jobs.py.

usage: torch_pipeline.py [--stages N] [--micro-batches N,...] [--layers N] [--width N] [--batch N] [--steps N] [--device D]

Trains layers of `--width` with ReLU, a head of 10 classes, SGD with momentum, in float32: one process that accumulates over
the micro-batches, then `--stages` processes under Schedule1F1B, a GPU each over NCCL (gloo with --device cpu). Prints a JSON
line a way.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", default="4,8")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return parser.parse_args()


def layers_of(args):
    made = []
    for _ in range(args.layers):
        made += [nn.Linear(args.width, args.width), nn.ReLU()]
    return made + [nn.Linear(args.width, 10)]


def timed(args, device, step):
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(args.steps):
        step()
    wait()
    return (time.perf_counter() - start) / args.steps


def report(args, way, parts, seconds):
    print(json.dumps({"bench": "torch_pipeline", "way": way, "micro_batches": parts,
                      "examples_per_s": round(args.batch / seconds), "ms": round(1000 * seconds, 2)}), flush=True)


def alone(args, parts):
    device = torch.device(args.device)
    model = nn.Sequential(*layers_of(args)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    x = torch.rand(args.batch, args.width, device=device)
    y = torch.randint(10, (args.batch,), device=device)

    def step():
        optimizer.zero_grad()
        for a, b in zip(x.chunk(parts), y.chunk(parts)):
            (nn.functional.cross_entropy(model(a), b) / parts).backward()
        optimizer.step()

    report(args, "one process", parts, timed(args, device, step))


def stage(rank, args, parts, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device(args.device, rank) if args.device == "cuda" else torch.device("cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", rank=rank, world_size=args.stages)
    all_layers = layers_of(args)
    size = 2 * (args.layers // args.stages)
    last = rank == args.stages - 1
    model = nn.Sequential(*all_layers[rank * size:None if last else (rank + 1) * size]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    schedule = Schedule1F1B(PipelineStage(model, rank, args.stages, device), parts, loss_fn=nn.functional.cross_entropy)
    x = torch.rand(args.batch, args.width, device=device)
    y = torch.randint(10, (args.batch,), device=device)

    def step():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif last:
            schedule.step(target=y, losses=[])
        else:
            schedule.step()
        optimizer.step()

    seconds = timed(args, device, step)
    if last:
        report(args, f"{args.stages} stages", parts, seconds)
    dist.destroy_process_group()


def main():
    args = arguments()
    for turn, parts in enumerate(int(n) for n in args.micro_batches.split(",")):
        alone(args, parts)
        mp.spawn(stage, args=(args, parts, 29600 + turn), nprocs=args.stages)


if __name__ == "__main__":
    main()
