"""Graphs of TensorFlow 1 and Keras trained by Braid and by TensorFlow, beside each other.

    python3 -m venv V && V/bin/pip install tensorflow-cpu
    V/bin/python tests/integration/train_any_graph/oracle.py --braid build/release/cli/braid

Each program (tf1_programs.py, keras_programs.py) is exported with its first values and 20 batches, trained by TensorFlow
on one thread, and by `braid train` from the exported file: alone with gradients that Braid makes (REDO), alone with those of
the graph (KEEP, where the program has a train_op), and by two workers (ALLREDUCE; PS with one server, BSP). Losses of all
steps must agree within 1e-5 relative, final variables within 1e-4 of each variable's largest value. Programs that cannot be
trained (refused_programs.py) must be refused in words. Prints tables in Markdown; exit 1 when a program is beyond that.
--only NAME,NAME, --keep DIR.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

try:
    import numpy as np
    import tensorflow
except ImportError:
    print(f"TensorFlow is not installed: python3 -m venv V && V/bin/pip install tensorflow-cpu, then V/bin/python {sys.argv[0]}")
    sys.exit(77)

LOSS_LIMIT, VARIABLE_LIMIT = 1e-5, 1e-4


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_braid(braid, job, folder, settings, cluster=None):
    """The mean losses of the steps and the final variables."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [braid, "train", "--job", str(job), "--data-dir", str(job.parent)]
    everywhere = [
        f"metrics.steps_file={folder}/%r.steps",
        f"checkpoint.directory={folder}/checkpoints",
        "runtime.intra_op_threads=1",
        "runtime.device=CPU",
        "streams.policy=NONE",
        *settings,
    ]
    for setting in everywhere:
        command += ["--set", setting]
    tasks = [{}]
    if cluster:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(sum(cluster.values()))]
        spec = {"worker": addresses[: cluster["worker"]], "ps": addresses[cluster["worker"] :]}
        spec = {name: hosts for name, hosts in spec.items() if hosts}
        tasks = [
            {"TF_CONFIG": json.dumps({"cluster": spec, "task": {"type": name, "index": i}})}
            for name, hosts in spec.items()
            for i in range(len(hosts))
        ]
    processes = [
        subprocess.Popen(command, env={**os.environ, **task}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for task in tasks
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs):
        if process.returncode != 0:
            raise RuntimeError(output[-3000:])
    per_worker = [
        [json.loads(line)["loss"] for line in file.read_text().splitlines()] for file in sorted(folder.glob("*.steps"))
    ]
    exported = folder / "final.npz"
    subprocess.run([braid, "ckpt", "export", f"{folder}/checkpoints", "--out", str(exported)], check=True, capture_output=True)
    return np.mean(per_worker, axis=0), dict(np.load(exported))


def variable_of(values, name, shape):
    """A variable of a checkpoint, of a sparse table the rows that training has touched."""
    if name in values:
        return values[name].reshape(shape), None
    keys, rows = values.get(name + "@keys"), values.get(name + "@rows")
    return (None, None) if keys is None else (rows.reshape(len(keys), *shape[1:]), keys)


def largest_difference(values, expected):
    worst, where = 0.0, ""
    for name, truth in expected.items():
        found, keys = variable_of(values, name, truth.shape)
        if found is None:
            return float("inf"), f"{name} is missing"
        truth = truth if keys is None else truth[keys]
        difference = np.abs(found - truth).max() / max(np.abs(truth).max(), 1e-2) if truth.size else 0.0
        if difference > worst:
            worst, where = float(difference), name
    return worst, where


def compare(braid, program, folder):
    """A row of the table for each way of training it."""
    exported = program.export(folder)
    ways = [] if getattr(program, "clip", 0) else [("REDO", "LOCAL", [], None)]
    if exported.train_op:
        ways.append(("KEEP", "LOCAL", ["model.graph.gradients=KEEP", f"model.graph.train_op={exported.train_op}"], None))
    if program.parallel:
        ways.append(("REDO", "ALLREDUCE", ["strategy.kind=ALLREDUCE"], {"worker": 2, "ps": 0}))
    # Tables that begin with a file's values are dense on servers, which refuse optimizers that would move all rows.
    has_tables = any(isinstance(kind, int) and name != "label" for name, (_, kind) in program.columns.items())
    if program.parallel and (not has_tables or program.optimizer in ("SGD", "ADAGRAD")):
        ways.append(("REDO", "PS", ["strategy.kind=PS"], {"worker": 2, "ps": 1}))
        if exported.train_op:
            keep = ["model.graph.gradients=KEEP", f"model.graph.train_op={exported.train_op}"]
            ways.append(("KEEP", "PS", [*keep, "strategy.kind=PS"], {"worker": 2, "ps": 1}))
    for gradients, strategy, settings, cluster in ways:
        row = {"program": program.name, "format": exported.format, "optimizer": program.optimizer, "way": gradients, "strategy": strategy}
        try:
            losses, values = run_braid(braid, exported.job, folder / f"{gradients}_{strategy}", settings, cluster)
            row["losses"] = float(np.max(np.abs(losses - exported.losses) / np.maximum(np.abs(exported.losses), 1e-3)))
            row["variables"], row["where"] = largest_difference(values, exported.variables)
            row["good"] = row["losses"] <= LOSS_LIMIT and row["variables"] <= VARIABLE_LIMIT
        except Exception as error:  # noqa: BLE001: one program must not end the others
            row.update(losses=float("nan"), variables=float("nan"), good=False, error=str(error))
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", default="", help="a folder where the exported files stay")
    options = parser.parse_args()
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import keras_programs
    import refused_programs
    import tf1_programs

    wanted = set(filter(None, options.only.split(",")))
    root = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="train_any_graph_"))
    bad = 0
    print("| program | file | optimizer | gradients | strategy | losses | variables |")
    print("|---|---|---|---|---|---|---|")
    for program in [*tf1_programs.PROGRAMS, *keras_programs.PROGRAMS]:
        if wanted and program.name not in wanted:
            continue
        for row in compare(options.braid, program, root / program.name):
            bad += not row["good"]
            print("| {program} | {format} | {optimizer} | {way} | {strategy} | {losses:.1e} | {variables:.1e} |".format(**row), flush=True)
            if not row["good"]:
                print(row.get("error") or f"beyond the limits: {row['where']}", file=sys.stderr, flush=True)
    print("\n| program | is refused with |\n|---|---|")
    for program in refused_programs.PROGRAMS:
        if wanted and program.name not in wanted:
            continue
        file = program.export(root / program.name)
        checked = subprocess.run([options.braid, "graph", "check", str(file), "--train", "--loss", "loss", *program.flags],
                                 capture_output=True, text=True)
        answer = " ".join(line.strip() for line in checked.stdout.splitlines() if line.strip())
        if checked.returncode != 2 or program.says not in answer:
            bad += 1
            print(f"{program.name}: expected '{program.says}'", file=sys.stderr)
        print(f"| {program.name} | {answer} |", flush=True)
    if not options.keep:
        shutil.rmtree(root)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
