#!/usr/bin/env python3
"""What a graph of TensorFlow costs beside the zoo's own model: dlrm by Keras, din by TensorFlow 1.

usage: imported_graphs.py --graphs FOLDER [--braid BINARY] [--rows 512,4096] [--steps N] [--repeat N] [--device CUDA]

FOLDER is what bench/peers/tf_graphs.py has written. Both are trained from the same generated rows with the same job. The ways
take turns; a turn is two runs, one of a quarter of the steps, whose difference counts. Prints a JSON line a model and size:
median us of a step, and the median ratio of the turns, imported over the zoo's own.
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
optimizer { kind: ADAGRAD learning_rate: 0.01 initial_accumulator: 1e-6 }
"""
DLRM_COLUMNS = "".join(f'  columns {{ name: "i{i}" kind: NUMERIC }}\n' for i in range(13)) + "".join(
    f'  columns {{ name: "c{i}" kind: CATEGORICAL buckets: 50000 }}\n' for i in range(26))
DIN_COLUMNS = """  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 50 }
  columns { name: "item" kind: CATEGORICAL buckets: 500 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 500 length: 12 output: "history" }
"""
# model: (columns, the zoo's model, the graph's file)
MODELS = {
    "dlrm": (DLRM_COLUMNS, 'name: "dlrm" hidden: 128 hidden: 64 embedding_dim: 16 hash_buckets: 50000 sparse_tables: true', "dlrm"),
    "din": (DIN_COLUMNS, 'name: "din" hidden: 64 hidden: 32 embedding_dim: 16 sparse_tables: true', "din.pb"),
}


def write_jobs(args, folder):
    for name, (columns, own, graph) in MODELS.items():
        file = os.path.join(os.path.abspath(args.graphs), graph)
        models = {"own": own, "imported": f'graph {{ file: "{file}" loss: "loss" prediction: "prediction" }}'}
        for way, model in models.items():
            with open(os.path.join(folder, f"{name}-{way}.pbtxt"), "w") as job:
                job.write(f"{HEAD}model {{ {model} }}\ninput {{\n  format: GENERATOR\n  generator {{ rows: 200000 }}\n{columns}"
                          '  columns { name: "clicked" kind: LABEL }\n}\n')


def seconds(args, job, rows, steps):
    command = [args.braid, "train", "--job", job]
    for setting in [f"input.global_batch_size={rows}", f"steps={steps}", "epochs=0", f"runtime.device={args.device}"]:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "BRAID_PROGRESS": "off"})
    result = re.search(r"result: (\{.*\})", done.stdout)
    if done.returncode != 0 or not result:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(result.group(1))["seconds"]


def step(args, job, rows):
    long, short = args.steps, args.steps // 4
    return 1e6 * (seconds(args, job, rows, long) - seconds(args, job, rows, short)) / (long - short)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", required=True)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--rows", default="512,4096")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="CUDA")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_jobs(args, folder)
        for name in MODELS:
            for rows in map(int, args.rows.split(",")):
                turns = [[step(args, os.path.join(folder, f"{name}-{way}.pbtxt"), rows) for way in ("own", "imported")]
                         for _ in range(args.repeat)]
                own, imported = map(statistics.median, zip(*turns))
                print(json.dumps({"model": name, "rows": rows, "own_us": round(own, 1), "imported_us": round(imported, 1),
                                  "ratio": round(statistics.median(b / a for a, b in turns), 3)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
