#!/usr/bin/env python3
"""How long an epoch takes where one of three workers is slow, by input.shard.

usage: slow_worker.py [--braid BINARY] [--turns N] [--kernel MICROSECONDS] [--times N] --data-dir DIR

Trains dlrm for an epoch of DIR (the rows of `braid data criteo`) with three workers of one thread and one server under
PS with consistency ASP, on the CPU: with shards ALL, ROWS and DYNAMIC, in turn. Each primitive of oneDNN sleeps so many
microseconds, N times as many in worker 2 (the library that tests/integration/slow_down.cc makes). A worker mostly sleeps,
so other work on the machine counts little. Prints a JSON line a shard, medians over turns: seconds until the last worker
has made its last step, the batches of each worker, and the AUC.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKERS = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--slow-down", default=os.path.join(ROOT, "build/release/tests/integration/libbraid_slow_down.so"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kernel", type=int, default=2000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--data-dir", required=True)
    return parser.parse_args()


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def run(args, shard):
    addresses = free_addresses(WORKERS + 1)
    cluster = {"worker": addresses[:WORKERS], "ps": addresses[WORKERS:]}
    command = [args.braid, "train", "--job", os.path.join(ROOT, "examples/jobs/dlrm_criteo.pbtxt"),
               "--data-dir", args.data_dir, "--device", "cpu"]
    for key, value in {"input.shard": shard, "input.global_batch_size": 64 * WORKERS, "strategy.kind": "PS",
                       "strategy.consistency": "ASP", "runtime.intra_op_threads": 1, "streams.policy": "NONE",
                       "streams.count": 1, "evaluation.enabled": "true"}.items():
        command += ["--set", f"{key}={value}"]
    tasks = []
    for kind, index in [("ps", 0)] + [("worker", w) for w in range(WORKERS)]:
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        slow = args.kernel * (args.times if (kind, index) == ("worker", WORKERS - 1) else 1)
        more = {"LD_PRELOAD": args.slow_down, "SLOW_KERNELS": str(slow)} if kind == "worker" else {}
        tasks.append(subprocess.Popen(command, env={**os.environ, **more, "TF_CONFIG": config}, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True))
    outputs = [task.communicate()[0] for task in tasks]
    if any(task.returncode for task in tasks):
        raise SystemExit("exit codes: %s" % [task.returncode for task in tasks])
    return [json.loads(re.search(r"result: (\{.*\})", output).group(1)) for output in outputs[1:]]


def main():
    args = arguments()
    samples = {shard: [] for shard in ("ALL", "ROWS", "DYNAMIC")}
    for _ in range(args.turns):
        for shard in samples:
            samples[shard].append(run(args, shard))
    for shard, turns in samples.items():
        print(json.dumps({
            "bench": "slow_worker", "shard": shard, "times_slower": args.times,
            "epoch_s": round(statistics.median(max(w["seconds"] for w in turn) for turn in turns), 2),
            "batches": [statistics.median(turn[w]["steps"] for turn in turns) for w in range(WORKERS)],
            "auc": statistics.median(turn[0].get("auc", 0) for turn in turns)}), flush=True)


if __name__ == "__main__":
    main()
