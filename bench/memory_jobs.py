#!/usr/bin/env python3
"""What offload, recomputation and small optimizer states save and cost on one GPU (or on the CPU, as a rewrite).

usage: memory_jobs.py [--braid BINARY] [--device CPU|CUDA] [--model mlp|transformer] [--layers N] [--width N] [--batch N]
                      [--length N] [--steps N] [--precision FP32|TF32|BF16] [--limit SHARE] [--ways WAY,...]

mlp: `--layers` hidden layers of `--width`, on random images that are as wide. transformer: `--layers` layers of dimension
`--width`, feed-forward of four times that, sequences of `--length` tokens. Ways: PLAIN, RECOMPUTE and OFFLOAD (of activations,
to `--limit` of PLAIN's arena, by runtime.recompute and runtime.offload.memory_bytes), RECOMPUTE_LAYERS, OFFLOAD_ALL (by scope),
STATES (optimizer states on the host), BOTH (OFFLOAD_ALL and STATES), all with ADAM; SGD, ADAFACTOR, ADAM_8BIT.
bench/peers/torch_memory.py has PyTorch's. Prints a JSON line a way: seconds of a step (of the step loop, as the job's result
says), MiB on the device as `braid graph plan` predicts and as the process held at most (its own allocations; what CUDA takes
itself is not among them), and the largest relative difference of a loss from PLAIN's.
"""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

import tensor_jobs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNITS = {"B": 2**-20, "KiB": 2**-10, "MiB": 1}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/cli/braid"))
    parser.add_argument("--device", choices=["CPU", "CUDA"], default="CUDA")
    parser.add_argument("--model", choices=["mlp", "transformer"], default="mlp")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=4096, help="of the mlp: a square")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--precision", choices=["FP32", "TF32", "BF16"], default="TF32")
    parser.add_argument("--limit", type=float, default=0.6)
    parser.add_argument("--ways", default="PLAIN,RECOMPUTE,OFFLOAD,RECOMPUTE_LAYERS,OFFLOAD_ALL,STATES,BOTH,"
                                          "SGD,ADAFACTOR,ADAM_8BIT")
    return parser.parse_args()


def write_job(args, folder):
    """Random rows, as many as a batch."""
    if args.model == "mlp":
        tensor_jobs.make_images(args, folder)
        path = tensor_jobs.write_job(args, folder)
    else:
        path = os.path.join(folder, "job.pbtxt")
        hidden = " ".join([f"hidden: {4 * args.width}"] * args.layers)
        words = " ".join(f'vocabulary: "w{i}"' for i in range(64))
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'''name: "memory" seed: 7 steps: {args.steps}
model {{ name: "transformer" {hidden} embedding_dim: {args.width} classes: 4 sparse_tables: false }}
input {{ format: GENERATOR generator {{ rows: {args.batch} }} global_batch_size: {args.batch} shuffle: false
  columns {{ name: "words" kind: CATEGORICAL length: {args.length} output: "tokens" {words} }}
  columns {{ name: "topic" kind: CLASS buckets: 4 }} }}
optimizer {{ kind: ADAM learning_rate: 0.0001 group {{ match: ".*/table" kind: ADAM }} }}
evaluation {{ enabled: false }}
runtime {{ device: {args.device} precision: {args.precision} {"intra_op_threads: 1" if args.device == "CPU" else ""} }}
''')
    return path


def fields_of(args, way, arena):
    layers = "mlp/(layer[0-9]+)/.*" if args.model == "mlp" else "(layer[0-9]+)/.*"
    fields = {"optimizer.kind": "ADAM", "optimizer.learning_rate": 0.0001}
    fields.update({
        "PLAIN": {},
        "RECOMPUTE": {"runtime.recompute.memory_bytes": int(args.limit * arena)},
        "OFFLOAD": {"runtime.offload.memory_bytes": int(args.limit * arena)},
        "RECOMPUTE_LAYERS": {"runtime.recompute.scope": layers},
        "OFFLOAD_ALL": {"runtime.offload.scope": ".*"},
        "STATES": {"runtime.offload.optimizer_states": "true"},
        "BOTH": {"runtime.offload.scope": ".*", "runtime.offload.optimizer_states": "true"},
        "SGD": {"optimizer.kind": "SGD"},
        "ADAFACTOR": {"optimizer.kind": "ADAFACTOR"},
        "ADAM_8BIT": {"optimizer.kind": "ADAM_8BIT"},
    }[way])
    return [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]


class MostHeld(threading.Thread):
    """MiB that the process says it holds on its device."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.over, self.most, self.why = port, threading.Event(), 0, "no answer"

    def run(self):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not self.over.wait(0.05):
            try:
                with direct.open(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                    found = re.findall(r"^braid_device_memory_held_bytes.* (\S+)$", answer.read().decode(), re.M)
                self.most = max([self.most, *(float(x) / 2**20 for x in found)])
                self.why = "" if self.most else "the answer says nothing of the device's memory"
            except OSError as error:
                self.why = self.why and str(error)


def run(args, job, folder, way, arena):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    steps = os.path.join(folder, "steps.jsonl")
    held = MostHeld(port)
    held.start()
    done = subprocess.run([args.braid, "train", "--job", job, "--data-dir", folder, "--set", f"metrics.steps_file={steps}",
                           "--set", f"metrics.listen=127.0.0.1:{port}"] + fields_of(args, way, arena),
                          capture_output=True, text=True, timeout=1800, env={**os.environ, "BRAID_PROGRESS": "off"})
    held.over.set()
    held.join()
    if done.returncode != 0:
        raise SystemExit(f"{way}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    result = json.loads(re.findall(r"result: (\{.*\})", done.stdout)[0])
    with open(steps, encoding="utf-8") as file:
        losses = [json.loads(line)["loss"] for line in file]
    os.remove(steps)
    if held.why and args.device == "CUDA":
        print(f"{way}: memory held is not known: {held.why}", file=sys.stderr)
    return result["seconds"] / result["steps"], held.most, losses


def planned(args, job, folder, way, arena):
    """MiB on the device and on the host, and bytes of the arena."""
    shown = subprocess.run([args.braid, "graph", "plan", "--job", job, "--data-dir", folder]
                           + fields_of(args, way, arena), check=True, capture_output=True, text=True).stdout
    size = lambda text: float(text[0]) * UNITS[text[1]]
    amount = r"([\d.]+) (B|KiB|MiB)"
    whole = re.search(rf"on the device: {amount}: variables {amount}, arena {amount}.*on the host: variables {amount}, "
                      rf"arena {amount}", shown)
    if not whole:  # a program of the CPU
        arena_mib = size(re.search(rf"memory: arena {amount}", shown).groups())
        return 0, 0, arena_mib * 2**20
    found = whole.groups()
    return size(found[0:2]), size(found[6:8]) + size(found[8:10]), size(found[4:6]) * 2**20


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(args, folder)
        _, _, arena = planned(args, job, folder, "PLAIN", 0)
        plain = None
        for way in args.ways.split(","):
            try:
                device, host, of_way = planned(args, job, folder, way, arena)
                seconds, held, losses = run(args, job, folder, way, arena)
            except (SystemExit, subprocess.CalledProcessError) as error:
                print(json.dumps({"way": way, "error": str(getattr(error, "stderr", error))[-400:]}), flush=True)
                continue
            plain = plain or losses
            apart = max(abs(a - b) / abs(b) for a, b in zip(losses, plain))
            print(json.dumps({"bench": "memory_jobs", "model": args.model, "way": way, "step_ms": round(1e3 * seconds, 3),
                              "planned_mib": round(device, 1), "held_mib": round(held, 1),
                              "planned_of_held": round(device / held, 3) if held else None, "arena_mib": round(of_way / 2**20, 1),
                              "host_mib": round(host, 1), "losses_apart": float(f"{apart:.1e}")}), flush=True)


if __name__ == "__main__":
    main()
