#!/usr/bin/env python3
"""Examples per second of each model of examples/jobs, as a user would run it.

usage: models.py [--braid BINARY] [--repeat N] [--fashion DIR] [--adult DIR] [--only NAME,...]

Runs `braid train` on one process, the models in turn, N times over (interleaved, so that a slow minute of the machine
hits all alike), and prints a JSON line a model: median, smallest and largest examples/s of the step loop, and the
quality that the run reached. Criteo rows are generated into a temporary folder. Without a data set a model is left out,
and the line says so.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def jobs(args, scratch):
    """(model, job file, data folder, overrides)"""
    criteo = os.path.join(scratch, "criteo")
    return [
        ("linear_regression", "linear_regression.pbtxt", ".", []),
        ("mlp", "fashion_mnist_mlp.pbtxt", args.fashion, ["steps=1000"]),
        ("cnn", "fashion_mnist_cnn.pbtxt", args.fashion, ["steps=500"]),
        ("wide_deep", "wide_deep_adult.pbtxt", args.adult, []),
        ("dlrm", "dlrm_criteo.pbtxt", criteo, []),
    ]


def run(braid, job, data, overrides):
    command = [braid, "train", "--job", os.path.join(ROOT, "examples/jobs", job), "--data-dir", data]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: "))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--fashion", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--adult", default=os.path.join(ROOT, "../shared/data/uci_adult"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([args.braid, "data", "criteo", "--rows", "200000", "--out", os.path.join(scratch, "criteo")],
                       check=True, capture_output=True)
        chosen = [job for job in jobs(args, scratch) if not only or job[0] in only]
        results = {job[0]: [] for job in chosen}
        for _ in range(args.repeat):
            for name, job, data, overrides in chosen:
                if os.path.isdir(data):
                    results[name].append(run(args.braid, job, data, overrides))
        for name, _, data, _ in chosen:
            if not results[name]:
                print(json.dumps({"model": name, "left_out": f"no data in {data}"}))
                continue
            rates = [r["examples_per_second"] for r in results[name]]
            last = results[name][-1]
            print(json.dumps({"model": name, "examples_per_second": round(statistics.median(rates)),
                              "min": round(min(rates)), "max": round(max(rates)), "repeats": len(rates),
                              **{k: last[k] for k in ("accuracy", "auc", "loss") if k in last},
                              "cores": os.cpu_count(), "machine": platform.machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
