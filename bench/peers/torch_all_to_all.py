"""Bus bandwidth of torch.distributed's all-to-all over NCCL by size: launched, and as a captured graph.

The peer of bench/gpu/collectives.cc, with its rounds. Run: torchrun --nproc_per_node=N torch_all_to_all.py
"""
import os
import statistics

import torch
import torch.distributed as dist

ROUNDS, OPERATIONS, WARM = 5, 20, 5


def measure(operation):
    for _ in range(WARM):
        operation()
    rounds = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        for _ in range(OPERATIONS):
            operation()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) * 1e3 / OPERATIONS)
    return statistics.median(rounds)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    for power in (10, 14, 18, 20, 22, 24, 26, 28, 30):
        data = torch.ones(2**power // 4, device="cuda")
        other = torch.empty_like(data)

        def exchange():
            dist.all_to_all_single(other, data)

        times = {"launched": measure(exchange)}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            exchange()
        times["graph"] = measure(graph.replay)
        if rank == 0:
            for way, us in times.items():
                print(f"torch alltoall n={size} bytes={2**power} {way:<8} us={us:.1f} "
                      f"busbw={2**power / us / 1e3 * (size - 1) / size:.1f} GB/s", flush=True)
        del graph
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
