"""Makes files, and reads them by blocks_bench and by pyarrow, one after the other in each round.

    python3 bench/blocks.py --bench build/release/bench/blocks_bench --braid build/release/cli/braid --dir DIR

pyarrow runs on one thread and gives Arrow columns, or NumPy arrays where it says so; it neither hashes nor lays columns side
by side, as blocks_bench does. Rates are by CPU time. A JSON line each.
"""
import argparse
import json
import os
import subprocess
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

parser = argparse.ArgumentParser()
parser.add_argument("--bench", required=True)
parser.add_argument("--braid", required=True)
parser.add_argument("--dir", required=True)
parser.add_argument("--rows", type=int, default=1_000_000)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
pa.set_cpu_count(1)
pa.set_io_thread_count(1)
os.makedirs(args.dir, exist_ok=True)


def path(name):
    return os.path.join(args.dir, name)


random = np.random.default_rng(1)
numbers = pa.table({**{f"f{c}": random.normal(size=args.rows).astype(np.float32) for c in range(8)},
                    **{f"i{c}": random.integers(0, 1 << 40, args.rows) for c in range(8)}})
no_nulls = pa.schema([pa.field(f.name, f.type, nullable=False) for f in numbers.schema])
numbers = numbers.cast(no_nulls)
pq.write_table(numbers, path("plain.parquet"), row_group_size=65536, compression="none", use_dictionary=False)
pq.write_table(numbers, path("snappy.parquet"), row_group_size=65536)
pyarrow.csv.write_csv(numbers.slice(0, args.rows // 4), path("numbers.csv"))
subprocess.run([args.braid, "data", "criteo", "--rows", str(args.rows // 2), "--out", args.dir], check=True)
subprocess.run([args.braid, "data", "convert", path("train.tsv"), "--out", path("train.tfrecord")], check=True)
subprocess.run([args.braid, "data", "convert", path("train.tsv"), "--out", path("clicks.parquet")], check=True)


def arrow(what, name, read):
    rates = []
    for _ in range(args.rounds):
        begin = time.thread_time() + sum(os.times()[:2])
        table = read(path(name))
        rates.append(time.thread_time() + sum(os.times()[:2]) - begin)
    seconds = sorted(rates)[len(rates) // 2] / 2
    print(json.dumps({"bench": "pyarrow", "format": what, "rows": table.num_rows,
                      "rows_per_s": round(table.num_rows / seconds),
                      "mb_per_s": round(os.path.getsize(path(name)) / 1e6 / seconds),
                      "table_mb_per_s": round(table.nbytes / 1e6 / seconds)}), flush=True)


def ours(what, name):
    subprocess.run([args.bench, "--format", what, "--rounds", str(args.rounds), path(name)], check=True)


for _ in range(2):
    for what, name in (("parquet", "plain.parquet"), ("parquet", "snappy.parquet"), ("parquet-criteo", "clicks.parquet")):
        ours(what, name)
        arrow(what + " " + name, name, lambda file: pq.read_table(file, use_threads=False))
    options = pyarrow.csv.ReadOptions(use_threads=False)
    ours("csv", "numbers.csv")
    arrow("csv", "numbers.csv", lambda file: pyarrow.csv.read_csv(file, read_options=options))
    ours("criteo", "train.tsv")
    columns = pyarrow.csv.ReadOptions(use_threads=False, column_names=[str(c) for c in range(40)])
    arrow("criteo", "train.tsv", lambda file: pyarrow.csv.read_csv(
        file, read_options=columns, parse_options=pyarrow.csv.ParseOptions(delimiter="\t")))
    ours("tfrecord", "train.tfrecord")
