"""Element types, under TensorFlow's numbers and names."""

from __future__ import annotations

from typing import Any

import numpy as np


class DType:
    """One element type: `bd.float32`. `number` is TensorFlow's, `numpy` the type of arrays."""

    def __init__(self, number: int, name: str, numpy: Any) -> None:
        self.number, self.name = number, name
        self.numpy: Any = None if numpy is None else np.dtype(numpy)

    def __repr__(self) -> str:
        return f"braid.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DType) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    @property
    def as_numpy_dtype(self) -> Any:
        return self.numpy.type

    @property
    def base_dtype(self) -> DType:
        return self

    @property
    def is_floating(self) -> bool:
        return self.name.startswith("float") or self.name == "bfloat16"

    @property
    def is_integer(self) -> bool:
        return "int" in self.name


float32 = DType(1, "float32", np.float32)
float64 = DType(2, "float64", np.float64)
int32 = DType(3, "int32", np.int32)
uint8 = DType(4, "uint8", np.uint8)
int16 = DType(5, "int16", np.int16)
int8 = DType(6, "int8", np.int8)
string = DType(7, "string", object)
int64 = DType(9, "int64", np.int64)
bool_ = DType(10, "bool", np.bool_)
bfloat16 = DType(14, "bfloat16", None)
uint16 = DType(17, "uint16", np.uint16)
float16 = DType(19, "float16", np.float16)
resource = DType(20, "resource", None)
uint32 = DType(22, "uint32", np.uint32)
uint64 = DType(23, "uint64", np.uint64)

_ALL = (float32, float64, int32, uint8, int16, int8, string, int64, bool_, bfloat16, uint16, float16, resource, uint32,
        uint64)
_BY_NUMBER = {each.number: each for each in _ALL}
_BY_NUMPY = {each.numpy: each for each in _ALL if each.numpy is not None and each is not string}
_BY_NAME = {**{each.name: each for each in _ALL}, "float": float32, "double": float64, "half": float16}


def of_number(number: int) -> DType:
    return _BY_NUMBER[number]


def as_dtype(dtype: Any) -> DType | None:
    """`dtype` as a DType: one already, a name, a NumPy or Python type."""
    if dtype is None or isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    kind = np.dtype(dtype)
    if kind.kind in "SUO":
        return string
    if kind not in _BY_NUMPY:
        raise TypeError(f"there is no element type {dtype!r}")
    return _BY_NUMPY[kind]


def to_native(array: Any) -> Any:
    """What the module takes: a row-major array, or for text the tuple (shape, list of bytes)."""
    array = np.asarray(array)
    if array.dtype.kind in "SUO":
        flat = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
        return tuple(array.shape), flat
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


class Array(np.ndarray):
    """A fetched value: an ndarray that also formats like the number that it holds ("%.4f" % value)."""

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return super().__index__() if self.ndim == 0 else int(self.item())


def from_native(value: Any) -> Any:
    """An array of what the module gives; scalars of text as bytes."""
    if isinstance(value, tuple):
        shape, flat = value
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        return array.reshape(shape) if shape else flat[0]
    return value
