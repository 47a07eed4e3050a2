"""What Trainer.fit calls while it trains: on the thread that called fit, between steps. What a callback raises stops the
run behind the step, with a checkpoint, and is raised by fit."""

from __future__ import annotations

import csv
import json
import os
import struct
import time
from collections.abc import Mapping
from typing import Any

from braid.settings import History

File = str | os.PathLike[str]


class Callback:
    """Subclasses define what they want. `every`: steps between calls of on_step."""

    every: int = 1
    trainer: Any = None

    def on_begin(self) -> None:
        """Before the run."""

    def on_step(self, step: int, loss: float, seconds: float) -> None:
        """Behind step `step` (from 0), each `every` steps."""

    def on_border(self, done: int) -> None:
        """The leader has evaluated or saved behind `done` steps; no step in flight."""

    def on_evaluate(self, done: int, metrics: Mapping[str, Any]) -> None:
        """`metrics`: numbers by name, behind `done` steps."""

    def on_end(self, history: History) -> None:
        """The run has ended in order."""


class Stop(Exception):
    """A callback raises it to end the run in order: fit returns."""


class EarlyStopping(Callback):
    """Ends the run when `metric` has not got better in `patience` evaluations."""

    def __init__(self, metric: str, patience: int = 3, higher_is_better: bool = True) -> None:
        self.metric, self.patience, self.sign = metric, patience, 1 if higher_is_better else -1
        self.best: float | None = None
        self.bad = 0

    def on_evaluate(self, done: int, metrics: Mapping[str, Any]) -> None:
        value = self.sign * metrics[self.metric]
        self.bad = 0 if self.best is None or value > self.best else self.bad + 1
        self.best = value if self.best is None else max(self.best, value)
        if self.bad >= self.patience:
            raise Stop


class CSVLog(Callback):
    """A line each `every` steps: step, loss, seconds."""

    def __init__(self, file: File, every: int = 1) -> None:
        self.file, self.every = file, every

    def on_begin(self) -> None:
        self._out = open(self.file, "w", newline="")
        self._writer = csv.writer(self._out)
        self._writer.writerow(["step", "loss", "seconds"])

    def on_step(self, step: int, loss: float, seconds: float) -> None:
        self._writer.writerow([step, repr(loss), repr(seconds)])

    def on_end(self, history: History) -> None:
        self._out.close()


class Progress(Callback):
    """A line each `every` steps, to standard output."""

    def __init__(self, every: int = 100) -> None:
        self.every = every

    def on_step(self, step: int, loss: float, seconds: float) -> None:
        print(f"step {step + 1}: loss {loss:.6f}", flush=True)


def _crc_table() -> list[int]:
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0x82F63B78 if c & 1 else c >> 1
        table.append(c)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> int:
    c = 0xFFFFFFFF
    for byte in data:
        c = _CRC[(c ^ byte) & 0xFF] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class TensorBoard(Callback):
    """Writes the loss each `every` steps and evaluations' metrics as scalars that TensorBoard shows."""

    def __init__(self, directory: File, every: int = 10) -> None:
        self.directory, self.every = directory, every

    def on_begin(self) -> None:
        os.makedirs(self.directory, exist_ok=True)
        self._out = open(os.path.join(self.directory, f"events.out.tfevents.{int(time.time())}.braid"), "ab")
        self._event(b"\x1a" + _varint(13) + b"brain.Event:2")

    def _event(self, content: bytes) -> None:
        data = b"\x09" + struct.pack("<d", time.time()) + content
        length = struct.pack("<Q", len(data))
        self._out.write(length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data)))

    def _scalar(self, step: int, tag: str, value: float) -> None:
        name = tag.encode()
        one = b"\x0a" + _varint(len(name)) + name + b"\x15" + struct.pack("<f", value)
        summary = b"\x0a" + _varint(len(one)) + one
        self._event(b"\x10" + _varint(step) + b"\x2a" + _varint(len(summary)) + summary)

    def on_step(self, step: int, loss: float, seconds: float) -> None:
        self._scalar(step + 1, "loss", loss)

    def on_evaluate(self, done: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if isinstance(value, (int, float)):
                self._scalar(done, f"evaluation/{name}", value)
        self._out.flush()

    def on_end(self, history: History) -> None:
        self._out.close()


class JSONLog(Callback):
    """A JSON object a line, each `every` steps and behind each evaluation."""

    def __init__(self, file: File, every: int = 1) -> None:
        self.file, self.every = file, every

    def on_begin(self) -> None:
        self._out = open(self.file, "w")

    def on_step(self, step: int, loss: float, seconds: float) -> None:
        self._out.write(json.dumps({"step": step, "loss": loss, "seconds": seconds}) + "\n")

    def on_evaluate(self, done: int, metrics: Mapping[str, Any]) -> None:
        self._out.write(json.dumps({"done": done, **metrics}) + "\n")

    def on_end(self, history: History) -> None:
        self._out.close()
