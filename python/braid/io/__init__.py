"""Models of other programs as the model of a Trainer, and weights back into them.

    src = bd.io.keras(model, loss=keras.losses.BinaryCrossentropy(from_logits=True))
    src = bd.io.graph("model.meta", loss="loss:0", prediction="logits", feeds={"label": "IteratorGetNext:1"})
    src = bd.io.onnx("model.onnx", attach="sigmoid", prediction="logits")
    bd.Trainer(src, data.batch(512), bd.optim.Adam(1e-3)).fit(epochs=1)
    src.write_back()
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from braid import _braid
from braid.data import Word

if TYPE_CHECKING:
    from braid.io._keras import KerasSource
    from braid.io._torch import TorchSource

File = str | os.PathLike[str]


class Source:
    """A model that a file has. Fields are those of model.graph in a job."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.trainer: Any = None
        self.metric: str | None = None  # that its loss asks for, where the Trainer has none
        self.columns: dict[str, Any] = {}  # of the data, by name, where a Trainer has told; of files without their rows

    def __repr__(self) -> str:
        told = f" '{self._fields['file']}'" if "file" in self._fields else ""
        return f"<braid.io.{type(self).__name__}{told}>"

    def job_fields(self, folder: str, label: str) -> dict[str, Any]:
        """`model` of a job; files that are made go into `folder`."""
        return {"graph": {"label": label, **self._fields}}

    def numbers(self, arrays: Any) -> Any:
        """Columns by name, where strings are what the model makes of them."""
        return arrays

    def write_back(self, file: File) -> None:
        """Writes the trained variables: as .npz; as .onnx, of an ONNX model that model with its trained values; else as
        a TensorFlow checkpoint with that prefix."""
        values = dict(self._trained())
        if str(file).endswith(".npz"):
            np.savez(file, **values)
        elif str(file).endswith(".onnx"):
            if not str(self._fields.get("file", "")).endswith(".onnx"):
                raise _braid.InvalidArgument(f"{self!r} is no ONNX model: write_back writes .npz, or a TensorFlow checkpoint")
            _braid.write_onnx(self._fields["file"], str(file), values)
        else:
            _braid.write_bundle(str(file), {name: np.ascontiguousarray(value) for name, value in values.items()})

    def _trained(self) -> Mapping[str, Any]:
        if self.trainer is None:
            raise _braid.InvalidArgument("no Trainer has this model: there is nothing to write back")
        return self.trainer.variables


class _GraphSource(Source):
    """A graph's file, whose placeholders of strings are fed by arrays of strings."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._text: Any = None

    def job_fields(self, folder: str, label: str) -> dict[str, Any]:
        from braid.io._graph_text import GraphText
        from braid.io._text import is_text
        texts = [name for name, value in self.columns.items() if isinstance(value, np.ndarray) and is_text(value)]
        feeds = list(self._fields.get("feeds", []))
        if texts:
            given = {each["value"]: each["column"] for each in feeds if each.get("column") in texts}
            given.update((name, name) for name in texts if name not in given.values())
            roots = [self._fields[key] for key in ("loss", "prediction") if self._fields.get(key)]
            self._text = GraphText(self._fields["file"], roots, given)
            feeds = [each for each in feeds if each.get("column") not in texts]
            feeds += [{"value": value, "column": column} for value, column in zip(self._text.names, self._text.columns())]
        return {"graph": {"label": label, **self._fields, **({"feeds": feeds} if feeds else {})}}

    def numbers(self, arrays: Any) -> Any:
        if self._text is None:
            return arrays
        missing = [each for each in self._text.texts if each not in arrays]
        if missing:
            raise _braid.InvalidArgument(f"the data has no column '{missing[0]}': it has {sorted(arrays)}")
        made = {name: value for name, value in arrays.items() if name not in self._text.texts}
        return {**made, **self._text.compute(arrays)}


def _feeds(feeds: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """{column or value: value, or a constant} as the job's feeds."""
    made: list[dict[str, Any]] = []
    for name, value in (feeds or {}).items():
        if isinstance(value, str):
            made.append({"value": value, "column": name})
        elif isinstance(value, tuple):
            made.append({"value": name, "constant": _text(value[0]), "eval": _text(value[1])})
        else:
            made.append({"value": name, "constant": _text(value)})
    return made


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def graph(path: File, loss: str | None = None, *, prediction: str | None = None, feeds: Mapping[str, Any] | None = None,
          attach: str | None = None, trainable: str | None = None, frozen: str | None = None, promote: str | None = None,
          updates: Iterable[str] | None = None, inference_file: File | None = None, keep_gradients: str | None = None,
          initial_file: File | None = None) -> Source:
    """A GraphDef, MetaGraphDef, SavedModel folder or ONNX file. loss, or attach: "sigmoid", "softmax" or "squared" on
    `prediction` and the label. feeds: {column: "value"}, {"value": constant}, {"value": (constant, in evaluations)}.
    keep_gradients: the train_op whose gradients are kept. Arrays of strings feed placeholders of strings.
    docs/user/train_any_graph.md says what each does."""
    fields = {"file": os.path.abspath(path), "loss": loss, "prediction": prediction, "feeds": _feeds(feeds),
              "attach": {"kind": Word(attach.upper())} if attach else None, "trainable": trainable, "frozen": frozen,
              "promote": promote, "updates": list(updates) if updates else None,
              "inference_file": inference_file and os.path.abspath(inference_file),
              "initial_file": initial_file and os.path.abspath(initial_file)}
    if keep_gradients:
        fields.update(gradients=Word("KEEP"), train_op=keep_gradients)
    return _GraphSource({key: value for key, value in fields.items() if value})


def onnx(path: File, loss: str | None = None, **settings: Any) -> Source:
    """An ONNX model, whose float initializers are trained; settings as for graph()."""
    return graph(path, loss, **settings)


def keras(model: Any, loss: Any = None, label: Any = None, inputs: Any = None, output: int | None = None,
          weight: str | None = None) -> KerasSource:
    """A Keras model (TensorFlow backend): traced with training=True and False. loss: a function (label, output), a Keras
    loss or its name, lists or dicts of them by output; default what the model was compiled with, its weights too, or the
    compute_loss of its class. What layers add (regularizers, add_loss) is added. As in Keras, places that a mask of the
    output leaves out have no loss. label: the column, a list or a dict by output. inputs: columns by the order of the
    model's inputs, default their names; {key: column} for a model of a class of its own that takes a dict. output: the
    number of the output that is the prediction, default the first that has a loss. weight: the column of the rows' weights,
    Keras' sample_weight; a class_weight is a column of the weights of the rows' classes. Throws: InvalidArgument, also for
    constraints of weights, and for a train_step of the model's class where no loss is given."""
    from braid.io._keras import KerasSource
    return KerasSource(model, loss, label, inputs, output, weight)


def torch(program: Any, loss: Any = None, label: str | None = None, *, inputs: Mapping[str, str] | None = None,
          output: int | None = None, freeze: str | None = None, tables: str | None = None, example_label: Any = None,
          inference: Any = None) -> TorchSource:
    """An ExportedProgram of PyTorch, of torch.export.export(module.train(), ...) with a dynamic first dimension. loss:
    "cross_entropy", "binary_cross_entropy_with_logits", "mse_loss" or a function (output, label) of PyTorch, such as a
    module of torch.nn; None: the first output is the loss, and the label is an input. inputs: {input: column}, default
    their names, of dicts their keys. output: the number of the output that is the prediction. freeze: a pattern of
    parameters that stay. tables: a pattern of embeddings that are trained by rows; default those with sparse=True.
    example_label: a tensor for a loss whose label cannot be guessed. Dropout and batch normalisation are as in eval()
    where the model predicts; inference: the ExportedProgram of module.eval() for that, of a module that asks for
    self.training itself. Throws: InvalidArgument naming each node."""
    from braid.io._torch import TorchSource
    return TorchSource(program, loss, label, inputs, output, freeze, tables, example_label, inference)
