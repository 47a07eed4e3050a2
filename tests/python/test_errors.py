"""Errors of the engine are Python's."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import braid as bd
import programs

BUILTIN = {"InvalidArgument": ValueError, "Unavailable": ConnectionError, "DeadlineExceeded": TimeoutError,
           "OutOfMemory": MemoryError, "DataLoss": OSError, "OutOfRange": EOFError, "Internal": RuntimeError}


@pytest.mark.parametrize("name", BUILTIN)
def test_each_is_also_the_builtin(name):
    assert issubclass(getattr(bd, name), bd.Error) and issubclass(getattr(bd, name), BUILTIN[name])


def test_a_wrong_job_is_refused_with_the_field():
    from braid import _braid
    with pytest.raises(ValueError, match="stepz"):
        _braid.job_text("stepz: 1", [])


PROGRAM = """
import sys, os, signal, threading
sys.path.insert(0, {folder!r})
import braid as bd, programs
class Tell(bd.callbacks.Callback):
    every = 5
    def on_step(self, step, loss, seconds):
        if step == 24: print("training", flush=True)
t = programs.trainer(checkpoint={checkpoint!r})
try:
    t.fit(steps=10**7, callbacks=[Tell()])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 3), (signal.SIGTERM, 143)])
def test_signals_end_fit_with_a_checkpoint(tmp_path, sent, code):
    checkpoint = tmp_path / "checkpoints"
    text = PROGRAM.format(folder=os.path.dirname(__file__), checkpoint=str(checkpoint))
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "training"
    begin = time.monotonic()
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - begin
    assert process.returncode == code, err[-2000:]
    assert took < 10  # two seconds on a quiet machine
    assert any(checkpoint.iterdir())


def test_a_failing_callback_ends_the_run_and_is_raised():
    sys.path.insert(0, os.path.dirname(__file__))
    import programs

    class Fails(bd.callbacks.Callback):
        def on_step(self, step, loss, seconds):
            if step == 3:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        programs.trainer().fit(steps=50, callbacks=[Fails()])


@pytest.mark.parametrize("name, code", [("InvalidArgument", 2), ("Unavailable", 138), ("Internal", 1)])
def test_exit_codes_are_those_of_the_binary(name, code):
    done = subprocess.run([sys.executable, "-c", f"import braid as bd\nraise bd.{name}('why')"], capture_output=True,
                          text=True)
    assert done.returncode == code and "why" in done.stderr


class Raise(bd.callbacks.Callback):
    """Behind step 5, once: an exception, or Ctrl-C."""

    def __init__(self, raised=None):
        self.raised = raised

    def on_step(self, step, loss, seconds):
        if step == 5 and self.raised is not None:
            raise self.raised
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), ValueError("mine"), None])
def test_an_interrupted_fit_keeps_what_was_trained_and_goes_on(raised):
    t = programs.trainer()
    with pytest.raises(type(raised) if raised is not None else KeyboardInterrupt):
        t.fit(steps=100_000, callbacks=[Raise(raised)])
    done = t._step
    assert 6 <= done < 100_000
    t.fit(steps=3)
    whole = programs.trainer()
    whole.fit(steps=done + 3)
    for name, value in whole.variables.items():
        np.testing.assert_array_equal(t.variables[name], value, name)


def test_what_is_printed_of_objects(tmp_path):
    t = programs.trainer()
    history = t.fit(steps=2)
    assert repr(history).startswith("<braid.History of 2 steps: loss 0.") and len(repr(history)) < 120
    assert "Adam(learning_rate=" in repr(t) and "Local()" in repr(t) and "2 steps done" in repr(t)
    assert "wide/kernel: float32 [4, 1]" in repr(t.variables)
    assert repr(bd.PS(consistency="ASP")) == "PS(consistency='ASP')"
    assert repr(bd.data.arrays(x=np.zeros((3, 2))).batch(3)) == "<braid.data.Arrays: 3 rows of x float64[2], batches of 3>"
    assert repr(bd.data.csv("a.csv", [])) == f"<braid.data.Files: CSV {os.path.abspath('a.csv')}, no batches>"
    assert "'model.pb'" in repr(bd.io.graph("/a/model.pb", "loss")).replace("/a/", "")


def test_a_trainers_job_is_what_was_set():
    text = programs.trainer(streams=2).job
    assert "count: 2" in text and "learning_rate" in text
    for unset in ("mixture", "compression", "timed", "rho", "hooks", "shard: ALL"):
        assert unset not in text, unset
    with pytest.raises(bd.InvalidArgument, match="streps"):
        programs.trainer(set=["streps=3"]).job
