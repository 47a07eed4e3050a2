"""Graphs of TensorFlow 1, Keras and PyTorch trained by Braid and by the framework that made them, beside each other.

    python3 -m venv V && V/bin/pip install tensorflow-cpu torch
    PYTHONPATH=build/release/python V/bin/python tests/integration/train_any_graph/oracle.py --braid build/release/cli/braid

Each program (tf1_programs.py, keras_programs.py, torch_programs.py) is exported with its first values and 20 batches, trained
by its framework on one thread, and by `braid train` from the exported file: alone with gradients that Braid makes (REDO),
alone with those of the graph (KEEP, where the program has a train_op), and by two workers (ALLREDUCE; PS with one server,
BSP); with each of five optimizers. Losses of all steps must agree within 1e-5 relative, final variables within 1e-4 of each
variable's largest value. Programs that cannot be trained (refused_programs.py) must be refused in words. Prints tables in
Markdown, in which the largest differences over the optimizers are; exit 1 when a program is beyond that.
--framework torch for PyTorch's programs, which need the Python module. --only NAME,NAME, --optimizers KIND,KIND, --keep DIR.
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
except ImportError:
    print("NumPy is not installed")
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


def ways_of(program, exported, optimizer):
    """(column, settings, cluster) of each way of training."""
    keep = ["model.graph.gradients=KEEP", f"model.graph.train_op={exported.train_op}"]
    ways = [("LOCAL", [], None)] if "REDO" in program.ways else []
    if exported.train_op:
        ways.append(("KEEP", keep, None))
    if not program.parallel:
        return ways
    ways.append(("ALLREDUCE", ["strategy.kind=ALLREDUCE"], {"worker": 2, "ps": 0}))
    # Tables that begin with a file's values are dense on servers, which refuse optimizers that would move all rows.
    if not program.tables or optimizer in ("SGD", "ADAGRAD"):
        ways.append(("PS", ["strategy.kind=PS"], {"worker": 2, "ps": 1}))
        if exported.train_op:
            ways.append(("KEEP", [*keep, "strategy.kind=PS"], {"worker": 2, "ps": 1}))
    return ways


def compare(braid, program, optimizer, folder):
    """For each way of training: its column, the largest difference of a loss, of a variable, and what is wrong."""
    exported = program.export(folder, optimizer)
    for i, (column, settings, cluster) in enumerate(ways_of(program, exported, optimizer)):
        try:
            losses, values = run_braid(braid, exported.job, folder / f"{i}_{column}", settings, cluster)
            of_losses = float(np.max(np.abs(losses - exported.losses) / np.maximum(np.abs(exported.losses), 1e-3)))
            of_variables, where = largest_difference(values, exported.variables)
            good = of_losses <= getattr(program, "loss_limit", LOSS_LIMIT) and of_variables <= VARIABLE_LIMIT
            yield column, of_losses, of_variables, "" if good else f"beyond the limits, most at '{where}'"
        except Exception as error:  # noqa: BLE001: one program must not end the others
            yield column, float("nan"), float("nan"), str(error)


COLUMNS = ("LOCAL", "KEEP", "ALLREDUCE", "PS")


def row_of(braid, program, optimizers, root):
    """Trains a program with all optimizers and prints its row; the number of ways that are beyond the limits."""
    worst, variables, bad = {}, 0.0, 0
    refused = [f"KEEP: {program.no_keep}"] if getattr(program, "no_keep", "") else []
    for optimizer in optimizers:
        why = program.refuses(optimizer)
        if why:
            refused.append(f"{optimizer}: {why}")
            continue
        try:
            for column, of_losses, of_variables, wrong in compare(braid, program, optimizer, root / program.name / optimizer):
                worst[column] = max(worst.get(column, 0.0), of_losses) if of_losses == of_losses else float("nan")
                variables = max(variables, of_variables) if of_variables == of_variables else float("nan")
                if wrong:
                    bad += 1
                    print(f"{program.name}, {optimizer}, {column}: {of_losses:.1e} {of_variables:.1e} {wrong}", file=sys.stderr, flush=True)
        except Exception as error:  # noqa: BLE001
            bad += 1
            print(f"{program.name}, {optimizer}: {error}", file=sys.stderr, flush=True)
    cells = [f"{worst[column]:.0e}" if column in worst else "" for column in COLUMNS]
    print(f"| {program.name} | {program.form} | {' | '.join(cells)} | {variables:.0e} | {'; '.join(refused)} |", flush=True)
    return bad


def programs_of(framework):
    """Programs to train and to refuse. One framework a process: those of PyTorch and TensorFlow bring two LLVMs."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    try:
        if framework == "torch":
            import torch
            torch.set_num_threads(1)
            import torch_programs
            return torch_programs.PROGRAMS, []
        import tensorflow
    except ImportError as error:
        print(f"{framework} is not there ({error}): python3 -m venv V && V/bin/pip install tensorflow-cpu torch, then "
              f"V/bin/python {sys.argv[0]}; PyTorch's programs need the Python module, too")
        sys.exit(77)
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    import keras_more_programs
    import keras_programs
    import refused_programs
    import tf1_control
    import tf1_odd
    import tf1_programs
    import tf1_ranking
    trained = [*tf1_programs.PROGRAMS, *tf1_ranking.PROGRAMS, *tf1_odd.PROGRAMS, *tf1_control.PROGRAMS, *keras_programs.PROGRAMS,
               *keras_more_programs.PROGRAMS]
    return trained, refused_programs.PROGRAMS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", required=True)
    parser.add_argument("--framework", choices=("tensorflow", "torch"), default="tensorflow")
    parser.add_argument("--only", default="")
    parser.add_argument("--optimizers", default="SGD,MOMENTUM,ADAGRAD,ADAM,FTRL")
    parser.add_argument("--keep", default="", help="a folder where the exported files stay")
    options = parser.parse_args()
    trained, refused = programs_of(options.framework)
    wanted = set(filter(None, options.only.split(",")))
    root = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="train_any_graph_"))
    optimizers = options.optimizers.split(",")
    bad = 0
    print(f"| program | file | {' | '.join(COLUMNS)} | variables | left out |\n|---|---|{'---|' * len(COLUMNS)}---|---|")
    for program in trained:
        if not wanted or program.name in wanted:
            bad += row_of(options.braid, program, optimizers, root)
    if refused:
        print("\n| program | is refused with |\n|---|---|")
    for program in refused:
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
