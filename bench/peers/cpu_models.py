#!/usr/bin/env python3
"""The training step of each model of examples/jobs beside the same step in PyTorch on the CPU.

usage: cpu_models.py [--check] [--threads N] [--steps N] and the options of bench/models.py

Needs PyTorch; without it, says so and ends with 0.  python3 -m venv V && V/bin/pip install torch numpy, then V/bin/python
bench/peers/cpu_models.py.

First the results are verified: the model is exported, its variables' initial values are read with `braid graph run`, and
PyTorch must give the same loss from them on the same batch (relative difference below 1e-4); --check stops there. Then both train the job's
batches with the job's optimizer, in turn, --repeat times, on the same number of threads. Ours is `braid train`, whose
input stage makes batches beside the step; PyTorch's batches lie ready in memory, and it runs eagerly. Criteo rows are the
same for both; other columns are drawn for PyTorch like the generator's. A JSON line a model: medians of examples/s and
their ratio.
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

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import models as ours  # noqa: E402

try:
    import numpy as np
    import torch

    import torch_models
except ImportError as missing:
    print(json.dumps({"left_out": f"no PyTorch here ({missing})"}))
    sys.exit(0)

CHECK_ROWS = 32
READY_BATCHES = 16
# Row shapes of the jobs' columns where they are not those that `braid graph export` takes by itself.
COLUMNS = {
    "wide_deep": {"dense": 5, "sparse": 8},
    "mmoe": {"dense": 3, "sparse": 3},
    "din": {"dense": 1, "sparse": 1, "history": 12},
    "transformer": {"tokens": 16},
}
CLASSES = {"mlp": 10, "cnn": 10, "resnet18": 10, "transformer": 4}


def job_settings(name):
    """What the job file says about model, batch and optimizer."""
    with open(ours.job_path(name)) as file:
        text = re.sub(r"^#.*$", "", file.read(), flags=re.M)

    def number(field):
        found = re.search(rf"\b{field}: ([-\d.e]+)", text)
        return float(found.group(1)) if found else None

    optimizer = {"kind": re.search(r"optimizer \{ kind: (\w+)", text).group(1)}
    for field in ("learning_rate", "initial_accumulator"):
        if number(field) is not None:
            optimizer[field] = number(field)
    flags = []
    hidden = re.findall(r"\bhidden: (\d+)", text)
    if hidden:
        flags += ["--hidden", ",".join(hidden)]
    for field in ("embedding_dim", "hash_buckets", "classes"):
        if number(field) is not None:
            flags += ["--" + field.replace("_", "-"), str(int(number(field)))]
    for column, size in COLUMNS.get(name, {}).items():
        flags += ["--column", f"{column}={size}"]
    return {"batch": int(number("global_batch_size")), "buckets": int(number("hash_buckets") or 0),
            "sparse": "sparse_tables: true" in text, "optimizer": optimizer, "flags": flags}


class Exported:
    """A model as `braid graph export` writes it: its columns, its variables, and what it computes."""

    def __init__(self, args, name, settings, folder):
        self.args, self.folder = args, folder
        self.file = os.path.join(folder, name + ".pbtxt")
        made = self._braid("export", "--model", name, "--out", self.file, *settings["flags"])
        self.loss = re.search(r"loss '([^']+)'", made).group(1)
        with open(self.file) as file:
            text = file.read()
        self.columns, self.variables = {}, []  # column: row shape; (name, trainable)
        for node in re.split(r"^node \{\n", text, flags=re.M)[1:]:
            op, label = (re.search(rf'^  {field}: "(.*)"', node, re.M).group(1) for field in ("op", "name"))
            if op == "Placeholder":
                dims = [int(d) for d in re.findall(r"size: (-?\d+)", node)]
                self.columns[label] = dims[1:]
            if op == "VarHandleOp":
                trainable = re.search(r'key: "_trainable"\s+value \{\s+b: true', node) is not None
                self.variables.append((label, trainable))
        reads = [f'node {{ name: "peer/read{i}" op: "ReadVariableOp" input: "{variable}" '
                 'attr { key: "dtype" value { type: DT_FLOAT } } }\n' for i, (variable, _) in enumerate(self.variables)]
        with open(self.file, "w") as file:
            file.write(text + "".join(reads))

    def _braid(self, *arguments):
        done = subprocess.run([self.args.braid, "graph", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def _npy(self, label):
        return os.path.join(self.folder, label.replace("/", "_") + ".npy")

    def run(self, batch, fetches):
        arguments = []
        for column, values in batch.items():
            np.save(self._npy(column), values)
            arguments += ["--feed", f"{column}={self._npy(column)}"]
        for fetch in fetches:
            arguments += ["--fetch", fetch, "--out", self._npy(fetch)]
        self._braid("run", self.file, "--streams", "2", *arguments)
        return [np.load(self._npy(fetch)) for fetch in fetches]

    def values(self, batch):
        """Initial values of all variables, and the loss of `batch` from them."""
        fetches = [f"peer/read{i}" for i in range(len(self.variables))] + [self.loss]
        *values, loss = self.run(batch, fetches)
        return dict(zip((label for label, _ in self.variables), values)), float(loss)


def draw(name, columns, rows, settings, rng):
    """A batch; categories are skewed to small ids as the generator's are."""
    batch = {}
    for column, shape in columns.items():
        size = [rows] + shape
        if column in ("sparse", "item", "history", "tokens"):
            ids = (rng.random(size) ** 2 * settings["buckets"]).astype(np.int64)
            batch[column] = ids
        elif name in CLASSES and column == "label":
            batch[column] = rng.integers(0, CLASSES[name], size)
        elif column in ("label", "click", "purchase"):
            batch[column] = (rng.random(size) < 0.5).astype(np.float32)
        else:
            batch[column] = rng.standard_normal(size).astype(np.float32)
    return batch


def criteo_batches(file, settings):
    """The first rows of a file in the Criteo layout."""
    need, batches = settings["batch"], []
    with open(file) as lines:
        for _ in range(READY_BATCHES):
            fields = [line.rstrip("\n").split("\t") for _, line in zip(range(need), lines)]
            batches.append({
                "label": np.array([float(f[0]) for f in fields], np.float32),
                "dense": np.log1p(np.array([[max(float(x or 0), 0) for x in f[1:14]] for f in fields], np.float32)),
                "sparse": np.array([[int(x or "0", 16) % settings["buckets"] for x in f[14:40]] for f in fields])})
    return batches


def to_torch(batch):
    """As PyTorch wants it: images [B, C, H, W] with channels last in memory."""
    made = {column: torch.from_numpy(values) for column, values in batch.items()}
    if "image" in made:
        made["image"] = made["image"].permute(0, 3, 1, 2)
    return made


class Peer:
    def __init__(self, name, settings, exported, values):
        self.p = {label: torch_models.parameter(torch.from_numpy(values[label]), trainable,
                                                settings["sparse"] and label.endswith("/table"))
                  for label, trainable in exported.variables}
        self.loss_of = torch_models.MODELS[name]
        self.optimizers = torch_models.optimizers(settings["optimizer"], self.p)

    def loss(self, batch):
        with torch.no_grad():
            return float(self.loss_of(self.p, batch))

    def rate(self, batches, steps, rows):
        """Examples per second of `steps` steps."""
        for batch in batches[:3]:
            torch_models.train_step(self.loss_of, self.p, self.optimizers, batch)
        begin = time.perf_counter()
        for step in range(steps):
            torch_models.train_step(self.loss_of, self.p, self.optimizers, batches[step % len(batches)])
        return steps * rows / (time.perf_counter() - begin)


def prepare(args, name, folder):
    """(settings, exported, peer) after PyTorch has given our loss."""
    settings = job_settings(name)
    exported = Exported(args, name, settings, folder)
    batch = draw(name, exported.columns, CHECK_ROWS, settings, np.random.default_rng(1))
    values, expected = exported.values(batch)
    peer = Peer(name, settings, exported, values)
    found = peer.loss({column: values for column, values in to_torch(batch).items()})
    difference = abs(found - expected) / abs(expected)
    if not difference < 1e-4:
        raise RuntimeError(f"{name}: PyTorch's loss is {found}, ours is {expected}: these are two models")
    return settings, exported, peer, difference


def compare(args, name, folder, criteo):
    data = ours.data_folder(name, args, criteo)
    if not os.path.isdir(data):
        return {"left_out": f"no data in {data}"}
    settings, exported, peer, difference = prepare(args, name, folder)
    line = {"loss_difference": float(f"{difference:.1e}")}
    if args.check:
        return line
    if ours.JOBS[name][1] == "criteo":
        batches = criteo_batches(os.path.join(criteo, "train.tsv"), settings)
    else:
        rng = np.random.default_rng(2)
        batches = [draw(name, exported.columns, settings["batch"], settings, rng) for _ in range(READY_BATCHES)]
    batches = [to_torch(batch) for batch in batches]
    steps = args.steps or (20 if name == "resnet18" else 300)
    overrides = [f"steps={steps}", "evaluation.disabled=true", f"runtime.intra_op_threads={args.threads}",
                 "runtime.device=CPU"]
    mine, theirs = [], []
    for _ in range(args.repeat):
        mine.append(ours.train(args, name, data, overrides)["examples_per_second"])
        theirs.append(peer.rate(batches, steps, settings["batch"]))
    ratios = [a / b for a, b in zip(mine, theirs)]
    return {**line, "examples_per_second": round(statistics.median(mine)),
            "pytorch": round(statistics.median(theirs)), "ratio": round(statistics.median(ratios), 2),
            "ratio_min": round(min(ratios), 2), "ratio_max": round(max(ratios), 2), "repeats": args.repeat,
            "batch": settings["batch"], "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ours.add_arguments(parser)
    parser.add_argument("--check", action="store_true", help="compare losses only")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=0, help="of a timed run; default 300, resnet18 20")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = ours.chosen_models(args)
    with tempfile.TemporaryDirectory() as folder:
        criteo = os.path.join(folder, "criteo")
        if any(ours.JOBS[name][1] == "criteo" for name in names):
            ours.make_criteo(args, criteo)
        for name in names:
            print(json.dumps({"model": name, **compare(args, name, folder, criteo), "threads": args.threads,
                              "torch": torch.__version__, "machine": platform.machine()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
