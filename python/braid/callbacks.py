"""What Trainer.fit calls while it trains: on the thread that called fit, between steps. What a callback raises stops the
run behind the step, with a checkpoint, and is raised by fit."""

import csv
import json
import os
import struct
import time


class Callback:
    """Subclasses define what they want. `every`: steps between calls of on_step."""

    every = 1
    trainer = None

    def on_begin(self):
        """Before the run."""

    def on_step(self, step, loss, seconds):
        """Behind step `step` (from 0), each `every` steps."""

    def on_border(self, done):
        """The leader has evaluated or saved behind `done` steps; no step in flight."""

    def on_evaluate(self, done, metrics):
        """`metrics`: numbers by name, behind `done` steps."""

    def on_end(self, history):
        """The run has ended in order."""


class Stop(Exception):
    """A callback raises it to end the run in order: fit returns."""


class EarlyStopping(Callback):
    """Ends the run when `metric` has not got better in `patience` evaluations."""

    def __init__(self, metric, patience=3, higher_is_better=True):
        self.metric, self.patience, self.sign = metric, patience, 1 if higher_is_better else -1
        self.best, self.bad = None, 0

    def on_evaluate(self, done, metrics):
        value = self.sign * metrics[self.metric]
        self.bad = 0 if self.best is None or value > self.best else self.bad + 1
        self.best = value if self.best is None else max(self.best, value)
        if self.bad >= self.patience:
            raise Stop


class CSVLog(Callback):
    """A line each `every` steps: step, loss, seconds."""

    def __init__(self, file, every=1):
        self.file, self.every = file, every

    def on_begin(self):
        self._out = open(self.file, "w", newline="")
        self._writer = csv.writer(self._out)
        self._writer.writerow(["step", "loss", "seconds"])

    def on_step(self, step, loss, seconds):
        self._writer.writerow([step, repr(loss), repr(seconds)])

    def on_end(self, history):
        self._out.close()


class Progress(Callback):
    """A line each `every` steps, to standard output."""

    def __init__(self, every=100):
        self.every = every

    def on_step(self, step, loss, seconds):
        print(f"step {step + 1}: loss {loss:.6f}", flush=True)


def _crc_table():
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0x82F63B78 if c & 1 else c >> 1
        table.append(c)
    return table


_CRC = _crc_table()


def _masked_crc(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = _CRC[(c ^ byte) & 0xFF] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class TensorBoard(Callback):
    """Writes the loss each `every` steps and evaluations' metrics as scalars that TensorBoard shows."""

    def __init__(self, directory, every=10):
        self.directory, self.every = directory, every

    def on_begin(self):
        os.makedirs(self.directory, exist_ok=True)
        self._out = open(os.path.join(self.directory, f"events.out.tfevents.{int(time.time())}.braid"), "ab")
        self._event(b"\x1a" + _varint(13) + b"brain.Event:2")

    def _event(self, content):
        data = b"\x09" + struct.pack("<d", time.time()) + content
        length = struct.pack("<Q", len(data))
        self._out.write(length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data)))

    def _scalar(self, step, tag, value):
        tag = tag.encode()
        one = b"\x0a" + _varint(len(tag)) + tag + b"\x15" + struct.pack("<f", value)
        summary = b"\x0a" + _varint(len(one)) + one
        self._event(b"\x10" + _varint(step) + b"\x2a" + _varint(len(summary)) + summary)

    def on_step(self, step, loss, seconds):
        self._scalar(step + 1, "loss", loss)

    def on_evaluate(self, done, metrics):
        for name, value in metrics.items():
            if isinstance(value, (int, float)):
                self._scalar(done, f"evaluation/{name}", value)
        self._out.flush()

    def on_end(self, history):
        self._out.close()


class JSONLog(Callback):
    """A JSON object a line, each `every` steps and behind each evaluation."""

    def __init__(self, file, every=1):
        self.file, self.every = file, every

    def on_begin(self):
        self._out = open(self.file, "w")

    def on_step(self, step, loss, seconds):
        self._out.write(json.dumps({"step": step, "loss": loss, "seconds": seconds}) + "\n")

    def on_evaluate(self, done, metrics):
        self._out.write(json.dumps({"done": done, **metrics}) + "\n")

    def on_end(self, history):
        self._out.close()
