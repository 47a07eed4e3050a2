#!/usr/bin/env python3
"""Whole jobs on GPUs: what their losses, input and servers make of the device.

usage: jobs.py [--braid BINARY] [--parts losses,files,servers,siblings] [--steps N] [--fashion DIR] [--adult DIR] [--rows N]

losses:  every job of examples/jobs on the CPU and on the GPU, without TF32: the largest relative difference of the loss
         in the first step, the first 20 and all. Training carries rounding on and makes it grow, of some models fast:
         "nudged" is the same between two runs on the CPU, the second with a learning rate that is 1e-6 larger.
files:   dlrm from Criteo-layout files through the stage, batches of 2048, beside the same program on one batch that stays
         (as the tuner of AUTO times it), by the number of stage threads; and the share of copies that compute hides.
servers: wide_deep with one server and two workers (one where there is one GPU), seeds 1 to 3, on CPU and GPU: the AUC.
siblings: mmoe of 8 experts with and without batched siblings, on one GPU and with all-reduce over NCCL on two: the step, and
         how far the losses part.

Prints a JSON line a measurement. A job without its data is left out, and the line says so.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import models  # noqa: E402
import trace_overlap  # noqa: E402

BATCH = 2048


def run(command):
    """The result line of a run, and its log."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "BRAID_PROGRESS": "off"})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: ")), done.stderr


def train(args, job, data, overrides, cluster=()):
    command = [args.braid, *(["launch", *cluster, "--"] if cluster else []), "train", "--job", job, "--data-dir", data]
    for override in overrides:
        command += ["--set", override]
    return run(command)


def tell(**line):
    print(json.dumps(line), flush=True)


def learning_rate(name):
    with open(models.job_path(name), encoding="utf-8") as file:
        return float(re.search(r"learning_rate: *([0-9.e-]+)", file.read()).group(1))


def losses_of(args, name, data, folder, more):
    steps = os.path.join(folder, "losses.jsonl")
    overrides = [f"steps={args.steps}", "epochs=0", "evaluation.enabled=false", "runtime.tf32=false",
                 f"metrics.steps_file={steps}", *more]
    if name == "resnet18":
        overrides += ["steps=20"]
    train(args, models.job_path(name), data, overrides)
    with open(steps, encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


def differences(name, one, other):
    if len(one) != len(other):
        raise SystemExit(f"{name}: {len(one)} steps beside {len(other)}")
    relative = [abs(a - b) / max(abs(a), 1e-12) for a, b in zip(one, other)]
    return {"first": float(f"{relative[0]:.1e}"), "first_20": float(f"{max(relative[:20]):.1e}"),
            "all": float(f"{max(relative):.1e}")}


def losses(args, folder, criteo):
    for name in models.JOBS:
        data = models.data_folder(name, args, criteo)
        if not os.path.isdir(data):
            tell(part="losses", model=name, left_out=f"no data in {data}")
            continue
        cpu, gpu, nudged = (losses_of(args, name, data, folder, more) for more in (
            ["runtime.device=CPU"], ["runtime.device=CUDA"],
            ["runtime.device=CPU", f"optimizer.learning_rate={learning_rate(name) * (1 + 1e-6)!r}"]))
        tell(part="losses", model=name, steps=len(cpu), **differences(name, cpu, gpu),
             nudged=differences(name, cpu, nudged), last_loss=[cpu[-1], gpu[-1]])


def files(args, folder, criteo):
    overrides = [f"input.global_batch_size={BATCH}", "staging.capacity=8", "evaluation.enabled=false",
                 "runtime.device=CUDA"]
    job = models.job_path("dlrm")
    for threads in (1, 2, 4):
        steps, fixed, waits = [], [], []
        for _ in range(3):
            result, log = train(args, job, criteo, [*overrides, f"staging.num_threads={threads}", "epochs=1"])
            said = re.search(r"AUTO took (\S+(?: on \d+)?):.*?\b\1 ([0-9.]+) us", log)
            if not said:
                raise SystemExit(f"the log does not say how long AUTO's choice took:\n{log[-2000:]}")
            steps.append(1e6 * result["seconds"] / result["steps"])
            fixed.append(float(said.group(2)))
            waits.append(result["input_wait_seconds"] / result["seconds"])
        tell(part="files", model="dlrm", batch=BATCH, steps=result["steps"], stage_threads=threads,
             step_us=round(statistics.median(steps), 1), fixed_batch_us=round(statistics.median(fixed), 1),
             ratio=round(statistics.median(s / f for s, f in zip(steps, fixed)), 3),
             input_wait=round(statistics.median(waits), 4), took=said.group(1))
    trace = os.path.join(folder, "files.json")
    train(args, job, criteo, [*overrides, "epochs=10", "metrics.sample_every_seconds=0.1",
                              f"metrics.trace_file={trace}"])
    tell(part="files", model="dlrm", batch=BATCH, trace=trace_overlap.report(trace))


def servers(args, folder, gpus):
    if not os.path.isdir(args.adult):
        return tell(part="servers", left_out=f"no data in {args.adult}")
    workers = min(2, gpus)
    for seed in (1, 2, 3):
        auc = {}
        for device in ("CPU", "CUDA"):
            traced = device == "CUDA" and seed == 1
            result, _ = train(args, models.job_path("wide_deep"), args.adult,
                              ["strategy.kind=PS", f"seed={seed}", f"runtime.device={device}",
                               *([f"metrics.trace_file={folder}/ps-%r.json"] if traced else [])],
                              ["--workers", str(workers), "--ps", "1"])
            auc[device] = result["auc"]
        tell(part="servers", model="wide_deep", servers=1, workers=workers, seed=seed, auc=auc,
             **({"trace": trace_overlap.report(f"{folder}/ps-worker-0.json")} if seed == 1 else {}))
    return None


def siblings(args, folder, gpus):
    for workers in (1, 2)[:gpus]:
        cluster = ["strategy.kind=ALLREDUCE", "strategy.backend=NCCL"] if workers > 1 else []
        steps, losses = {}, {}
        for _ in range(3):
            for batching in ("OFF", "WITHIN_SCOPES", "ACROSS_SCOPES"):
                file = os.path.join(folder, "siblings-%r.jsonl")
                result, _ = train(args, models.job_path("mmoe"), folder,
                                  [f"streams.batch_siblings={batching}", "streams.count=8", "steps=1000", "epochs=0",
                                   "staging.num_threads=2", "input.global_batch_size=4096", "model.experts=8",
                                   "model.hidden=256", "model.hidden=128", "runtime.device=CUDA",
                                   "evaluation.enabled=false", f"metrics.steps_file={file}", *cluster],
                                  ["--workers", str(workers)] if workers > 1 else ())
                steps.setdefault(batching, []).append(1e6 * result["seconds"] / result["steps"])
                with open(file.replace("%r", "worker-0"), encoding="utf-8") as lines:
                    losses[batching] = [json.loads(line)["loss"] for line in lines]
        tell(part="siblings", model="mmoe", batch=4096, workers=workers,
             step_us={name: round(statistics.median(took), 1) for name, took in steps.items()},
             largest_difference={name: differences(name, losses["OFF"], other)["all"]
                                 for name, other in losses.items() if name != "OFF"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=os.path.join(models.ROOT, "build/release/cli/braid"))
    parser.add_argument("--parts", default="losses,files,servers,siblings")
    parser.add_argument("--steps", type=int, default=200, help="of each job whose losses are compared")
    parser.add_argument("--fashion", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--adult", default=os.path.join(models.ROOT, "../shared/data/uci_adult"))
    parser.add_argument("--rows", dest="criteo_rows", type=int, default=2000000, help="generated, in the Criteo layout")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := set(parts) - {"losses", "files", "servers", "siblings"}:
        parser.error(f"--parts: unknown: {', '.join(sorted(unknown))}")
    gpus = len(subprocess.run(["nvidia-smi", "--list-gpus"], check=True, capture_output=True).stdout.splitlines())
    with tempfile.TemporaryDirectory() as folder:
        criteo = os.path.join(folder, "criteo")
        if "losses" in parts or "files" in parts:
            models.make_criteo(args, criteo)
        if "losses" in parts:
            losses(args, folder, criteo)
        if "files" in parts:
            files(args, folder, criteo)
        if "servers" in parts:
            servers(args, folder, gpus)
        if "siblings" in parts:
            siblings(args, folder, gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
