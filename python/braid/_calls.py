"""Callbacks and signals of a run, on the thread that called fit."""

import json
import signal
import threading

import numpy as np

from braid.callbacks import Callback, Stop


class Calls:
    """The callbacks of a run, as the module calls them."""

    def __init__(self, trainer, callbacks, history):
        self.callbacks, self.history, self.asked_to_stop = callbacks, history, False
        for each in callbacks:
            each.trainer = trainer
        own = lambda name: [c for c in callbacks if getattr(type(c), name) is not getattr(Callback, name)]
        self.steps, self.borders = own("on_step"), own("on_border")
        self.every = np.gcd.reduce([max(1, int(each.every)) for each in self.steps]).item() if self.steps else 0

    def begin(self):
        for each in self.callbacks:
            each.on_begin()

    def _call(self, callbacks, name, *arguments):
        """True asks the run to end in order."""
        for each in callbacks:
            try:
                getattr(each, name)(*arguments)
            except Stop:
                self.asked_to_stop = True
        return self.asked_to_stop

    def on_step(self, step, loss, seconds):
        due = [each for each in self.steps if (step + 1) % each.every == 0]
        return self._call(due, "on_step", step, loss, seconds)

    def on_border(self, done):
        return self._call(self.borders, "on_border", done)

    def on_evaluate(self, done, metrics):
        metrics = json.loads(metrics)
        self.history["evaluations"].append((done, metrics))
        return self._call(self.callbacks, "on_evaluate", done, metrics)

    def end(self):
        for each in self.callbacks:
            each.on_end(self.history)


class sigterm_raises:
    """SIGTERM is SystemExit(143) in the main thread, unless the program has its own way with it."""

    def __enter__(self):
        self._old = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._old = signal.signal(signal.SIGTERM, self._raise)

    def _raise(self, *_):
        raise SystemExit(143)

    def __exit__(self, *_):
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)
