"""Measures a wheel, and imports what it installs beside other frameworks.

    V/bin/python python/check_wheel.py dist/braid_train-*.whl [--peers tensorflow-cpu,torch,onnxruntime,grpcio] [--here DIR]

In a new virtual environment with NumPy and the wheel: its size and files, the symbols that the module shows, the time of
`import braid` behind `import numpy` (the median of nine processes), and 20 steps of a small model. Then each of --peers
that pip can install, or that the site-packages of --here have, imported before and behind braid, with 20 steps behind both. Exit 1 where something is beyond: more
than one symbol, 0.3 s, 60 MB, or a process that does not end with 0.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import venv
import zipfile

MOST_BYTES, MOST_SECONDS = 60e6, 0.3
MODULES = {"tensorflow-cpu": "tensorflow", "grpcio": "grpc"}
STEPS = """
import numpy as np
data = bd.data.arrays(x=np.ones((320, 4), np.float32), label=np.ones(320, np.float32))
def net(x, training):
    y = bd.ops.squeeze(bd.nn.dense(bd.nn.dense(x["x"], 8), 1), [-1])
    return bd.Outputs(loss=bd.losses.sigmoid(y, x["label"]), prediction=y)
losses = bd.Trainer(net, data.batch(16), bd.optim.SGD(0.1)).fit(steps=20)["loss"]
assert len(losses) == 20 and losses[-1] < losses[0], losses
"""
TIMED = "import numpy, time; t = time.perf_counter(); import braid; print(time.perf_counter() - t)"


def run(python, code, here=None):
    paths = f"import sys; sys.path.append({str(here)!r})\n" if here else ""
    done = subprocess.run([python, "-c", paths + code], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def describe(wheel):
    with zipfile.ZipFile(wheel) as stored:
        infos = stored.infolist()
    by_end = {}
    for each in infos:
        end = pathlib.Path(each.filename).suffix or "other"
        files, size = by_end.get(end, (0, 0))
        by_end[end] = files + 1, size + each.file_size
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(infos)} files")
    for end, (files, size) in sorted(by_end.items(), key=lambda each: -each[1][1]):
        print(f"  {end}: {files} files, {size / 1e6:.2f} MB unpacked")
    return wheel.stat().st_size <= MOST_BYTES


def symbols_are_one(python):
    code, out, _ = run(python, "import braid._braid as b; print(b.__file__)")
    listed = subprocess.run(["nm", "-D", "--defined-only", out.strip()], capture_output=True, text=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    print(f"nm -D --defined-only: {names}")
    return code == 0 and names == ["PyInit__braid"]


def import_is_fast(python):
    seconds = [float(run(python, TIMED)[1]) for _ in range(9)]
    print(f"import braid: {statistics.median(seconds):.3f} s (from {min(seconds):.3f} to {max(seconds):.3f})")
    return statistics.median(seconds) <= MOST_SECONDS


def beside(python, peer, here):
    module, good = MODULES.get(peer, peer), True
    for first, text in (("before", f"import {module}\nimport braid as bd\n"), ("behind", f"import braid as bd\nimport {module}\n")):
        code, _, error = run(python, text + STEPS, here)
        print(f"| {peer} | {first} braid | 20 steps, exit {code} |" + ("" if code == 0 else f" {error.strip().splitlines()[-1:]}"))
        good = good and code == 0
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--peers", default="", help="packages of pip, by comma")
    parser.add_argument("--here", type=pathlib.Path, help="a site-packages that has peers, which pip need not bring then")
    options = parser.parse_args()
    good = describe(options.wheel)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        install = [python, "-m", "pip", "install", "-q"]
        subprocess.run([*install, "numpy", str(options.wheel.resolve())], check=True)
        good = symbols_are_one(python) and good
        good = import_is_fast(python) and good
        code, _, error = run(python, "import braid as bd\n" + STEPS)
        print(f"| alone | | 20 steps, exit {code} |", error.strip()[-300:] if code else "")
        good = good and code == 0
        for peer in filter(None, options.peers.split(",")):
            is_here = options.here and (options.here / MODULES.get(peer, peer)).is_dir()
            if not is_here and subprocess.run([*install, peer]).returncode != 0:
                print(f"| {peer} | | pip cannot install it here |")
                continue
            good = beside(python, peer, options.here if is_here else None) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
