#!/usr/bin/env python3
"""What a pipeline over the workers of this host gains beside one process, and how much of a step its bubble is.

usage: pipeline_jobs.py [--braid BINARY] [--device CPU|CUDA] [--mesh DxP]... [--micro-batches N,...] [--layers N] [--width N]
                        [--batch N] [--steps N] [--repeat N] [--precision FP32|TF32|BF16] [--schedule ONE_F_ONE_B|GPIPE]
                        [--parts]

Trains the zoo's mlp with `--layers` hidden layers of `--width`, whose inputs are as wide, on random images: one process that
accumulates over as many micro-batches, and for each `--mesh` D groups of P stages. All share the same global batch. In turn,
N times over; on CUDA over NCCL, a GPU each, else over TCP, a thread each. Prints a JSON line a way and number of
micro-batches: median, smallest and largest examples/s of the step loop, the median's ratio to one process, both of the loop's
later half (`steady`), the largest relative difference of a loss from that one's, the share of a step in which stages stand
still as the steady ratio says (1 - ratio / workers: what they send is in it), the formula's (p - 1) / (m + p - 1), and what
the plan says. --parts, on CUDA: a line more of each way, with the parts of that share (bench/pipeline_parts.py), from one more
run of each that is sampled.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile

import pipeline_parts
import tensor_jobs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--device", choices=["CPU", "CUDA"], default="CPU")
    parser.add_argument("--mesh", action="append", default=[], help="groups x stages, as 2x2; default 1x2")
    parser.add_argument("--micro-batches", default="4,8")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096, help="a square: images are so many pixels")
    parser.add_argument("--batch", type=int, default=4096, help="rows of a step over all workers")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--precision", choices=["FP32", "TF32", "BF16"], default="FP32")
    parser.add_argument("--schedule", choices=["ONE_F_ONE_B", "GPIPE"], default="ONE_F_ONE_B")
    parser.add_argument("--parts", action="store_true")
    args = parser.parse_args()
    args.mesh = [tuple(int(n) for n in mesh.split("x")) for mesh in args.mesh or ["1x2"]]
    args.micro_batches = [int(n) for n in args.micro_batches.split(",")]
    return args


def settings(args, mesh, parts):
    if mesh is None:
        return ["--set", "strategy.kind=LOCAL", "--set", f"optimizer.accumulate_steps={parts}"]
    fields = {"kind": "PIPELINE", "backend": "NCCL" if args.device == "CUDA" else "RING",
              "pipeline.micro_batches": parts, "pipeline.schedule": args.schedule}
    if mesh[0] > 1:
        fields.update({"mesh.data": mesh[0], "mesh.pipeline": mesh[1]})
    return [word for name, value in fields.items() for word in ("--set", f"strategy.{name}={value}")]


def run(args, job, folder, mesh, parts, more=()):
    """The slowest worker's result, the losses of the leader's steps, and its steady rate."""
    command = [args.braid]
    if mesh:
        command += ["launch", "--workers", str(mesh[0] * mesh[1]), "--"]
    command += ["train", "--job", job, "--data-dir", folder, "--set", f"metrics.steps_file={folder}/steps-%r.jsonl"]
    done = subprocess.run(command + settings(args, mesh, parts) + list(more), capture_output=True, text=True, timeout=1800,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise SystemExit(f"{mesh}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    results = [json.loads(line) for line in re.findall(r"result: (\{.*\})", done.stdout)]
    names = sorted(name for name in os.listdir(folder) if name.startswith("steps-"))
    with open(os.path.join(folder, names[0]), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for name in names:
        os.remove(os.path.join(folder, name))
    return max(results, key=lambda r: r["seconds"]), [line["loss"] for line in lines], tensor_jobs.steady_rate(lines, args.batch)


def plan(args, job, folder, mesh, parts):
    command = [args.braid, "graph", "plan", "--workers", str(mesh[0] * mesh[1]), "--job", job, "--data-dir", folder]
    shown = subprocess.run(command + settings(args, mesh, parts), check=True, capture_output=True, text=True)
    wanted = ("pipeline: ", "  bubble: ", "  stage ", "    of a micro-batch", "    between groups")
    return [line.strip() for line in shown.stdout.splitlines() if line.startswith(wanted)]


def sampled(args, job, folder, mesh, parts):
    """Profiles of the workers, in the order of ranks."""
    window = ["metrics.trace_file=" + os.path.join(folder, "trace-%r.json"), "metrics.sample_every_seconds=0.2",
              "metrics.sample_window_seconds=1"]
    run(args, job, folder, mesh, parts, [word for field in window for word in ("--set", field)])
    paths = sorted((name for name in os.listdir(folder) if name.startswith("trace-")), key=lambda name: (len(name), name))
    profiles = [pipeline_parts.profile(os.path.join(folder, name)) for name in paths]
    for name in paths:
        os.remove(os.path.join(folder, name))
    return profiles


def print_parts(args, job, folder, parts):
    alone = sampled(args, job, folder, None, parts)[0]
    for mesh in args.mesh:
        try:
            line = pipeline_parts.parts_of(alone, sampled(args, job, folder, mesh, parts), parts, mesh[1])
        except SystemExit as error:
            line = {"not_known": str(error)}
        print(json.dumps({"bench": "pipeline_parts", "way": "PIPELINE %dx%d" % mesh, "micro_batches": parts, **line}), flush=True)


def measure(args, job, folder, parts):
    ways = [None] + args.mesh
    rates, steady, losses = {way: [] for way in ways}, {way: [] for way in ways}, {}
    for _ in range(args.repeat):
        for way in ways:
            result, losses[way], late = run(args, job, folder, way, parts)
            steady[way].append(late)
            rates[way].append(result["steps"] * args.batch / result["seconds"])
    alone = statistics.median(rates[None])
    for way in ways:
        late = statistics.median(steady[way])
        ratio = late / statistics.median(steady[None])
        apart = [abs(a - b) / abs(b) for a, b in zip(losses[way], losses[None])]
        line = {"bench": "pipeline_jobs", "way": "PIPELINE %dx%d" % way if way else "LOCAL", "micro_batches": parts,
                "examples_per_s": round(statistics.median(rates[way])), "least": round(min(rates[way])),
                "most": round(max(rates[way])), "of_one_process": round(statistics.median(rates[way]) / alone, 3),
                "steady": round(late), "steady_of_one_process": round(ratio, 3), "losses_apart": float(f"{max(apart):.1e}")}
        if way:
            data, stages = way
            line["stands_still"] = round(1 - ratio / (data * stages), 3)
            line["formula"] = round((stages - 1) / (parts + stages - 1), 3)
            line["plan"] = plan(args, job, folder, way, parts)
        line["settings"] = {name: getattr(args, name) for name in
                            ("device", "layers", "width", "batch", "steps", "repeat", "precision", "schedule")}
        line["settings"].update(cpu=platform.processor() or platform.machine(), cores=os.cpu_count())
        print(json.dumps(line), flush=True)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        tensor_jobs.make_images(args, folder)
        job = tensor_jobs.write_job(args, folder)
        for parts in args.micro_batches:
            measure(args, job, folder, parts)
            if args.parts and args.device == "CUDA":
                print_parts(args, job, folder, parts)


if __name__ == "__main__":
    main()
