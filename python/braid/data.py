"""Data of a Trainer: arrays in memory, or files that the job's own readers read.

    bd.data.arrays(dense=X, ids=I, label=y).batch(256)
    bd.data.csv("part-*.csv", [col.numeric("age"), col.categorical("city", buckets=100), col.label("clicked")])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from braid import _braid
from braid.dtypes import to_native

if TYPE_CHECKING:
    from typing_extensions import Self

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Columns = Sequence[dict[str, Any]]


def _quoted(text: str) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def fields(values: Any, indent: str = "  ") -> str:
    """Fields of a text protobuf from a dict: numbers, booleans, upper-case words (enums), {"text": ...} as text, dicts as
    messages, lists repeated."""
    lines = []
    for key, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each is None:
                continue
            if isinstance(each, dict):
                lines.append(f"{indent}{key} {{\n{fields(each, indent + '  ')}{indent}}}\n")
            elif isinstance(each, bool):
                lines.append(f"{indent}{key}: {str(each).lower()}\n")
            elif isinstance(each, (int, float, np.integer, np.floating)):
                lines.append(f"{indent}{key}: {each!r}\n" if not isinstance(each, np.generic) else
                             f"{indent}{key}: {each.item()!r}\n")
            elif isinstance(each, Word):
                lines.append(f"{indent}{key}: {each}\n")
            else:
                lines.append(f"{indent}{key}: {_quoted(each)}\n")
    return "".join(lines)


class Word(str):
    """The name of an enum's value."""


class col:
    """Columns of a schema, as `columns` of a job: further settings are its fields (length, scale, output, ...)."""

    @staticmethod
    def numeric(name: str, **settings: Any) -> dict[str, Any]:
        return {"name": name, "kind": Word("NUMERIC"), **settings}

    @staticmethod
    def categorical(name: str, buckets: int | None = None, **settings: Any) -> dict[str, Any]:
        return {"name": name, "kind": Word("CATEGORICAL"), "buckets": buckets, **settings}

    @staticmethod
    def label(name: str, **settings: Any) -> dict[str, Any]:
        return {"name": name, "kind": Word("LABEL"), **settings}

    @staticmethod
    def classes(name: str, **settings: Any) -> dict[str, Any]:
        return {"name": name, "kind": Word("CLASS"), **settings}

    @staticmethod
    def weight(name: str, **settings: Any) -> dict[str, Any]:
        return {"name": name, "kind": Word("WEIGHT"), **settings}

    @staticmethod
    def text(name: str, length: int | None = None, separator: str = "|") -> dict[str, Any]:
        """A field's text, for models of bd.io that take strings. length: of a list, whose texts `separator` parts: more are
        cut off, and empty ones fill it."""
        return {"name": name, "kind": Word("SKIP"), "text": (length, separator)}

    @staticmethod
    def skip(name: str) -> dict[str, Any]:
        return {"name": name, "kind": Word("SKIP")}


class Data:
    """Rows of columns and how batches are cut from them."""

    def __init__(self, input_fields: dict[str, Any]) -> None:
        self.input_fields = input_fields
        self.settings: dict[str, Any] = {}

    def batch(self, rows: int, shuffle: bool = True, shard: str = "ALL", carry_remainder: bool = False,
              shuffle_buffer: int = 0) -> Self:
        """Batches of `rows` rows of all workers together. shard: ALL, FILES, ROWS or DYNAMIC (input.shard)."""
        if isinstance(rows, str) or int(rows) != rows:
            raise _braid.InvalidArgument(f"batch: rows must be an integer, got {rows!r}")
        made = self._copy()
        made.settings = {"global_batch_size": int(rows), "shuffle": bool(shuffle), "shard": Word(shard),
                         "carry_remainder": carry_remainder or None, "shuffle_buffer": shuffle_buffer or None}
        return made

    def __repr__(self) -> str:
        batches = f", batches of {self.rows_per_batch}" if self.rows_per_batch else ", no batches"
        return f"<braid.data.{type(self).__name__}: {self._told()}{batches}>"

    def _told(self) -> str:
        return str(self.input_fields.get("format", ""))

    def _copy(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    @property
    def rows_per_batch(self) -> int | None:
        return self.settings.get("global_batch_size")


def _is_ragged_tensor(value: Any) -> bool:
    """Whether it is a tf.RaggedTensor, without an import of TensorFlow."""
    return hasattr(value, "to_list") and hasattr(value, "row_lengths")


class Ragged:
    """Rows of different lengths, of numbers: what bd.data.ragged() gives."""

    dtype = np.dtype(object)  # as no array of numbers has
    ndim = 2

    def __init__(self, rows: Any, length: int | None = None) -> None:
        if _is_ragged_tensor(rows):
            if len(rows.shape) != 2:
                raise _braid.InvalidArgument(f"ragged rows of {len(rows.shape)} dimensions: 2 are taken")
            rows = rows.to_list()
        self.rows = [np.asarray(row) for row in rows]
        if any(row.ndim != 1 for row in self.rows):
            raise _braid.InvalidArgument("ragged rows must be lists of numbers")
        self.lengths = np.array([len(row) for row in self.rows], np.int64)
        self.longest = int(self.lengths.max()) if len(self.lengths) else 0
        self.length = self.longest if length is None else int(length)
        kinds = [row.dtype for row in self.rows if row.size]
        self.kind = np.result_type(*kinds) if kinds else np.dtype(np.int64)
        if self.longest > self.length:
            raise _braid.InvalidArgument(f"ragged rows have {self.longest} elements at most, and length is {self.length}")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int | None]:
        return (len(self.rows), None)

    def filled(self, length: int) -> Any:
        """[rows, length] with zeros behind the ends."""
        return padded(self.rows, length)


def ragged(rows: Any, length: int | None = None) -> Ragged:
    """Rows of different lengths (lists, arrays, a tf.RaggedTensor of two dimensions), for a model of Keras with a ragged
    input. length: the most elements of a row that will come, also in evaluations and predictions; default the longest's."""
    return Ragged(rows, length)


def _as_array(name: str, value: Any) -> Any:
    if isinstance(value, Ragged):
        return value
    if _is_ragged_tensor(value):
        return Ragged(value)
    try:
        made = np.asarray(value)
    except ValueError:
        made = None
    if made is None or made.dtype == object and made.size and isinstance(made.reshape(-1)[0], (list, tuple, np.ndarray)):
        raise _braid.InvalidArgument(f"array '{name}' has rows of different lengths: bd.data.padded(rows, length, value=0) "
                                     "fills them (a model masks them: Keras' mask_zero=True, or x != 0); "
                                     "bd.data.ragged(rows) is for ragged inputs of Keras")
    return made


class Arrays(Data):
    """Columns from arrays; the first dimension are the rows. Floats become float32, integers int64; memory that has
    these types is read in place and must not change while a Trainer uses it."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__({"format": Word("NPY")})
        for name, value in arrays.items():
            if np.ma.is_masked(value):
                raise _braid.InvalidArgument(f"array '{name}' is masked: fill its missing values, as with filled()")
        self.arrays = {name: _as_array(name, value) for name, value in arrays.items()}
        self._rows: Any = None

    def _told(self) -> str:
        rows = len(next(iter(self.arrays.values()), ()))
        return f"{rows} rows of " + ", ".join(f"{name} {value.dtype}{list(value.shape[1:]) if value.ndim > 1 else ''}"
                                              for name, value in self.arrays.items())

    def with_arrays(self, arrays: Mapping[str, Any]) -> Arrays:
        """These columns, with the same batches."""
        made = self._copy()
        made.arrays, made._rows = {name: _as_array(name, value) for name, value in arrays.items()}, None
        return made

    def rows(self) -> Any:
        if self._rows is None:
            uneven = [name for name, value in self.arrays.items() if isinstance(value, Ragged)]
            if uneven:
                raise _braid.InvalidArgument(f"column '{uneven[0]}' is ragged, which models of bd.io.keras take that have a "
                                             "ragged input: bd.data.padded(rows) for others")
            self._rows = _braid.Rows.of_arrays({name: to_native(value) for name, value in self.arrays.items()})
        return self._rows

    def files(self, directory: str) -> Any:
        """Writes the arrays as <directory>/<column>.npy, for `braid train`."""
        os.makedirs(directory, exist_ok=True)
        names = []
        for name, value in self.arrays.items():
            names.append(f"{name}.npy")
            np.save(os.path.join(directory, names[-1]), np.ascontiguousarray(value))
        return names


class Files(Data):
    """Columns that the job's reader makes of files."""

    def __init__(self, paths: Paths, input_fields: dict[str, Any]) -> None:
        columns: list[dict[str, Any]] = list(input_fields.get("columns") or [])
        self.texts = {each["name"]: each["text"] for each in columns if "text" in each}  # name -> (length, separator)
        if self.texts:
            columns = [{key: value for key, value in each.items() if key != "text"} for each in columns]
            input_fields = {**input_fields, "columns": columns}
        super().__init__(input_fields)
        self.paths = [os.path.abspath(each) for each in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]

    def in_memory(self, job: str, data_dir: str) -> Any:
        """All rows as arrays, with the columns of texts. `job`: a job whose training files these are."""
        arrays = dict(_braid.Rows.of_files(job, data_dir, False).arrays())
        for name, (length, separator) in self.texts.items():
            made = _decoded(_braid.texts_of_files(job, data_dir, False, name))
            arrays[name] = made if length is None else _listed(made, length, separator)
        made = Arrays(arrays)
        made.settings = self.settings
        return made

    def _told(self) -> str:
        more = f" and {len(self.paths) - 2} more" if len(self.paths) > 2 else ""
        return f"{super()._told()} {', '.join(self.paths[:2])}{more}"


def _decoded(texts: Any) -> Any:
    try:
        return np.array([each.decode() for each in texts], dtype=object)
    except UnicodeDecodeError:
        return np.array(texts, dtype=object)


def _listed(texts: Any, length: int, separator: str) -> Any:
    made = np.full((len(texts), length), "", dtype=object)
    for row, text in enumerate(texts):
        parts = text.split(separator)[:length] if text else []
        made[row, :len(parts)] = [each.strip() for each in parts]
    return made


def arrays(**columns: Any) -> Arrays:
    """Columns by name, each an array of as many rows. Strings are for models of bd.io.keras, which make numbers of them."""
    return Arrays(columns)


def padded(rows: Any, length: int | None = None, value: float = 0) -> Any:
    """An array [rows, length] of rows of different lengths (lists, arrays, or a ragged tensor's to_list()): filled with
    `value` behind each row's end, and cut where a row is longer. length: default the longest row's."""
    rows = [np.asarray(row).reshape(-1) for row in rows]
    kinds = [row.dtype for row in rows if row.size]
    length = max((len(row) for row in rows), default=0) if length is None else int(length)
    made = np.full((len(rows), length), value, np.result_type(*kinds, np.asarray(value).dtype) if kinds else np.int64)
    for place, row in enumerate(rows):
        made[place, :min(len(row), length)] = row[:length]
    return made


def csv(paths: Paths, columns: Columns, header: bool = True, separator: str = ",", **settings: Any) -> Files:
    """CSV files (paths or patterns, gzip too) by a schema of bd.data.col."""
    return Files(paths, {"format": Word("CSV"), "csv": {"header": header, "separator": separator}, "columns": columns,
                         **settings})


def tfrecord(paths: Paths, columns: Columns, **settings: Any) -> Files:
    """TFRecord files of tf.train.Example; columns are named after features."""
    return Files(paths, {"format": Word("TFRECORD"), "columns": columns, **settings})


def text(paths: Paths, columns: Columns, **settings: Any) -> Files:
    """Lines, each a record of the one field "line"."""
    return Files(paths, {"format": Word("TEXT"), "columns": columns, **settings})


def criteo(paths: Paths, dense: str = "LOG1P", **settings: Any) -> Files:
    """Criteo's files: "dense" [13], "sparse" [26], "label"."""
    return Files(paths, {"format": Word("CRITEO"), "criteo": {"dense": Word(dense)}, **settings})


def generator(make: Callable[[], Iterable[Any]], rows: int | None = None) -> Arrays:
    """Columns from a Python generator of dicts (a row each) or of arrays of rows: read to its end, or to `rows`."""
    parts: dict[str, list[Any]] = {}
    count = 0
    for record in make() if callable(make) else make:
        for name, value in record.items():
            parts.setdefault(name, []).append(np.asarray(value))
        count += 1
        if rows is not None and count >= rows:
            break
    return Arrays({name: np.stack(each) for name, each in parts.items()})


def torch_loader(loader: Any, names: Sequence[str] | None = None, rows: int | None = None) -> Arrays:
    """Columns from a DataLoader of PyTorch, or from any iterable of batches: dicts of tensors, or tuples with a name for each
    in `names`. Read to its end, or to `rows`; batches that the loader has shuffled stay so."""
    parts: dict[str, list[Any]] = {}
    count = 0
    for batch in loader:
        if not isinstance(batch, dict):
            batch = [batch] if not isinstance(batch, (list, tuple)) else batch
            if names is None or len(names) != len(batch):
                raise _braid.InvalidArgument(f"torch_loader: a batch has {len(batch)} tensors: names=[...] of as many columns")
            batch = dict(zip(names, batch))
        for name, value in batch.items():
            parts.setdefault(name, []).append(np.asarray(value))
        count += len(next(iter(batch.values())))
        if rows is not None and count >= rows:
            break
    if not parts:
        raise _braid.InvalidArgument("torch_loader: the loader has no batches")
    return Arrays({name: np.concatenate(each)[:rows] for name, each in parts.items()})


def arrow(table: Any) -> Arrays:
    """Columns from a pyarrow Table or a polars DataFrame of numbers."""
    names = table.column_names if hasattr(table, "column_names") else table.columns
    return Arrays({name: np.asarray(table[name].to_numpy()) for name in names})
