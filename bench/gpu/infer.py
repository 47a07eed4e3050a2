#!/usr/bin/env python3
"""Requests a second and latency of `braid infer` on a GPU: exported mmoe and dlrm, batches of 16 and 256, over 1, 2, 4
and 8 stream groups, with copies on streams of their own and merged into each group's launch stream. Medians of
interleaved rounds.

    bench/gpu/infer.py [--braid BINARY] [--rounds N] [--clients T] [--requests K]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUTPUTS = {"mmoe": ["click_task/Reshape_2", "purchase_task/Reshape_2"], "dlrm": ["Reshape_1"]}
BATCHES = (16, 256)
GROUPS = (1, 2, 4, 8)


def result(command):
    """The JSON object of a run's last line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: "))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1500, help="of each client")
    options = parser.parse_args()

    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in OUTPUTS:
            graph = os.path.join(folder, model + ".pb")
            subprocess.run([options.braid, "graph", "export", "--model", model, "--inference", "--out", graph],
                           check=True, capture_output=True)
            for batch in BATCHES:
                for groups in GROUPS:
                    for merged in (False, True):
                        command = [options.braid, "infer", "--device", "cuda", "--untrained", "--graph", graph, "--batch", str(batch),
                                   "--iters", str(options.requests), "--threads", str(options.clients),
                                   "--groups", str(groups), "--max-id", "1000"]
                        for output in OUTPUTS[model]:
                            command += ["--output", output]
                        runs[model, batch, groups, merged] = command + (["--merge-streams"] if merged else [])
        seen = {key: [] for key in runs}
        for _ in range(options.rounds):
            for key, command in runs.items():
                seen[key].append(result(command))

    print(f"{options.clients} clients; requests/s (lowest - highest round), p50 and p99 in ms")
    for (model, batch, groups, merged), rounds in seen.items():
        rate = [r["requests_per_second"] for r in rounds]
        p50, p99 = (statistics.median(r[name] for r in rounds) for name in ("p50_ms", "p99_ms"))
        copies = "merged" if merged else "own"
        print(f"{model} batch {batch:4} groups {groups} copies {copies:6} {statistics.median(rate):8.0f} "
              f"({min(rate):.0f} - {max(rate):.0f})  p50 {p50:.3f}  p99 {p99:.3f}")


if __name__ == "__main__":
    main()
