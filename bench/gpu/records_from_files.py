#!/usr/bin/env python3
"""MLPerf's two recommenders from files beside the same step on batches that are made already, on one GPU.

usage: records_from_files.py [--braid BINARY] [--bench FOLDER] [--models hstu,dlrm_v2] [--batches-hstu 64,256]
                             [--batches-dlrm 6912,65536] [--precision BF16] [--max-rows N] [--seconds S] [--users N]
                             [--rows N] [--reads STREAM,MEMORY] [--device cuda] [--set FIELD=VALUE]

Data are made first (`braid data hstu`, `braid data mlperf-dlrm`). memory: gpu_hstu on the lengths of the file's first
histories, gpu_dlrm_v2 on its first four batches in page-locked memory, --streams 4. files: `braid train` of the job
with the same tables, between the progress lines of the later three quarters of a run of --seconds about. Histories
differ in length, so rates of hstu are of useful work: TFLOP/s of the layers, over all histories of the file, as gpu_hstu
counts them. ratio: memory's rate by that of files. Prints a JSON line a model, batch and way to read.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import models  # noqa: E402

BESIDE_HISTORY = 9  # tokens of a sample: context and the candidate


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.path.join(models.ROOT, "build/release")
    parser.add_argument("--braid", default=os.path.join(build, "cli/braid"))
    parser.add_argument("--bench", default=os.path.join(build, "bench"), help="where gpu_hstu and gpu_dlrm_v2 are")
    parser.add_argument("--models", default="hstu,dlrm_v2")
    parser.add_argument("--batches-hstu", default="64,256")
    parser.add_argument("--batches-dlrm", default="6912,65536")
    parser.add_argument("--precision", default="BF16")
    parser.add_argument("--max-rows", type=int, default=1000000)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a run")
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--reads", default="STREAM,MEMORY")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--set", action="append", default=[], help="further settings of every job")
    return parser.parse_args()


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def lengths(path):
    """Events of each history of a TFRecord file: actions are one byte each."""
    found = []
    with open(path, "rb") as file:
        while header := file.read(12):
            record = file.read(struct.unpack("<Q", header[:8])[0])
            file.read(4)
            at = record.index(b"history_action") + len(b"history_action")
            for _ in range(3):  # Feature, Int64List, its values: a tag and a length each
                count, at = varint(record, at + 1)
            found.append(count)
    return found


def layers_flops(of):
    """A sample's on average (bench/gpu/hstu.cc)."""
    tokens = [length + BESIDE_HISTORY for length in of]
    return 3 * sum(11.01e6 * t + 3584 * t * t for t in tokens) / len(tokens)


def from_memory(args, program, settings, pattern):
    command = [os.path.join(args.bench, program), "--precisions", args.precision, "--max-rows", str(args.max_rows),
               "--streams", "4", "--rounds", "3", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(pattern, done.stdout)
    if not found:
        sys.exit(f"{' '.join(command)} said:\n{done.stdout}{done.stderr[-2000:]}")
    return float(found.group(1))


def from_files(args, job, data, batch, read, steps, settings):
    """us a step, share of waiting for input, share of padding; the read's rate."""
    command = [args.braid, "train", "--job", os.path.join(models.ROOT, "examples/jobs", job), "--data-dir", data]
    settings = [f"input.global_batch_size={batch}", f"steps={steps}", "epochs=0", "evaluation.enabled=false",
                f"runtime.device={args.device.upper()}", "metrics.progress_seconds=0.05", f"input.read={read}",
                f"runtime.precision={args.precision}", f"model.max_rows={args.max_rows}", "streams.policy=COST",
                "streams.count=4", *settings, *args.set]
    line, result, said = models.timed_run(command, settings, steps)
    line = {"read": read, "steps": steps, **line}
    if "padding_share" in result:
        line["padding"] = round(result["padding_share"], 3)
    if rate := re.search(r"input: read .*", said):
        line["input"] = rate.group(0)
    if grew := said.count("prepared for more"):
        line["grew"] = grew
    return line


def measure_hstu(args, folder):
    data = os.path.join(folder, "hstu")
    subprocess.run([args.braid, "data", "hstu", "--users", str(args.users), "--format", "tfrecord", "--out", data],
                   check=True, stdout=subprocess.DEVNULL)
    of = lengths(os.path.join(data, "train.tfrecord"))
    listed = os.path.join(folder, "lengths")
    with open(listed, "w", encoding="utf-8") as file:
        file.write("\n".join(map(str, of)))
    settings = ["input.format=TFRECORD", "input.train_files=train.tfrecord", "input.test_files=test.tfrecord"]
    for batch in map(int, args.batches_hstu.split(",")):
        memory = from_memory(args, "gpu_hstu", ["--batches", str(batch), "--length-list", listed],
                             r"samples/s, (\d+) TFLOP/s")
        steps = int(max(16, args.seconds * memory * 1e12 / layers_flops(of) / batch))
        for read in args.reads.split(","):
            line = from_files(args, "mlperf_hstu.pbtxt", data, batch, read, steps, settings)
            rate = batch * layers_flops(of) / line["files_us"] / 1e6
            print(json.dumps({"model": "hstu", "batch": batch, "memory_tflops": memory, **line,
                              "files_tflops": round(rate, 1), "samples_per_second": round(batch / line["files_us"] * 1e6),
                              "ratio": round(memory / rate, 3)}), flush=True)


def measure_dlrm(args, folder):
    data = os.path.join(folder, "dlrm")
    subprocess.run([args.braid, "data", "mlperf-dlrm", "--rows", str(args.rows), "--out", data], check=True,
                   stdout=subprocess.DEVNULL)
    for batch in map(int, args.batches_dlrm.split(",")):
        memory = from_memory(args, "gpu_dlrm_v2", ["--batches", str(batch), "--zipf", "0", "--optimizers", "rowwise",
                                                   "--rows", os.path.join(data, "train_data.bin")],
                             r": ([0-9.]+) us/step")
        steps = int(max(40, args.seconds * 1e6 / memory))
        for read in args.reads.split(","):
            line = from_files(args, "mlperf_dlrm_v2.pbtxt", data, batch, read, steps, ["optimizer.row_wise=true"])
            print(json.dumps({"model": "dlrm_v2", "batch": batch, "memory_us": memory, **line,
                              "read_GBps": round(batch * 912 / line["files_us"] / 1e3, 2),
                              "examples_per_second": round(batch / line["files_us"] * 1e6),
                              "ratio": round(line["files_us"] / memory, 3)}), flush=True)


def main():
    args = arguments()
    ways = {"hstu": measure_hstu, "dlrm_v2": measure_dlrm}
    names = args.models.split(",")
    if unknown := [name for name in names if name not in ways]:
        sys.exit(f"--models: unknown: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            ways[name](args, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
