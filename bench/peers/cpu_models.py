#!/usr/bin/env python3
"""The training step of each model of examples/jobs beside the same step in PyTorch and in TensorFlow on the CPU.

usage: cpu_models.py [--pytorch PYTHON] [--tensorflow PYTHON] [--check] [--threads N] [--steps N] [--cpu-time] and the
options of bench/models.py

Needs numpy; a framework that its Python cannot import is left out, and a line says so.
python3 -m venv V && V/bin/pip install torch tensorflow-cpu numpy, then V/bin/python bench/peers/cpu_models.py.

First the results are verified: the model is exported, its variables' initial values are read with `braid graph run`, and
each framework must give the same loss from them on the same batch (relative difference below 1e-4); --check stops there.
Then all train the job's batches with the job's optimizer, in turn, --repeat times, on the same number of threads. Ours is
`braid train`, whose input stage makes batches beside the step; the others' batches lie ready in memory. PyTorch runs
eagerly, TensorFlow a tf.function. Criteo rows are the same for all; other columns are drawn for the peers like the
generator's. --cpu-time is for a machine that does other work: a second is then one that the process spent on a core, ours,
with the input stage's, as the difference between two runs, one of which has so many steps more. A JSON line a model: medians
of examples/s, and of ours over theirs.
"""
import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import models as ours  # noqa: E402

try:
    import numpy as np
except ImportError as missing:
    print(json.dumps({"left_out": f"no numpy here ({missing})"}))
    sys.exit(0)

from peer_process import PeerProcess  # noqa: E402

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
    # One size for all tables here, where a job has one for each of its columns.
    words = len(re.findall(r"\bvocabulary: ", text)) + 1
    buckets = int(number("hash_buckets") or max([words, *map(int, re.findall(r"\bbuckets: (\d+)", text))]))
    flags += ["--hash-buckets", str(buckets)]
    for field in ("embedding_dim", "classes"):
        if number(field) is not None:
            flags += ["--" + field.replace("_", "-"), str(int(number(field)))]
    for column, size in COLUMNS.get(name, {}).items():
        flags += ["--column", f"{column}={size}"]
    return {"batch": int(number("global_batch_size")), "buckets": buckets,
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
        self._braid("run", self.file, "--untrained", "--streams", "2", *arguments)
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


class Comparison:
    """One model in all frameworks that are here, from the same values on the same batches."""

    def __init__(self, args, name, folder, peers):
        self.args, self.name, self.folder, self.peers = args, name, folder, peers
        self.settings = job_settings(name)
        self.exported = Exported(args, name, self.settings, folder)
        self.settings["trainable"] = [label for label, trainable in self.exported.variables if trainable]

    def _save(self, label, arrays):
        file = os.path.join(self.folder, label + ".npz")
        np.savez(file, **arrays)
        return file

    def load(self, batches):
        """For each framework the relative difference of its loss from ours, after all have the model."""
        check = draw(self.name, self.exported.columns, CHECK_ROWS, self.settings, np.random.default_rng(1))
        values, expected = self.exported.values(check)
        request = {"load": self.name, "settings": self.settings, "values": self._save("values", values),
                   "batches": [self._save(f"batch{i}", batch) for i, batch in enumerate(batches)]}
        check_file, differences = self._save("check", check), {}
        for framework, peer in self.peers.items():
            peer.ask(**request)
            found = peer.ask(loss=check_file)["loss"]
            differences[framework] = abs(found - expected) / abs(expected)
            if not differences[framework] < 1e-4:
                raise RuntimeError(f"{self.name}: the loss of {framework} is {found}, ours is {expected}: these "
                                   "are two models")
        return differences

    def batches(self, criteo):
        if ours.JOBS[self.name][1] == "criteo":
            return criteo_batches(os.path.join(criteo, "train.tsv"), self.settings)
        rng = np.random.default_rng(2)
        return [draw(self.name, self.exported.columns, self.settings["batch"], self.settings, rng)
                for _ in range(READY_BATCHES)]

    def train(self, data, steps):
        """Examples/s by the clock, and the CPU seconds of the whole run."""
        overrides = [f"steps={steps}", "evaluation.enabled=false", f"runtime.intra_op_threads={self.args.threads}",
                     "runtime.device=CPU"]
        if self.args.cpu_time:
            overrides += ["streams.policy=NONE", "streams.count=1"]  # AUTO would measure in the first of the steps
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rate = ours.train(self.args, self.name, data, overrides)["examples_per_second"]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return rate, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def own_rate(self, data, steps):
        if not self.args.cpu_time:
            return self.train(data, steps)[0]
        few = max(1, steps // 10)
        seconds = self.train(data, steps + few)[1] - self.train(data, few)[1]
        return steps * self.settings["batch"] / seconds

    def rates(self, data, steps):
        """Lists of examples/s, taken in turn: "braid" and each framework."""
        found = {framework: [] for framework in ["braid", *self.peers]}
        for _ in range(self.args.repeat):
            found["braid"].append(self.own_rate(data, steps))
            for framework, peer in self.peers.items():
                seconds = peer.ask(steps=steps)["cpu" if self.args.cpu_time else "clock"]
                found[framework].append(steps * self.settings["batch"] / seconds)
        return found


def compare(args, name, folder, criteo, peers):
    data = ours.data_folder(name, args, criteo)
    if not os.path.isdir(data):
        return {"left_out": f"no data in {data}"}
    comparison = Comparison(args, name, folder, peers)
    differences = comparison.load([] if args.check else comparison.batches(criteo))
    line = {framework: {"loss_difference": float(f"{difference:.1e}")}
            for framework, difference in differences.items()}
    if args.check:
        return line
    steps = args.steps or (20 if name == "resnet18" else 300)
    found = comparison.rates(data, steps)
    for framework in peers:
        ratios = [a / b for a, b in zip(found["braid"], found[framework])]
        line[framework].update(examples_per_second=round(statistics.median(found[framework])),
                               ratio=round(statistics.median(ratios), 2), ratio_min=round(min(ratios), 2),
                               ratio_max=round(max(ratios), 2))
    return {"examples_per_second": round(statistics.median(found["braid"])), **line, "repeats": args.repeat,
            "batch": comparison.settings["batch"], "steps": steps}


def start_peers(args, folder):
    """Those frameworks that can be imported; a line for each of the others."""
    peers, versions = {}, {}
    for framework, module, python in (("pytorch", "torch_models", args.pytorch),
                                      ("tensorflow", "tf_models", args.tensorflow)):
        peer = PeerProcess(python, module, args.threads, folder)
        if peer.missing:
            print(json.dumps({"left_out": f"no {framework} for {python} ({peer.missing})"}), flush=True)
            peer.close()
        else:
            peers[framework], versions[framework] = peer, peer.version
    return peers, versions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ours.add_arguments(parser)
    parser.add_argument("--pytorch", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--tensorflow", default=sys.executable, help="the Python that has TensorFlow")
    parser.add_argument("--check", action="store_true", help="compare losses only")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the CPU instead of the clock")
    parser.add_argument("--steps", type=int, default=0, help="of a timed run; default 300, resnet18 20")
    args = parser.parse_args()
    names = ours.chosen_models(args)
    with tempfile.TemporaryDirectory() as folder:
        peers, versions = start_peers(args, folder)
        if not peers:
            return 0
        criteo = os.path.join(folder, "criteo")
        if any(ours.JOBS[name][1] == "criteo" for name in names):
            ours.make_criteo(args, criteo)
        for name in names:
            print(json.dumps({"model": name, **compare(args, name, folder, criteo, peers),
                              "threads": args.threads, "seconds_of": "cpu" if args.cpu_time else "clock",
                              "versions": versions, "machine": platform.machine()}), flush=True)
        for peer in peers.values():
            peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
