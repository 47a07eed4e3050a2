#!/usr/bin/env python3
"""How long workers on GPUs take to say that one of them was lost, and whom they name.

usage: lost_rank.py [--braid BINARY] [--workers 2,4] [--strategies ALLREDUCE,HYBRID] [--deadline S] [--device cuda|cpu]

Starts the workers of wide_deep as a cluster manager does, each with a TF_CONFIG, waits until they train, then kills the last
one (SIGKILL) or stops it (SIGSTOP), with strategy.deadline_seconds as --deadline says. A JSON line each: seconds from the
signal until the first and the last of the others has ended, their exit codes, and how many of them name the lost rank.
"""
import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import models  # noqa: E402


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(args, strategy, workers, folder):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    settings = [f"strategy.kind={strategy}", f"strategy.backend={'NCCL' if args.device == 'cuda' else 'RING'}",
                f"strategy.deadline_seconds={args.deadline}", "steps=100000000", "epochs=0", "evaluation.enabled=false",
                f"runtime.device={args.device.upper()}", "metrics.progress_seconds=0.05", "model.sparse_tables=true"]
    command = [args.braid, "train", "--job", os.path.join(models.ROOT, "examples/jobs/wide_deep_generated.pbtxt")]
    for setting in settings:
        command += ["--set", setting]
    processes = []
    for rank in range(workers):
        log = open(os.path.join(folder, f"{strategy}-{rank}.log"), "w+", encoding="utf-8")
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        processes.append((subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                           env={**os.environ, "TF_CONFIG": json.dumps(config), "BRAID_PROGRESS": "lines"}),
                          log))
    return processes


def text_of(log):
    log.seek(0)
    return log.read()


def lose(args, strategy, workers, name, folder):
    processes = start(args, strategy, workers, folder)
    try:
        begin = time.monotonic()
        while not re.search(r"step [1-9]\d*/", text_of(processes[0][1])):
            if time.monotonic() - begin > 60 or processes[0][0].poll() is not None:
                sys.exit(f"{strategy} on {workers} did not train:\n{text_of(processes[0][1])[-3000:]}")
            time.sleep(0.05)
        time.sleep(0.5)
        processes[-1][0].send_signal(signal.Signals[name])
        lost = time.monotonic()
        ends = {}
        while len(ends) < workers - 1 and time.monotonic() - lost < 4 * args.deadline + 30:
            for rank, (process, _) in enumerate(processes[:-1]):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = time.monotonic() - lost
            time.sleep(0.01)
        named = sum(bool(re.search(rf"rank {workers - 1}\b|worker[-: ]{workers - 1}\b", text_of(log)))
                    for _, log in processes[:-1])
        print(json.dumps({"bench": "lost_rank", "strategy": strategy, "workers": workers, "signal": name,
                          "deadline_s": args.deadline, "ended": len(ends), "first_s": round(min(ends.values(), default=-1), 1),
                          "last_s": round(max(ends.values(), default=-1), 1),
                          "codes": [process.poll() for process, _ in processes[:-1]], "named_by": named}), flush=True)
    finally:
        for process, log in processes:
            process.kill()
            process.wait()
            log.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(models.ROOT, "build/release/cli/braid"))
    parser.add_argument("--workers", default="2")
    parser.add_argument("--strategies", default="ALLREDUCE,HYBRID")
    parser.add_argument("--deadline", type=int, default=10)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for workers in map(int, args.workers.split(",")):
            for strategy in args.strategies.split(","):
                for name in ("SIGKILL", "SIGSTOP"):
                    lose(args, strategy, workers, name, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
