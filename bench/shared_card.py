#!/usr/bin/env python3
"""What several processes get of one GPU, with and without MPS: trainings side by side, and two inference groups beside one.

usage: shared_card.py [--braid BINARY] [--job JOB.pbtxt] [--device cuda|cpu] [--mps off,on] [--jobs 1,2,4] [--seconds N]
                      [--batch N] [--requests N] [--streams N] [--limit SECONDS] [--shares TRAINING/INFERENCE ...]

Every line is JSON: of N trainings the sum of their examples/s, in `--seconds` in which all of them made steps, and what that is
of one alone; of two inference groups (`braid infer --groups 2`, two clients, the job's own model) requests/s, median and p99 in
ms, alone and beside a training, and that training's examples/s meanwhile. All of it without MPS, and with a control daemon of
this script's own, where nvidia-cuda-mps-control can be started; otherwise the line says why not. `--shares` are
`streams.partition` of the training and of the inference, with spaces between its entries: both run with them once more. A
process that takes longer than `--limit` to get ready, or to answer, is ended, and its line says so. `processes` is what the
trainings said of MPS.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--job", default=os.path.join(ROOT, "examples/jobs/mmoe_generated.pbtxt"))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--mps", default="off,on")
    parser.add_argument("--jobs", default="1,2,4", help="trainings side by side; empty: none")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--shares", nargs="*", default=[])
    return parser.parse_args()


class Mps:
    """A control daemon with folders of its own, for the time of a `with`."""

    def __init__(self, folder):
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"),
                    "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
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
        if "CUDA_VISIBLE_DEVICES" in os.environ:  # of the daemon; its clients count what it lists from 0
            listed = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
            self.env["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(len(listed)))
        return self

    def __exit__(self, *_):
        if not self.why:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env={**os.environ, **self.env}, text=True, timeout=20,
                           capture_output=True, check=False)


class Failed(Exception):
    pass


class Braid:
    """A process; what it writes goes into files, so that no pipe fills up. Ended with the object's `with`."""

    def __init__(self, args, words, env, folder):
        self.args = args
        self.out, self.err = tempfile.TemporaryFile("w+", dir=folder), tempfile.TemporaryFile("w+", dir=folder)
        self.process = subprocess.Popen([args.braid] + words, env={**os.environ, "BRAID_PROGRESS": "off", **env},
                                        stdout=self.out, stderr=self.err, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def text(self, file):
        file.seek(0)
        return file.read()

    def result(self):
        try:
            code = self.process.wait(self.args.limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"ended after {self.args.limit} s: {self.text(self.err)[-300:]}") from None
        found = re.findall(r"result: (\{.*\})", self.text(self.out))
        if code != 0 or not found:
            raise Failed(f"exit code {code}: {self.text(self.err)[-600:]}")
        return json.loads(found[0])


class Training(Braid):
    """One that does not end by itself, and says how many steps it has made."""

    def __init__(self, args, env, folder, share=""):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words = ["train", "--job", args.job, "--device", args.device]
        fields = ["steps=1000000000", "epochs=0", f"input.global_batch_size={args.batch}", "evaluation.enabled=false",
                  "metrics.progress_seconds=0.1", f"streams.count={args.streams}", f"metrics.listen=127.0.0.1:{self.port}"]
        for field in fields + share_fields(share):
            words += ["--set", field]
        super().__init__(args, words, env, folder)

    def steps(self):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                found = re.findall(r"^braid_steps_total.* (\S+)$", answer.read().decode(), re.M)
                return float(found[0]) if found else 0
        except OSError:
            return 0

    def wait_for_steps(self, least=100):
        end = time.time() + self.args.limit
        while self.steps() < least:
            if self.process.poll() is not None or time.time() > end:
                raise Failed(f"no steps, exit code {self.process.poll()}: {self.text(self.err)[-600:]}")
            time.sleep(0.05)

    def said_of_mps(self):
        said = re.findall(r"client of MPS|without MPS", self.text(self.err))
        return said[0] if said else ""


def share_fields(share):
    return ["streams.partition=" + share.replace(" ", ",")] if share else []


def inference(args, env, folder, graph, outputs, share=""):
    words = ["infer", "--graph", graph, "--untrained", "--batch", "64", "--groups", "2", "--threads", "2", "--iters",
             str(args.requests), "--device", args.device, "--max-id", "10"]
    for output in outputs:
        words += ["--output", output]
    for field in share_fields(share):
        words += ["--set", field]
    return Braid(args, words, env, folder)


def rates_of(args, trainings):
    """Examples/s of each, for args.seconds."""
    began, before = time.time(), [training.steps() for training in trainings]
    time.sleep(args.seconds)
    after, ended = [training.steps() for training in trainings], time.time()
    return [(b - a) * args.batch / (ended - began) for a, b in zip(before, after)]


def serve_beside(args, training, infer):
    """What the inference says, and the training's examples/s while it served requests, which are its last seconds."""
    seen = [(time.time(), training.steps())]
    while infer.process.poll() is None and seen[-1][0] < seen[0][0] + args.limit:
        time.sleep(0.1)
        seen.append((time.time(), training.steps()))
    result = infer.result()
    served = [at for at in seen if at[0] >= seen[-1][0] - result["seconds"]]
    if len(served) < 3:
        raise Failed(f"requests took {result['seconds']:.2f} s: give more of them")
    (began, before), (ended, after) = served[0], served[-1]
    return result, (after - before) * args.batch / (ended - began)


def report(line):
    print(json.dumps({"bench": "shared_card", **line}), flush=True)


def measure_trainings(args, env, mps, folder):
    alone = None
    for jobs in [int(number) for number in args.jobs.split(",") if number]:
        line = {"mps": mps, "trainings": jobs}
        with contextlib.ExitStack() as stack:
            try:
                trainings = [stack.enter_context(Training(args, env, folder)) for _ in range(jobs)]
                for training in trainings:
                    training.wait_for_steps()
                rates = rates_of(args, trainings)
                alone = alone or rates[0]
                line.update(examples_per_s=round(sum(rates)), of_one=round(sum(rates) / alone, 3),
                            each=[round(rate) for rate in rates], processes=sorted({t.said_of_mps() for t in trainings}))
            except Failed as error:
                line["failed"] = str(error)
        report(line)


def measure_inference(args, env, mps, folder):
    graph = os.path.join(folder, "model.pb")
    said = subprocess.run([args.braid, "graph", "export", "--inference", "--job", args.job, "--out", graph],
                          capture_output=True, text=True, check=True)
    outputs = re.findall(r"'([^']+/probability)'", said.stdout + said.stderr)
    for share in [""] + args.shares:
        of_training, _, of_inference = share.partition("/")
        for beside in (False, True):
            line = {"mps": mps, "shares": share, "inference": "beside a training" if beside else "alone"}
            with contextlib.ExitStack() as stack:
                try:
                    if beside:
                        training = stack.enter_context(Training(args, env, folder, of_training))
                        training.wait_for_steps()
                        line["training_alone"] = round(rates_of(args, [training])[0])
                    infer = stack.enter_context(inference(args, env, folder, graph, outputs, of_inference))
                    if beside:
                        line["result"], rate = serve_beside(args, training, infer)
                        line["training_beside"] = round(rate)
                    else:
                        line["result"] = infer.result()
                except Failed as error:
                    line["failed"] = str(error)
            report(line)


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the daemon ends with this script
    with tempfile.TemporaryDirectory() as folder:
        for way in args.mps.split(","):
            if way == "off" or args.device == "cpu":
                measure_trainings(args, {}, False, folder)
                measure_inference(args, {}, False, folder)
                continue
            with Mps(folder) as mps:
                if mps.why:
                    report({"mps": True, "not_run": mps.why})
                else:
                    measure_trainings(args, mps.env, True, folder)
                    measure_inference(args, mps.env, True, folder)


if __name__ == "__main__":
    main()
