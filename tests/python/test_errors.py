"""Errors of the engine are Python's."""

import os
import signal
import subprocess
import sys
import time

import pytest

import braid as bd

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
