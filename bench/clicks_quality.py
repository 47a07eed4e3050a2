#!/usr/bin/env python3
"""How well clicks are predicted, beside scikit-learn, XGBoost and PyTorch.

usage: clicks_quality.py [--braid BINARY] [--rows N] [--valid-rows N] [--test-rows N] [--seeds 1,2,3] [--models NAME,...]
                         [--keep DIR]

Makes rows of clicks from a hidden model (clicks_data.py): numbers and categories with missing values, a list of any length,
a time stamp. Every model trains on the same training rows, takes the number of its rounds or epochs (and, of linear models,
its penalty) by the log loss of the same validation rows, and predicts the same test rows; a seed makes new rows, and new
first values. braid_*: jobs with vocabularies by frequency, buckets by quantile, parts of the time, a cross, scaling from
`braid data stats` and a ragged column. The peers are peers/clicks_models.py. AUC and log loss of all of them are computed
here, from the probabilities. Prints a JSON line a model and seed, then one a model with the means over seeds.

Needs numpy, and for the peers scikit-learn, xgboost and torch: who lacks one leaves it out with --models.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import clicks_data
import models

PEERS = ("sklearn_logistic", "sklearn_boosting", "xgboost", "torch_wide_deep")
COLUMNS = """
    columns { name: "age" kind: NUMERIC missing: 38 scaling: STANDARD }
    columns { name: "price" kind: NUMERIC missing: 20 log1p: true scaling: STANDARD }
    columns { name: "age_bucket" field: "age" kind: CATEGORICAL quantiles: 20 }
    columns { name: "price_bucket" field: "price" kind: CATEGORICAL quantiles: 20 }
    columns { name: "user" kind: CATEGORICAL vocabulary_file: "words/user.txt" buckets: 100 }
    columns { name: "item" kind: CATEGORICAL vocabulary_file: "words/item.txt" buckets: 100 }
    columns { name: "city" kind: CATEGORICAL vocabulary_file: "words/city.txt" buckets: 10 missing_word: "none" }
    columns { name: "device" kind: CATEGORICAL vocabulary_file: "words/device.txt" buckets: 2 }
    columns { name: "hour" field: "time" kind: CATEGORICAL time_part: HOUR }
    columns { name: "weekday" field: "time" kind: CATEGORICAL time_part: WEEKDAY }
    columns { name: "device_hour" kind: CATEGORICAL buckets: 2000 cross: "device" cross: "hour" }
    columns { name: "tags" kind: CATEGORICAL vocabulary_file: "words/tags.txt" buckets: 10 ragged: true pooling: MEAN }
    columns { name: "click" kind: LABEL }
"""
# The network of peers/clicks_models.py.
JOB = """
name: "clicks"
seed: %(seed)d
epochs: %(epochs)d
model { name: "%(model)s" %(layers)s embedding_dim: 8 embedding_init: 0.01 sparse_tables: true }
input {
  format: CSV
  train_files: "train.csv"
  test_files: "valid.csv"
  statistics_file: "stats.json"
  global_batch_size: 256
  csv { header: true }
  %(columns)s
}
optimizer { %(optimizer)s }
evaluation { metric: LOG_LOSS batch_size: 2048 every_steps: %(every)d early_stopping { patience: 3 } }
checkpoint { directory: "%(folder)s" }
metrics { progress_seconds: 3600 }
"""
LAYERS = "hidden: 64 hidden: 32"
ADAGRAD = "kind: ADAGRAD learning_rate: 0.01 initial_accumulator: 1e-5"
# name: (model, optimizer). braid_linear is the wide part alone.
BRAID = {**{f"braid_{model}": (model, ADAGRAD) for model in ("wide_deep", "dcn_v2", "dlrm")},
         "braid_linear": ("wide_deep", 'kind: FTRL learning_rate: 0.1 initial_accumulator: 1e-5 l2: 1e-4 '
                                       'group { match: "deep/.*" frozen: true }')}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(models.ROOT, "build/release/cli/braid"))
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--valid-rows", type=int, default=20000)
    parser.add_argument("--test-rows", type=int, default=50000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--models", default=",".join([*BRAID, *PEERS]))
    parser.add_argument("--epochs", type=int, default=8, help="at most, where training goes by epochs")
    parser.add_argument("--keep", default="", help="a folder for rows and predictions, which stay")
    return parser.parse_args()


def auc(labels, scores):
    """The share of ordered pairs; ties count half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = int(labels.sum())
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))


def log_loss(labels, probabilities):
    p = np.clip(probabilities.astype(np.float64), 1e-12, 1 - 1e-12)
    return float(-np.where(labels == 1, np.log(p), np.log(1 - p)).mean())


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600,
                          env={**os.environ, "BRAID_PROGRESS": "off", "OMP_NUM_THREADS": "1"}, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def prepare(args, folder, seed):
    """train.csv, valid.csv, test.csv, their statistics and vocabularies; the test rows' labels, and the best possible."""
    sizes = {"train": args.rows, "valid": args.valid_rows, "test": args.test_rows}
    rows, truth = clicks_data.make(sum(sizes.values()), seed)
    begin = 0
    for name, count in sizes.items():
        clicks_data.write(os.path.join(folder, f"{name}.csv"), rows, begin, begin + count)
        begin += count
    with open(os.path.join(folder, "stats.json"), "w", encoding="utf-8") as file:
        file.write(run([args.braid, "data", "stats", "train.csv", "--json", "--vocabularies", "words", "--list", "tags",
                        "--min-count", "3"],
                       cwd=folder))
    first = args.rows + args.valid_rows
    return rows["click"][first:], truth[first:]


def braid(args, name, folder, seed):
    checkpoints = os.path.join(folder, f"{name}_checkpoints")
    job = os.path.join(folder, f"{name}.pbtxt")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB % {"seed": seed, "epochs": args.epochs, "model": BRAID[name][0],
                          "optimizer": BRAID[name][1], "layers": LAYERS, "columns": COLUMNS,
                          "every": max(1, args.rows // 256 // 4), "folder": checkpoints})
    common = ["--job", job, "--data-dir", folder]
    trained = run([args.braid, "train", *common, "--device", "cpu"])
    result = json.loads(trained.strip().splitlines()[-1].removeprefix("result: "))
    best = result.get("best", {}).get("checkpoint") or checkpoints
    out = os.path.join(folder, f"{name}.npy")
    run([args.braid, "predict", *common, "--checkpoint", best, "--in", os.path.join(folder, "test.csv"), "--out", out])
    return np.load(out).reshape(-1), result["steps"]


def peer(args, name, folder, seed):
    out = os.path.join(folder, f"{name}.npy")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "clicks_models.py")
    said = run([sys.executable, script, "--folder", folder, "--model", name, "--seed", str(seed), "--epochs",
                str(args.epochs), "--out", out])
    return np.load(out).reshape(-1), json.loads(said.strip().splitlines()[-1])["rounds"]


def measure(args, names, folder, seed):
    labels, truth = prepare(args, folder, seed)
    yield "best_possible", auc(labels, truth), log_loss(labels, truth), 0
    for name in names:
        begin = time.monotonic()
        predicted, rounds = (braid if name in BRAID else peer)(args, name, folder, seed)
        if len(predicted) != len(labels) or not np.isfinite(predicted).all():
            sys.exit(f"{name}: {len(predicted)} predictions for {len(labels)} rows")
        seconds = time.monotonic() - begin
        print(json.dumps({"bench": "clicks_quality", "seed": seed, "model": name, "auc": round(auc(labels, predicted), 4),
                          "log_loss": round(log_loss(labels, predicted), 4),
                          "calibration": round(float(predicted.mean() / labels.mean()), 3), "rounds": rounds,
                          "seconds": round(seconds, 1)}), flush=True)
        yield name, auc(labels, predicted), log_loss(labels, predicted), seconds


def main():
    args = arguments()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in (*BRAID, *PEERS)]:
        sys.exit(f"--models: unknown: {', '.join(unknown)}")
    found = {}
    for seed in map(int, args.seeds.split(",")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = os.path.join(args.keep, str(seed)) if args.keep else temporary
            os.makedirs(folder, exist_ok=True)
            for name, *values in measure(args, names, folder, seed):
                found.setdefault(name, []).append(values)
    for name, values in found.items():
        aucs, losses, _ = zip(*values)
        spread = round(statistics.stdev(aucs), 4) if len(aucs) > 1 else None
        print(json.dumps({"bench": "clicks_quality", "model": name, "seeds": len(aucs),
                          "auc": round(statistics.mean(aucs), 4), "auc_deviation": spread,
                          "log_loss": round(statistics.mean(losses), 4)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
