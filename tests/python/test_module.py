"""The extension module: what it exports, how it loads, beside whom it lives."""

import os
import pathlib
import subprocess
import sys

import pytest

import braid as bd
from braid import _braid


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240,
                          env={**os.environ, **environment})


def test_exports_one_symbol():
    names = subprocess.run(["nm", "-D", "--defined-only", _braid.__file__], capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in names.splitlines()] == ["PyInit__braid"]


def test_command_line_is_in_the_module():
    done = subprocess.run([sys.executable, "-m", "braid", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"braid {bd.__version__}" and done.returncode == 0
    wrong = subprocess.run([sys.executable, "-m", "braid", "train"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--job" in wrong.stderr


STEPS = """
import numpy as np, sys
sys.path.insert(0, {folder!r})
import programs
history = programs.trainer().fit(steps=20)
assert len(history["loss"]) == 20 and np.isfinite(history["loss"]).all()
"""


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "onnxruntime", "grpc"])
@pytest.mark.parametrize("first", ["braid", "framework"])
def test_lives_beside_other_frameworks(framework, first):
    pytest.importorskip(framework, exc_type=ImportError) if framework != "tensorflow" else _needs_tensorflow()
    order = ["import braid", f"import {framework}"]
    code = "\n".join(order if first == "braid" else order[::-1]) + STEPS.format(folder=os.path.dirname(__file__))
    done = run(code)
    assert done.returncode == 0, done.stderr[-2000:]


def _needs_tensorflow():
    # Not imported here: what is loaded first is what the test is about.
    import importlib.util
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None:  # or what compat.v1 serves in its place
        pytest.skip("tensorflow is not installed")


def test_import_is_quick_and_brings_no_framework():
    code = ("import numpy, sys, time\nbegin = time.process_time()\nimport braid\nprint(time.process_time() - begin)\n"
            "assert not {'tensorflow', 'torch', 'keras', 'onnx', 'pyarrow'} & set(sys.modules)")
    done = [run(code) for _ in range(5)]
    assert all(each.returncode == 0 for each in done), done[0].stderr
    assert min(float(each.stdout) for each in done) < 0.3


def test_refuses_a_preloaded_malloc_in_words():
    done = run("import braid", LD_PRELOAD="/usr/lib/libjemalloc-is-not-here.so")
    assert done.returncode != 0 and "LD_PRELOAD" in done.stderr


def test_forked_child_gets_an_error():
    done = run("import os, braid as bd\n"
               "pid = os.fork()\n"
               "if pid == 0:\n"
               "    try:\n        bd.Session()\n"
               "    except bd.Internal as error:\n        os._exit(7 if 'forked' in str(error) else 1)\n"
               "    os._exit(2)\n"
               "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7")
    assert done.returncode == 0, done.stderr


PROGRAM = """
import braid as bd
x: bd.Tensor = bd.placeholder("x", [None, 3])
y: bd.Tensor = bd.ops.matmul(x, x, transpose_b=True)
wrong: int = bd.ops.reduce_sum(y)

def net(x: bd.Inputs, training: bool) -> bd.Outputs:
    logit = bd.ops.squeeze(bd.nn.dense(x["x"], 1), [-1], name="logit")
    return bd.Outputs(loss=bd.losses.sigmoid(logit, x["label"]), prediction=logit)

data = bd.data.arrays(x=[[1.0]], label=[1.0]).batch(1)
t = bd.Trainer(net, data, bd.optim.Adam(1e-3), strategy=bd.PS(consistency="ASP"))
print(t.fit(steps=1, callbacks=[bd.callbacks.Progress()])["loss"], t.evaluate(data), t.predict(data))
"""


def test_type_checkers_see_the_ops(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "program.py"], cwd=tmp_path,
                          capture_output=True, text=True, env={**os.environ, "MYPYPATH": ""}, timeout=240)
    assert done.returncode == 1 and "program.py:5" in done.stdout and done.stdout.count("error:") == 1, done.stdout


def test_the_package_itself_has_no_errors_of_types(tmp_path):
    pytest.importorskip("mypy")
    settings = pathlib.Path(__file__).parents[2] / "python" / "pyproject.toml"
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path, "-p", "braid"],
                          cwd=pathlib.Path(bd.__file__).parents[1], capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": ""}, timeout=240)
    assert done.returncode == 0, done.stdout


def test_stubs_have_the_exceptions():
    stub = pathlib.Path(bd.__file__).with_name("_braid.pyi").read_text()
    assert "class Error(Exception):\n    op: str | None" in stub
    for each in ("InvalidArgument(Error, ValueError)", "OutOfRange(Error, EOFError)", "Cancelled(Error, RuntimeError)"):
        assert stub.count(f"class {each}:") == 1


def test_the_reference_is_that_of_the_docstrings():
    from braid import _reference
    page = pathlib.Path(__file__).parents[2] / "docs" / "user" / "python_reference.md"
    assert page.read_text() == _reference.text(), "python -m braid._reference > docs/user/python_reference.md"
