#!/usr/bin/env python3
"""Examples per second of each model of examples/jobs, as a user would run it.

usage: models.py [--braid BINARY] [--repeat N] [--fashion DIR] [--adult DIR] [--criteo-rows N] [--only NAME,...]

Runs `braid train` on one process, the models in turn, N times over (interleaved, so that a slow minute of the machine
hits all alike), and prints a JSON line a model: median, smallest and largest examples/s of the step loop, and the
quality that the run reached. Criteo rows are generated into a temporary folder, and their AUC ceiling stands beside the
AUC. Without a data set a model is left out, and the line says so.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# model: (job file, which data, overrides)
JOBS = {
    "linear_regression": ("linear_regression.pbtxt", None, []),
    "mlp": ("fashion_mnist_mlp.pbtxt", "fashion", ["steps=1000"]),
    "cnn": ("fashion_mnist_cnn.pbtxt", "fashion", ["steps=500"]),
    "resnet18": ("fashion_mnist_resnet18.pbtxt", "fashion", ["steps=20", "evaluation.enabled=false"]),
    "wide_deep": ("wide_deep_adult.pbtxt", "adult", []),
    "dlrm": ("dlrm_criteo.pbtxt", "criteo", []),
    "deepfm": ("deepfm_criteo.pbtxt", "criteo", []),
    "dcn_v2": ("dcn_v2_criteo.pbtxt", "criteo", []),
    "mmoe": ("mmoe_generated.pbtxt", None, ["epochs=10"]),
    "din": ("din_generated.pbtxt", None, ["epochs=5"]),
    "hstu": ("hstu_generated.pbtxt", None, []),
    "transformer": ("transformer_generated.pbtxt", None, []),
}
QUALITY = ("accuracy", "auc", "auc_of_tasks", "loss")


def add_arguments(parser):
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--fashion", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--adult", default=os.path.join(ROOT, "../shared/data/uci_adult"))
    parser.add_argument("--criteo-rows", type=int, default=200000)
    parser.add_argument("--only", default="", help="models, separated by commas")


def chosen_models(args):
    names = [name for name in args.only.split(",") if name] or list(JOBS)
    for name in names:
        if name not in JOBS:
            sys.exit(f"--only: there is no model '{name}'; the models are: {', '.join(JOBS)}")
    return names


def job_path(name):
    return os.path.join(ROOT, "examples/jobs", JOBS[name][0])


def make_criteo(args, folder):
    """Rows in `folder`; the AUC that no model can pass on the test rows."""
    made = subprocess.run([args.braid, "data", "criteo", "--rows", str(args.criteo_rows), "--out", folder],
                          check=True, capture_output=True, text=True)
    return float(made.stdout.split()[-1])


def data_folder(name, args, criteo):
    return {None: ".", "fashion": args.fashion, "adult": args.adult, "criteo": criteo}[JOBS[name][1]]


def train(args, name, data, overrides):
    """The result line of a run."""
    command = [args.braid, "train", "--job", job_path(name), "--data-dir", data]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: "))


def watch(command, settings, limit, progress="lines"):
    """Adds --set of each setting to `command` and runs it: exit code, output, log, when how many steps were done."""
    for setting in settings:
        command += ["--set", setting]
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(
            ["timeout", str(limit), *command], stdout=out, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "BRAID_PROGRESS": progress}) as process:
        said, done = [], []
        for line in process.stderr:
            said.append(line)
            if at := re.search(r"step (\d+)/\d+", line):
                done.append((time.monotonic(), int(at.group(1))))
        code = process.wait()
        out.seek(0)
        return code, out.read(), said, done


def us_a_step(done, first):
    """From the progress lines at step `first` and later; None where there are not two."""
    later = [(at, step) for at, step in done if step >= first]
    if len(later) < 2 or later[-1][1] == later[0][1]:
        return None
    return 1e6 * (later[-1][0] - later[0][0]) / (later[-1][1] - later[0][1])


def timed_run(command, settings, steps):
    """Runs a job of `steps` steps: us a step of the later three quarters and the share of waiting for input, as a line has
    them; its result, and all that it said. Ends this process where the run fails."""
    code, text, said, done = watch(command, settings, 120)
    result = re.search(r"result: (\{.*\})", text)
    us = us_a_step(done, steps // 4)
    if code != 0 or not result or us is None:
        sys.exit(f"{' '.join(command)}: exit code {code}\n{''.join(said)[-3000:]}")
    result = json.loads(result.group(1))
    return ({"files_us": round(us, 1), "wait": round(result["input_wait_seconds"] / result["seconds"], 3)}, result,
            text + "".join(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    args = parser.parse_args()
    names = chosen_models(args)
    results = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as criteo:
        ceiling = make_criteo(args, criteo) if any(JOBS[name][1] == "criteo" for name in names) else None
        for _ in range(args.repeat):
            for name in names:
                data = data_folder(name, args, criteo)
                if os.path.isdir(data):
                    results[name].append(train(args, name, data, JOBS[name][2]))
        for name in names:
            if not results[name]:
                print(json.dumps({"model": name, "left_out": f"no data in {data_folder(name, args, criteo)}"}))
                continue
            rates = [r["examples_per_second"] for r in results[name]]
            last = results[name][-1]
            print(json.dumps({"model": name, "examples_per_second": round(statistics.median(rates)),
                              "min": round(min(rates)), "max": round(max(rates)), "repeats": len(rates),
                              **{k: last[k] for k in QUALITY if k in last},
                              **({"auc_ceiling": ceiling} if JOBS[name][1] == "criteo" else {}),
                              "cores": os.cpu_count(), "machine": platform.machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
