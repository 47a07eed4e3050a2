"""A framework in a process of its own, for cpu_models.py: frameworks want their own Python, and their threads must sleep
while others are timed.

`python peer_process.py MODULE THREADS` imports torch_models or tf_models and answers requests, a JSON line each:
    (at the start)                                     {"version": "..."} or {"missing": "why it cannot be imported"}
    {"load": model, "settings", "values", "batches"}   {"parameters": how many numbers are trained}
    {"loss": batch}                                    {"loss": of that batch with the first values}
    {"steps": n}                                       {"clock", "cpu": seconds of n training steps, after a few others}
values and batches are .npz files: variables by name, columns by name.
"""
import importlib
import json
import os
import subprocess
import sys
import time

WARM_UP_STEPS = 3


class PeerError(RuntimeError):
    pass


class PeerProcess:
    """The side that asks. `missing` says why there is no such framework; else None."""

    def __init__(self, python, module, threads, folder):
        self.log = os.path.join(folder, module + ".log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([python, os.path.abspath(__file__), module, str(threads)], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})
        hello = self._answer()
        self.version, self.missing = hello.get("version"), hello.get("missing")

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            with open(self.log) as log:
                last = (log.read().strip().splitlines() or ["it ended without a word"])[-1]
            raise PeerError(last)
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed_steps(model, batches, steps):
    for step in range(WARM_UP_STEPS):
        model.train_step(batches[step % len(batches)])
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for step in range(steps):
        model.train_step(batches[step % len(batches)])
    return {"clock": time.perf_counter() - begin, "cpu": time.process_time() - cpu_begin}


def serve(module, say):
    import numpy as np

    model, batches = None, []
    for line in sys.stdin:
        request = json.loads(line)
        if "load" in request:
            model = module.Model(request["load"], request["settings"], dict(np.load(request["values"])))
            batches = [model.batch(dict(np.load(file))) for file in request["batches"]]
            say({"parameters": model.parameters()})
        elif "loss" in request:
            say({"loss": model.loss(model.batch(dict(np.load(request["loss"]))))})
        else:
            say(timed_steps(model, batches, request["steps"]))


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints goes to the log

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        module = importlib.import_module(sys.argv[1])
    except ImportError as missing:
        say({"missing": str(missing)})
        return
    module.set_threads(int(sys.argv[2]))
    say({"version": module.VERSION})
    serve(module, say)


if __name__ == "__main__":
    main()
