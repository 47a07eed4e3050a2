"""Shapes, and attributes of nodes as the module takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from braid.dtypes import DType, to_native


class Shape(tuple):  # type: ignore[type-arg]
    """Dimensions, of which unknown ones are None. A shape of unknown rank is None itself."""

    def as_list(self) -> list[int | None]:
        return list(self)

    @property
    def ndims(self) -> int:
        return len(self)

    rank = ndims

    def __getitem__(self, item: Any) -> Any:
        found = super().__getitem__(item)
        return Shape(found) if isinstance(item, slice) else found

    def is_fully_defined(self) -> bool:
        return all(each is not None for each in self)

    def num_elements(self) -> int | None:
        return int(np.prod(self)) if self.is_fully_defined() else None

    @property
    def dims(self) -> list[int | None]:
        return list(self)


def native_shape(shape: Any) -> tuple[int, ...] | None:
    if shape is None:
        return None
    if isinstance(shape, int):
        shape = (shape,)
    return tuple(-1 if each is None else int(each) for each in shape)


def encode_attr(name: str, value: Any) -> tuple[str, Any]:
    """An attribute as the module takes it: (kind, value)."""
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("shape", "tensor", "type", "li", "lf", "ls",
                                                                        "ltype"):
        return value
    if isinstance(value, DType):
        return "type", value.number
    if isinstance(value, Shape):
        return "shape", native_shape(value)
    if isinstance(value, (bool, np.bool_)):
        return "b", bool(value)
    if isinstance(value, (int, np.integer)):
        return "i", int(value)
    if isinstance(value, (float, np.floating)):
        return "f", float(value)
    if isinstance(value, (str, bytes)):
        return "s", value
    if isinstance(value, np.ndarray):
        return "tensor", to_native(value)
    if isinstance(value, (list, tuple)):
        if not value or all(isinstance(each, (int, np.integer)) for each in value):
            return "li", [int(each) for each in value]
        if all(isinstance(each, (int, float)) for each in value):
            return "lf", [float(each) for each in value]
        if all(isinstance(each, str) for each in value):
            return "ls", list(value)
        if all(isinstance(each, DType) for each in value):
            return "ltype", [each.number for each in value]
    raise TypeError(f"attribute {name!r}: {value!r} is nothing that an attribute can be")
