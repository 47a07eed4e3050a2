#!/usr/bin/env python3
"""Training steps of the models of bench/peers/torch_graphs.py, imported from ONNX and trained from generated rows.

usage: graph_models.py --graphs FOLDER [--braid BINARY] [--rows 256,4096] [--models a,b] [--steps N] [--repeat N]
                       [--device CUDA] [--set FIELD=VALUE]...

FOLDER is what `torch_graphs.py export` has written. A turn is two runs, one of a quarter of the steps, whose difference
counts. Prints a JSON line a model and size: median us of a step, and the share of the longer run that waited for input.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = """seed: 5
streams { count: 8 policy: AUTO }
staging { capacity: 8 num_threads: 8 }
evaluation { enabled: false }
optimizer { kind: SGD learning_rate: 0.01 }
"""


def job(folder, name, model, rows):
    columns = ""
    for column, kind, shape, ids in model["columns"]:
        length = 1
        for size in shape:
            length *= size
        # Ids of a list begin at 1: id 0 fills it.
        kind = f"CATEGORICAL buckets: {ids - 1}" if kind == "id" else "NUMERIC"
        columns += f'  columns {{ name: "{column}" kind: {kind} length: {length} output: "{column}" }}\n'
    kind = "LABEL" if model["classes"] == 2 else f"CLASS buckets: {model['classes']}"
    file = os.path.join(os.path.abspath(folder), name + ".onnx")
    return (f'{HEAD}model {{ graph {{ file: "{file}" loss: "loss" prediction: "prediction" }} }}\ninput {{\n  format: GENERATOR\n'
            f'  generator {{ rows: {max(4 * rows, 8192)} }}\n{columns}  columns {{ name: "label" kind: {kind} }}\n}}\n')


def run(args, file, rows, steps):
    command = [args.braid, "train", "--job", file]
    for setting in [f"input.global_batch_size={rows}", f"steps={steps}", "epochs=0", f"runtime.device={args.device}", *args.set]:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    result = re.search(r"result: (\{.*\})", done.stdout)
    if done.returncode != 0 or not result:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-500:]}")
    return json.loads(result.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", required=True)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--rows", default="256,4096")
    parser.add_argument("--models", default="")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    with open(os.path.join(args.graphs, "models.json")) as file:
        models = json.load(file)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            if args.models and name not in args.models.split(","):
                continue
            for rows in map(int, args.rows.split(",")):
                path = os.path.join(folder, f"{name}.pbtxt")
                with open(path, "w") as file:
                    file.write(job(args.graphs, name, model, rows))
                line = {"model": name, "rows": rows}
                try:
                    short = args.steps // 4
                    turns = []
                    for _ in range(args.repeat):
                        long = run(args, path, rows, args.steps)
                        turns.append((long["seconds"] - run(args, path, rows, short)["seconds"]) / (args.steps - short))
                    line.update(us=round(1e6 * statistics.median(turns), 1), loss=long.get("loss"))
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    failed, line["error"] = 1, str(e)[-600:]
                print(json.dumps(line), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
