"""Values of graphs: operations, what they give, and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from braid import dtypes
from braid.attrs import Shape

if TYPE_CHECKING:
    from braid.graph import Graph


def _operator(op: str, swapped: bool = False) -> Callable[[Any, Any], Tensor]:
    def apply(self: Any, other: Any) -> Tensor:
        from braid import ops
        left = self if isinstance(self, Tensor) else self.as_tensor()
        right = other.as_tensor() if isinstance(other, Assignment) else other
        right = right if isinstance(right, Tensor) else left.graph.convert(right, left.dtype)
        return cast(Tensor, ops.call(op, [right, left] if swapped else [left, right]))

    return apply


def _unary(op: str) -> Callable[[Any], Tensor]:
    def apply(self: Any) -> Tensor:
        from braid import ops
        return cast(Tensor, ops.call(op, [self]))

    return apply


class _Operators:
    """Operators that make nodes."""

    __add__, __radd__ = _operator("AddV2"), _operator("AddV2", swapped=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("RealDiv"), _operator("RealDiv", swapped=True)
    __floordiv__, __rfloordiv__ = _operator("FloorDiv"), _operator("FloorDiv", swapped=True)
    __mod__, __rmod__ = _operator("FloorMod"), _operator("FloorMod", swapped=True)
    __pow__, __rpow__ = _operator("Pow"), _operator("Pow", swapped=True)
    __lt__, __le__, __gt__, __ge__ = (_operator("Less"), _operator("LessEqual"), _operator("Greater"),
                                      _operator("GreaterEqual"))
    __and__, __or__ = _operator("LogicalAnd"), _operator("LogicalOr")
    __neg__, __abs__, __invert__ = _unary("Neg"), _unary("Abs"), _unary("LogicalNot")

    def __matmul__(self, other: Any) -> Tensor:
        from braid import ops
        return cast(Tensor, ops.matmul(self, other))


class Operation:
    """A node: its name, op, outputs and attributes."""

    def __init__(self, graph: Graph, node: int) -> None:
        self.graph, self.node = graph, node
        self.outputs = [Tensor(graph, node, i, self) for i in range(graph.native.outputs(node))]

    @property
    def name(self) -> str:
        return self.graph.native.name(self.node)

    @property
    def type(self) -> str:
        return self.graph.native.node(self.node)[1]

    @property
    def inputs(self) -> list[Tensor]:
        return [self.graph.tensor(*each) for each in self.graph.native.node(self.node)[2]]

    def get_attr(self, name: str) -> Any:
        return self.graph.native.node(self.node)[4][name]

    def node_attrs(self) -> Any:
        return self.graph.native.node(self.node)[4]

    @property
    def device(self) -> str:
        return self.graph.native.node(self.node)[6]

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        from braid.session import default_session
        (session or default_session()).run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<braid.Operation '{self.name}' type={self.type}>"


class Assignment(Operation, _Operators):
    """An assignment to a variable. Where a value is asked for, when it is fetched or read by a node, it is what the variable
    has behind it; among dependencies the assignment alone."""

    def __init__(self, graph: Graph, node: int, variable: Variable) -> None:
        super().__init__(graph, node)
        self._variable = variable
        self._value: Tensor | None = None

    @property
    def dtype(self) -> dtypes.DType:
        return self._variable.dtype

    @property
    def shape(self) -> Any:
        return self._variable.shape

    @property
    def op(self) -> Operation:
        return self

    def as_tensor(self) -> Tensor:
        """The variable's value behind the assignment: one node, made when it is first asked for."""
        if self._value is None:
            self._value = self.graph.add("ReadVariableOp", [self._variable.handle], {"dtype": self.dtype},
                                         f"{self.name}/value", [self]).outputs[0]
        return self._value

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        return self.as_tensor().eval(feed_dict, session)

    def __getitem__(self, item: Any) -> Tensor:
        return self.as_tensor()[item]


class Tensor(_Operators):
    """A value of a graph: output `index` of a node. Operators make nodes."""

    __array_priority__ = 1000

    def __init__(self, graph: Graph, node: int, index: int, op: Operation | None = None) -> None:
        self.graph, self.node, self.index = graph, node, index
        self._op = op
        number, shape = graph.native.info(node, index)
        self.dtype = dtypes.of_number(number)
        self._shape: Shape | None = None if shape is None else Shape(None if d < 0 else d for d in shape)

    @property
    def shape(self) -> Any:
        return self._shape

    def get_shape(self) -> Any:
        return self._shape

    def set_shape(self, shape: Any) -> None:
        self._shape = None if shape is None else Shape(shape)

    @property
    def op(self) -> Operation:
        if self._op is None:
            self._op = Operation(self.graph, self.node)
        return self._op

    @property
    def value_name(self) -> str:
        name = self.graph.native.name(self.node)
        return name if self.index == 0 else f"{name}:{self.index}"

    @property
    def name(self) -> str:
        return f"{self.graph.native.name(self.node)}:{self.index}"

    @property
    def device(self) -> str:
        return self.op.device

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        from braid.session import default_session
        return (session or default_session()).run(self, feed_dict)

    def __repr__(self) -> str:
        shape = "<unknown>" if self._shape is None else list(self._shape)
        return f"<braid.Tensor '{self.name}' shape={shape} dtype={self.dtype.name}>"

    def __hash__(self) -> int:
        return hash((id(self.graph), self.node, self.index))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tensor) and self.graph is other.graph and
                                 (self.node, self.index) == (other.node, other.index))

    def __bool__(self) -> bool:
        raise TypeError(f"{self.name} has no value while the graph is built: compare with bd.ops.where, or run it")

    def __iter__(self) -> Iterator[Tensor]:
        if self._shape is None or not self._shape or self._shape[0] is None:
            raise TypeError(f"{self.name} cannot be taken apart: its first dimension is not known")
        return iter([self[i] for i in range(self._shape[0])])

    def __getitem__(self, item: Any) -> Tensor:
        from braid import ops
        return ops.getitem(self, item)


class Variable(Tensor):
    """A value that steps change: a Tensor that is the variable's reading. `initializer` is an Operation, or None where
    a rule says how it begins."""

    def __init__(self, graph: Graph, handle: Tensor, read: Tensor, name: str, trainable: bool) -> None:
        super().__init__(graph, read.node, read.index)
        self.handle, self.variable_name, self.trainable = handle, name, trainable
        self.initializer: Operation | None = None
        self.initial_value: Tensor | None = None

    @property
    def name(self) -> str:
        return f"{self.variable_name}:0"

    @property
    def value_name(self) -> str:
        return self.graph.native.name(self.node)

    @property
    def op(self) -> Operation:
        return self.handle.op

    def initialized_value(self) -> Tensor | None:
        return self.initial_value

    def value(self) -> Variable:
        return self

    def read_value(self) -> Variable:
        return self

    def assign(self, value: Any, name: str | None = None, use_locking: Any = None, read_value: bool = True) -> Assignment:
        return self._write("AssignVariableOp", value, name or "Assign")

    def assign_add(self, value: Any, name: str | None = None, use_locking: Any = None, read_value: bool = True) -> Assignment:
        return self._write("AssignAddVariableOp", value, name or "AssignAdd")

    def assign_sub(self, value: Any, name: str | None = None, use_locking: Any = None, read_value: bool = True) -> Assignment:
        return self._write("AssignSubVariableOp", value, name or "AssignSub")

    def _write(self, op: str, value: Any, name: str) -> Assignment:
        value = self.graph.convert(value, self.dtype)
        made = self.graph.add(op, [self.handle, value], {"dtype": self.dtype}, name=f"{self.variable_name}/{name}")
        return Assignment(self.graph, made.node, self)

    def eval(self, session: Any = None, feed_dict: Any = None) -> Any:  # type: ignore[override]
        return super().eval(feed_dict, session)

    def load(self, value: Any, session: Any = None) -> None:
        from braid.session import default_session
        (session or default_session()).assign(self, value)

    def __repr__(self) -> str:
        return f"<braid.Variable '{self.name}' shape={list(self.shape)} dtype={self.dtype.name}>"
