#!/usr/bin/env python3
"""How near a step from files is to the same step on a batch that stays on the GPU.

usage: from_files.py [--braid BINARY] [--steps-bench BINARY] [--models mlp,cnn,dlrm,wide_deep] [--batches job,4096,16384]
                     [--threads AUTO,8] [--seconds S] [--fashion DIR] [--set FIELD=VALUE]

fixed_us: precision_bench on the job's model, optimizer and batch, TF32, one captured graph on one stream, its inputs on the
device: one batch of dlrm's file, or one made up of the others' shapes. turns_us, of dlrm: on eight batches of its file in turn,
which name other rows of the tables each step, as training does. files_us: `braid train` with the same stream settings, between the progress lines of the later three quarters of a
run; of a run that takes --seconds about. wait: the share of the time that it waits for input. From windows of the same run
in which the driver records every copy: compute_us, device time a step; h2d_GBps, bytes a batch by the time of its copy;
hidden, the share of the copies' time in which a compute stream was busy.

Images are Fashion-MNIST, or random ones of its size where there is none; rows of dlrm are generated in the Criteo layout.
Prints a JSON line a model, batch and number of stage threads.
"""
import argparse
import gzip
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import models  # noqa: E402
import trace_overlap  # noqa: E402

JOB_BATCH = {"mlp": 128, "cnn": 128, "dlrm": 512, "wide_deep": 256}
JOBS = {"wide_deep": "wide_deep_generated.pbtxt"}
STREAMS = ["streams.count=1", "streams.policy=NONE", "streams.batch_siblings=ACROSS_SCOPES"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.path.join(models.ROOT, "build/release")
    parser.add_argument("--braid", default=os.path.join(build, "cli/braid"))
    parser.add_argument("--steps-bench", default=os.path.join(build, "bench/precision_bench"))
    parser.add_argument("--models", default=",".join(JOB_BATCH))
    parser.add_argument("--batches", default="job,4096,16384")
    parser.add_argument("--threads", default="AUTO,8", help="stage threads; a number has room for twice as many batches")
    parser.add_argument("--seconds", type=float, default=2, help="of a run")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--fashion", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--criteo-rows", type=int, default=400000)
    parser.add_argument("--set", action="append", default=[], help="further settings of every job")
    parser.add_argument("--keep", default="", help="a folder for traces")
    return parser.parse_args()


def make_images(folder):
    """60,000 random images and labels of Fashion-MNIST's size, under its names."""
    for name, shape, below in (("train-images-idx3", (60000, 28, 28), 256), ("train-labels-idx1", (60000,), 10),
                               ("t10k-images-idx3", (1000, 28, 28), 256), ("t10k-labels-idx1", (1000,), 10)):
        count = 1
        for n in shape:
            count *= n
        values = os.urandom(count) if below == 256 else bytes(b % below for b in os.urandom(count))
        header = struct.pack(">BBBB", 0, 0, 8, len(shape)) + b"".join(struct.pack(">I", n) for n in shape)
        with gzip.open(os.path.join(folder, f"{name}-ubyte.gz"), "wb", compresslevel=1) as file:
            file.write(header + values)


def fixed_steps(args, name, batches, more=()):
    """batch -> us a step on batches that stay."""
    command = [args.steps_bench, "--device", args.device, "--models", name, "--batches", ",".join(map(str, batches)),
               "--precisions", "TF32", "--steps", "200" if args.device == "cuda" else "5", *more]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    found = {int(batch): float(us) for batch, us in re.findall(rf"^{name} +(\d+) TF32 \| +([0-9.]+) us", out, re.M)}
    if set(found) != set(batches):
        sys.exit(f"{' '.join(command)} said:\n{out}")
    return found


def copies(path, bytes_a_batch):
    """Of the windows in a trace: the copies' rate and hidden share, and the spans (us) in which they were seen."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    inside = {"h2d": [], "compute": []}
    for e in events:
        track = tracks.get((e["pid"], e.get("tid")), "")
        if e["ph"] == "X" and track.startswith("cuda:"):
            stream = track.split(" ")[1]
            inside.setdefault("compute" if stream.startswith("compute") else stream, []).append((e["ts"], e["dur"]))
    if not inside["h2d"] or not inside["compute"]:
        return {}
    longest = max(dur for _, dur in inside["h2d"])
    batches = [dur for _, dur in inside["h2d"] if dur > longest / 4]
    spans = {kind: trace_overlap.union([(ts, ts + dur) for ts, dur in pieces]) for kind, pieces in inside.items()}
    hidden = trace_overlap.intersection(spans["h2d"], spans["compute"]) / trace_overlap.length(spans["h2d"])
    return {"copy_us": round(statistics.median(batches), 1), "copies": len(batches),
            "h2d_GBps": round(bytes_a_batch / statistics.median(batches) / 1e3, 1), "hidden": round(hidden, 3),
            "compute_us": round(trace_overlap.length(spans["compute"]) / max(1, len(batches)), 1)}


def from_files(args, name, batch, threads, steps, data, folder):
    trace = os.path.join(args.keep or folder, f"{name}-{batch}-{threads}.json")
    settings = [*STREAMS, f"input.global_batch_size={batch}", f"steps={steps}", "epochs=0", "evaluation.enabled=false",
                f"runtime.device={args.device.upper()}", "metrics.progress_seconds=0.05", f"metrics.trace_file={trace}",
                "metrics.sample_every_seconds=0.5", "metrics.sample_window_seconds=0.02", f"staging.num_threads={threads}",
                f"staging.capacity={threads if threads == 'AUTO' else 2 * int(threads)}", *args.set]
    command = [args.braid, "train", "--job", os.path.join(models.ROOT, "examples/jobs", JOBS.get(name, models.JOBS[name][0])),
               "--data-dir", data]
    line, _, said = models.timed_run(command, settings, steps)
    if tuned := re.search(r"capacity \d+, \d+ threads?: making a batch takes [0-9.e+-]+ ms", said):
        line["stage"] = tuned.group(0)
    if table := re.search(r"^h2d +(\d+) +([0-9.]+)$", said, re.M):
        line["batch_bytes"] = round(float(table.group(2)) * 2**20 / int(table.group(1)))
    return line, trace


def main():
    args = arguments()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in JOB_BATCH]:
        sys.exit(f"--models: unknown: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        images, criteo = args.fashion, os.path.join(folder, "criteo")
        if not os.path.isdir(images):
            images = os.path.join(folder, "images")
            os.mkdir(images)
            make_images(images)
        if "dlrm" in names:
            models.make_criteo(args, criteo)
        for name in names:
            batches = [JOB_BATCH[name] if batch == "job" else int(batch) for batch in args.batches.split(",")]
            rows = ["--criteo", os.path.join(criteo, "train.tsv")] if name == "dlrm" else []
            fixed = fixed_steps(args, name, batches, [*rows, "--turns", "1"] if rows else [])
            turns = fixed_steps(args, name, batches, rows) if rows else {}
            for batch in batches:
                for threads in args.threads.split(","):
                    steps = int(max(60, min(40000, args.seconds * 1e6 / fixed[batch])))
                    data = {"dlrm": criteo, "wide_deep": "."}.get(name, images)
                    line, trace = from_files(args, name, batch, threads, steps, data, folder)
                    line = {"model": name, "batch": batch, "threads": threads, "steps": steps,
                            "fixed_us": round(fixed[batch], 1), **line}
                    line["ratio"] = round(line["files_us"] / fixed[batch], 3)
                    if turns:
                        line["turns_us"] = round(turns[batch], 1)
                        line["ratio_of_turns"] = round(line["files_us"] / turns[batch], 3)
                    if "batch_bytes" in line:
                        line.update(copies(trace, line["batch_bytes"]))
                    print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
