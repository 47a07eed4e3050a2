#!/usr/bin/env python3
"""What several processes get of one GPU, with and without MPS: trainings side by side, and two inference groups beside one.

usage: shared_card.py [--braid BINARY] [--job JOB.pbtxt] [--device cuda|cpu] [--jobs 1,2,4] [--steps N] [--batch N]
                      [--requests N] [--streams N] [--limit SECONDS]

Every line is JSON: of N trainings the sum of their examples/s, and what that is of one alone; of two inference groups
(`braid infer --groups 2`, two clients, the job's own model) requests/s, median and p99 in ms, alone and beside a training, and
that training's examples/s. All of it without MPS, then with a control daemon of this script's own, where
nvidia-cuda-mps-control can be started; otherwise the line says why not. A process that takes longer than `--limit` is ended,
and its line says so. `processes` is what the trainings said of MPS.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--job", default=os.path.join(ROOT, "examples/jobs/mmoe_generated.pbtxt"))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--jobs", default="1,2,4")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--limit", type=float, default=120)
    return parser.parse_args()


class Mps:
    """A control daemon with folders of its own, for the time of a `with`."""

    def __init__(self, folder):
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"), "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
        self.why = ""

    def __enter__(self):
        for path in self.env.values():
            os.makedirs(path, exist_ok=True)
        control = shutil.which("nvidia-cuda-mps-control")
        if not control:
            self.why = "nvidia-cuda-mps-control is not installed"
            return self
        done = subprocess.run([control, "-d"], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=20,
                              check=False)
        if done.returncode != 0:
            self.why = "nvidia-cuda-mps-control: " + (done.stderr or done.stdout).strip()[-300:]
        return self

    def __exit__(self, *_):
        if not self.why:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env={**os.environ, **self.env}, text=True, timeout=20,
                           capture_output=True, check=False)


class Failed(Exception):
    pass


def result_of(args, process):
    """What the process says of its run, and what its log says of MPS."""
    try:
        out, errors = process.communicate(timeout=args.limit)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
        raise Failed(f"ended after {args.limit} s: {errors[-300:]}") from None
    found = re.findall(r"result: (\{.*\})", out)
    if process.returncode != 0 or not found:
        raise Failed(f"exit code {process.returncode}: {errors[-600:]}")
    said = re.findall(r"client of MPS|without MPS", errors)
    return json.loads(found[0]), said[0] if said else ""


def start(command, env):
    return subprocess.Popen(command, env={**os.environ, "BRAID_PROGRESS": "off", **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def training(args, env, steps):
    command = [args.braid, "train", "--job", args.job, "--device", args.device]
    for field in (f"steps={steps}", "epochs=0", f"input.global_batch_size={args.batch}", "evaluation.enabled=false",
                  f"streams.count={args.streams}"):
        command += ["--set", field]
    return start(command, env)


def rate(args, result):
    return result["steps"] * args.batch / result["seconds"]


def inference(args, env, graph, outputs):
    command = [args.braid, "infer", "--graph", graph, "--untrained", "--batch", "64", "--groups", "2", "--threads", "2",
               "--iters", str(args.requests), "--device", args.device, "--max-id", "10"]
    for output in outputs:
        command += ["--output", output]
    return start(command, env)


def results_of(args, running):
    """Of all of them, which end before this does."""
    results, failed = [], None
    try:
        for process in running:
            try:
                results.append(result_of(args, process))
            except Failed as error:
                failed = error
    finally:
        for process in running:
            process.kill()  # of those that have ended nothing
    if failed:
        raise failed
    return results


def measure_trainings(args, env, mps):
    alone = None
    for jobs in map(int, args.jobs.split(",")):
        line = {"bench": "shared_card", "mps": mps, "trainings": jobs}
        try:
            results = results_of(args, [training(args, env, args.steps) for _ in range(jobs)])
            rates = [rate(args, result) for result, _ in results]
            alone = alone or rates[0]
            line.update(examples_per_s=round(sum(rates)), of_one=round(sum(rates) / alone, 3), each=[round(r) for r in rates],
                        processes=sorted({said for _, said in results}))
        except Failed as error:
            line["failed"] = str(error)
        print(json.dumps(line), flush=True)


def measure_inference(args, env, mps, folder):
    graph = os.path.join(folder, "model.pb")
    said = subprocess.run([args.braid, "graph", "export", "--inference", "--job", args.job, "--out", graph],
                          capture_output=True, text=True, check=True)
    outputs = re.findall(r"'([^']+/probability)'", said.stdout + said.stderr)
    for beside in (False, True):
        line = {"bench": "shared_card", "mps": mps, "inference": "beside a training" if beside else "alone"}
        running = [training(args, env, 2 * args.steps)] if beside else []
        running.append(inference(args, env, graph, outputs))
        try:
            results = results_of(args, running)
            line["result"] = results[-1][0]
            if beside:
                line["training_examples_per_s"] = round(rate(args, results[0][0]))
        except Failed as error:
            line["failed"] = str(error)
        print(json.dumps(line), flush=True)


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the daemon ends with this script
    with tempfile.TemporaryDirectory() as folder:
        measure_trainings(args, {}, False)
        measure_inference(args, {}, False, folder)
        if args.device == "cpu":
            return
        with Mps(folder) as mps:
            if mps.why:
                print(json.dumps({"bench": "shared_card", "mps": True, "not_run": mps.why}), flush=True)
            else:
                measure_trainings(args, mps.env, True)
                measure_inference(args, mps.env, True, folder)


if __name__ == "__main__":
    main()
