"""What a Trainer has trained: predictions and metrics of it, its variables, and files of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from braid import _braid, data as _data
from braid.dtypes import from_native, to_native
from braid.graph import Graph


class Variables(Mapping[str, Any]):
    """Trained values by name."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def _values(self) -> Mapping[str, Any]:
        return self._trainer._current_values()

    def __getitem__(self, name: str) -> Any:
        self._trainer._need([name])
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {np.asarray(value).dtype} {list(np.shape(value))}" for name, value in self._values().items())


class Trained:
    """The part of a Trainer that does not train."""

    data: Any  # these are a Trainer's
    eval_data: Any
    strategy: Any
    _job: Any
    _model: Any
    _numbers: Any
    _rows: Any
    _runner: Any
    _set: list[str]
    _shapes: Any
    _take_steps: Any

    # ------------------------------------------------------------------------------------------------- forward passes
    def _set_values(self, values: dict[str, Any]) -> None:
        self._values = values
        if self._runner is not None:
            self._runner.set_values({name: to_native(value) for name, value in values.items()})

    def _find_elsewhere(self) -> None:
        """Tables of parameter servers, and parts of tables and of other variables that other workers have."""
        said = "shard" in self.strategy.settings or any(each.startswith("strategy.") for each in self._set)
        if self.strategy.kind in ("LOCAL", "ALLREDUCE", "MIRRORED") and not said:
            self._elsewhere = []
            return
        whole = _braid.Runner(self._job(steps=1), self._shapes()).values()
        self._elsewhere = [name for name, value in whole.items() if name not in self._values or
                           np.shape(self._values[name]) != np.shape(from_native(value))]

    def _need(self, names: Iterable[str] | None = None) -> None:
        """Throws: InvalidArgument where trained values are not in this process, so that none takes others for them."""
        away = [name for name in self._elsewhere if names is None or name in names]
        if away:
            raise _braid.InvalidArgument(
                f"the trained values of '{away[0]}' are not in this process: under strategy {self.strategy.kind} servers "
                "or other workers have them. Train with checkpoint=..., and read that: `braid predict`, `braid "
                "evaluate`, or fit(resume=True)")

    def _forward(self) -> Any:
        self._need()
        return self._whole_model()

    def _whole_model(self) -> Any:
        self._take_steps()
        if self._runner is None:
            self._runner = _braid.Runner(self._job(steps=1), self._shapes())
            self._runner.set_values({name: to_native(value) for name, value in self._values.items()})
        return self._runner

    def evaluate(self, data: _data.Data | None = None) -> dict[str, Any]:
        """Metrics by name, of `data` or the eval_data."""
        data = data or self.eval_data
        if data is None:
            raise _braid.InvalidArgument("there is nothing to evaluate on: evaluate(data), or Trainer(eval_data=...)")
        return json.loads(self._forward().evaluate(self._rows(data if data is self.eval_data else self._numbers(data))))

    def predict(self, data: _data.Data | Mapping[str, Any], output: str | None = None) -> Any:
        """What the model predicts of each row: probabilities, values, or of classes their probabilities. `data`: of
        bd.data, or a dict of arrays; columns of labels may be left out. `output`: "logit", "class", ..."""
        if isinstance(data, Mapping):
            data = _data.arrays(**data)
        data = data if data is self.data or data is self.eval_data else self._numbers(data)
        runner = self._forward()
        offered = runner.outputs()
        if not offered:
            raise _braid.InvalidArgument("the model predicts nothing: Outputs(prediction=...)")
        wanted = output or next((each for each in ("probability", "probabilities", "value") if each in offered),
                                offered[0])
        if wanted not in offered:
            raise _braid.InvalidArgument(f"the model has no output '{wanted}': it has {offered}")
        return from_native(runner.predict(self._rows(data), [wanted])[0])

    def _current_values(self) -> dict[str, Any]:
        self._take_steps()
        if not self._values:
            return {name: from_native(value) for name, value in self._whole_model().values().items()}
        return self._values

    # ------------------------------------------------------------------------------------------------------ save, load
    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes all variables and slots, and the number of steps, as .npz."""
        self._need()
        values: dict[str, Any] = {"__step__": np.int64(self._step), **self._current_values()}
        np.savez(file, **values)

    def load(self, file: str | os.PathLike[str]) -> None:
        """Takes variables from a file of save(), from another .npz, or from a TensorFlow checkpoint (its prefix), with a
        value for each variable."""
        path = str(file)
        if os.path.exists(path + ".index"):
            values = _braid.read_bundle(path)
        else:
            path = path if path.endswith(".npz") else path + ".npz"
            with np.load(path) as stored:
                values = {name: stored[name] for name in stored.files}
        known = self._whole_model().values()
        missing = [name for name in known if name not in values]
        if missing:
            raise _braid.InvalidArgument(f"'{path}' has no value for variable '{missing[0]}'")
        self._step = int(values.pop("__step__", 0))
        self._elsewhere = []
        self._set_values(values)

    def export(self, file: str | os.PathLike[str], inference: bool = True) -> None:
        """Writes the model's graph as a GraphDef."""
        source = self._model["graph"]["inference_file" if inference and "inference_file" in self._model["graph"]
                                      else "file"]
        Graph.load(source).write(file)
