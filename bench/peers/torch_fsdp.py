#!/usr/bin/env python3
"""PyTorch's DDP and FSDP (fully_shard) on the perceptron of bench/method_jobs.py: step time and peak memory.

usage: torch_fsdp.py [--workers N] [--layers N] [--width N] [--batch N] [--steps N] [--device cuda|cpu] [--ways WAY,...]

Layers of `--width` with ReLU, a head of 10 classes, SGD with momentum, float32, a GPU a process over NCCL (gloo with --device
cpu). Ways: DDP, FSDP (each layer is a unit that is resharded behind its forward pass: ZeRO 3), FSDP_KEEP (not resharded: ZeRO
2). Prints a JSON line a way; peak memory is what PyTorch has allocated on the first GPU.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ways", default="DDP,FSDP_KEEP,FSDP")
    return parser.parse_args()


def model_of(args, way, device):
    layers = [nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(args.layers)]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(device)
    if way == "DDP":
        return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    for layer in layers:
        fully_shard(layer, reshard_after_forward=way == "FSDP")
    return fully_shard(model, reshard_after_forward=way == "FSDP")


def worker(rank, args, way, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    on_gpu = args.device == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=args.workers)
    model = model_of(args, way, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    x = torch.rand(args.batch // args.workers, args.width, device=device)
    y = torch.randint(10, (args.batch // args.workers,), device=device)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    wait = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(3):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(args.steps):
        step()
    wait()
    seconds = (time.perf_counter() - start) / args.steps
    if rank == 0:
        print(json.dumps({"bench": "torch_fsdp", "way": way, "workers": args.workers,
                          "examples_per_s": round(args.batch / seconds), "ms": round(1000 * seconds, 2),
                          "peak_mib": torch.cuda.max_memory_allocated() >> 20 if on_gpu else None}), flush=True)
    dist.destroy_process_group()


def main():
    args = arguments()
    for turn, way in enumerate(args.ways.split(",")):
        mp.spawn(worker, args=(args, way, 29700 + turn), nprocs=args.workers)


if __name__ == "__main__":
    main()
