"""Values of graphs: operations, what they give, and variables."""

from braid import dtypes
from braid.attrs import Shape


class Operation:
    """A node: its name, op, outputs and attributes."""

    def __init__(self, graph, node):
        self.graph, self.node = graph, node
        self.outputs = [Tensor(graph, node, i, self) for i in range(graph.native.outputs(node))]

    @property
    def name(self):
        return self.graph.native.name(self.node)

    @property
    def type(self):
        return self.graph.native.node(self.node)[1]

    @property
    def inputs(self):
        return [self.graph.tensor(*each) for each in self.graph.native.node(self.node)[2]]

    def get_attr(self, name):
        return self.graph.native.node(self.node)[4][name]

    def node_attrs(self):
        return self.graph.native.node(self.node)[4]

    @property
    def device(self):
        return self.graph.native.node(self.node)[6]

    def run(self, feed_dict=None, session=None):
        from braid.session import default_session
        (session or default_session()).run(self, feed_dict)

    def __repr__(self):
        return f"<braid.Operation '{self.name}' type={self.type}>"


class Assignment(Operation):
    """An assignment to a variable. Where a value is asked for, when it is fetched or read by a node, it is what the variable
    has behind it; among dependencies the assignment alone."""

    def __init__(self, graph, node, variable):
        super().__init__(graph, node)
        self._variable, self._value = variable, None

    @property
    def dtype(self):
        return self._variable.dtype

    @property
    def shape(self):
        return self._variable.shape

    @property
    def op(self):
        return self

    def as_tensor(self):
        """The variable's value behind the assignment: one node, made when it is first asked for."""
        if self._value is None:
            self._value = self.graph.add("ReadVariableOp", [self._variable.handle], {"dtype": self.dtype},
                                         f"{self.name}/value", [self]).outputs[0]
        return self._value

    def eval(self, feed_dict=None, session=None):
        return self.as_tensor().eval(feed_dict, session)

    def __getitem__(self, item):
        return self.as_tensor()[item]


class Tensor:
    """A value of a graph: output `index` of a node. Operators make nodes."""

    __array_priority__ = 1000

    def __init__(self, graph, node, index, op=None):
        self.graph, self.node, self.index = graph, node, index
        self._op = op
        number, shape = graph.native.info(node, index)
        self.dtype = dtypes.of_number(number)
        self._shape = None if shape is None else Shape(None if d < 0 else d for d in shape)

    @property
    def shape(self):
        return self._shape

    def get_shape(self):
        return self._shape

    def set_shape(self, shape):
        self._shape = None if shape is None else Shape(shape)

    @property
    def op(self):
        if self._op is None:
            self._op = Operation(self.graph, self.node)
        return self._op

    @property
    def value_name(self):
        name = self.graph.native.name(self.node)
        return name if self.index == 0 else f"{name}:{self.index}"

    @property
    def name(self):
        return f"{self.graph.native.name(self.node)}:{self.index}"

    @property
    def device(self):
        return self.op.device

    def eval(self, feed_dict=None, session=None):
        from braid.session import default_session
        return (session or default_session()).run(self, feed_dict)

    def __repr__(self):
        shape = "<unknown>" if self._shape is None else list(self._shape)
        return f"<braid.Tensor '{self.name}' shape={shape} dtype={self.dtype.name}>"

    def __hash__(self):
        return hash((id(self.graph), self.node, self.index))

    def __eq__(self, other):
        return self is other or (isinstance(other, Tensor) and self.graph is other.graph and
                                 (self.node, self.index) == (other.node, other.index))

    def __bool__(self):
        raise TypeError(f"{self.name} has no value while the graph is built: compare with bd.ops.where, or run it")

    def __iter__(self):
        if self._shape is None or not self._shape or self._shape[0] is None:
            raise TypeError(f"{self.name} cannot be taken apart: its first dimension is not known")
        return iter([self[i] for i in range(self._shape[0])])

    def __getitem__(self, item):
        from braid import ops
        return ops.getitem(self, item)


def _operator(op, swapped=False):
    def apply(self, other):
        from braid import ops
        other = other if isinstance(other, Tensor) else self.graph.convert(other, self.dtype)
        a, b = (other, self) if swapped else (self, other)
        return ops.call(op, [a, b])

    return apply


for _name, _op in {"add": "AddV2", "sub": "Sub", "mul": "Mul", "truediv": "RealDiv", "floordiv": "FloorDiv",
                   "mod": "FloorMod", "pow": "Pow"}.items():
    setattr(Tensor, f"__{_name}__", _operator(_op))
    setattr(Tensor, f"__r{_name}__", _operator(_op, swapped=True))
for _name, _op in {"lt": "Less", "le": "LessEqual", "gt": "Greater", "ge": "GreaterEqual"}.items():
    setattr(Tensor, f"__{_name}__", _operator(_op))
for _name, _op in {"and": "LogicalAnd", "or": "LogicalOr"}.items():
    setattr(Tensor, f"__{_name}__", _operator(_op))


def _matmul(self, other):
    from braid import ops
    return ops.matmul(self, other)


def _unary(op):
    def apply(self):
        from braid import ops
        return ops.call(op, [self])

    return apply


def _of_value(name):
    return lambda self, *others: getattr(self.as_tensor(), name)(*others)


Tensor.__matmul__ = _matmul
Tensor.__neg__ = _unary("Neg")
Tensor.__abs__ = _unary("Abs")
Tensor.__invert__ = _unary("LogicalNot")
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Assignment, f"__{_name}__", _of_value(f"__{_name}__"))
    setattr(Assignment, f"__r{_name}__", _of_value(f"__r{_name}__"))
for _name in ("lt", "le", "gt", "ge", "matmul", "neg", "abs"):
    setattr(Assignment, f"__{_name}__", _of_value(f"__{_name}__"))


class Variable(Tensor):
    """A value that steps change: a Tensor that is the variable's reading. `initializer` is an Operation, or None where
    a rule says how it begins."""

    def __init__(self, graph, handle, read, name, trainable):
        super().__init__(graph, read.node, read.index)
        self.handle, self.variable_name, self.trainable = handle, name, trainable
        self.initializer = None
        self.initial_value = None

    @property
    def name(self):
        return f"{self.variable_name}:0"

    @property
    def value_name(self):
        return self.graph.native.name(self.node)

    @property
    def op(self):
        return self.handle.op

    def initialized_value(self):
        return self.initial_value

    def value(self):
        return self

    def read_value(self):
        return self

    def assign(self, value, name=None, use_locking=None, read_value=True):
        return self._write("AssignVariableOp", value, name or "Assign")

    def assign_add(self, value, name=None, use_locking=None, read_value=True):
        return self._write("AssignAddVariableOp", value, name or "AssignAdd")

    def assign_sub(self, value, name=None, use_locking=None, read_value=True):
        return self._write("AssignSubVariableOp", value, name or "AssignSub")

    def _write(self, op, value, name):
        value = self.graph.convert(value, self.dtype)
        made = self.graph.add(op, [self.handle, value], {"dtype": self.dtype}, name=f"{self.variable_name}/{name}")
        return Assignment(self.graph, made.node, self)

    def eval(self, session=None, feed_dict=None):
        return super().eval(feed_dict, session)

    def load(self, value, session=None):
        from braid.session import default_session
        (session or default_session()).assign(self, value)

    def __repr__(self):
        return f"<braid.Variable '{self.name}' shape={list(self._shape)} dtype={self.dtype.name}>"
