"""Graphs: nodes, whose types and shapes are known as soon as they are made, and the scopes that annotate them.

A program has a default graph; `with bd.Graph() as g:` makes another one the default. Thread rule: a graph is built by
one thread; each thread has its own default.
"""

import contextlib
import threading

import numpy as np

from braid import _braid, dtypes
from braid._braid import Graph as _Native
from braid._values import Assignment, Operation, Tensor, Variable
from braid.attrs import Shape, encode_attr
from braid.dtypes import as_dtype, from_native, to_native

__all__ = ["Assignment", "Graph", "Operation", "Tensor", "Variable", "default_graph", "reset_default_graph"]


class Graph:
    """Nodes and the scopes that new ones are made in. `with graph:` makes it the default."""

    def __init__(self, native=None):
        self.native = native or _Native()
        self.collections = {}
        self.variables = []
        self.sources = []  # (placeholders, function) of records
        self.seed = None
        self._names, self._streams, self._colocations, self._devices, self._controls = [], [], [], [], []

    def __repr__(self):
        return f"<braid.Graph of {len(self.variables)} variables>"

    # ------------------------------------------------------------------------------------------------ default graph
    def __enter__(self):
        _defaults().append(self)
        return self

    def __exit__(self, *_):
        _defaults().remove(self)

    def as_default(self):
        return self

    def finalize(self):
        pass

    # ---------------------------------------------------------------------------------------------------- new nodes
    def scoped(self, name):
        return "".join(self._names) + name

    def add(self, op, inputs=(), attrs=None, name=None, control=()):
        """Adds a node of any registered op by its name, and gives its Operation."""
        stream, include_grad = self._streams[-1] if self._streams else (-1, True)
        encoded = {key: encode_attr(key, value) for key, value in (attrs or {}).items() if value is not None}
        before = [each.node for scope in self._controls for each in scope] + [each.node for each in control]
        inputs = [self._own(each.as_tensor() if isinstance(each, Assignment) else each) for each in inputs]
        inputs = [self._as_left(each) for each in inputs] if any(self._controls) else inputs
        node = self.native.add(op, self.scoped(name or op), [(each.node, each.index) for each in inputs], encoded,
                               before, stream, self._colocations[-1].node if self._colocations else -1,
                               self._devices[-1] if self._devices else "", include_grad)
        return Operation(self, node)

    def _own(self, tensor):
        """The tensor; of another graph's constant one of this graph. Throws: InvalidArgument for its other tensors."""
        if tensor.graph is self:
            return tensor
        value = tensor.graph.native.known_value(tensor.node, tensor.index)
        if value is None:
            raise _braid.InvalidArgument(f"'{tensor.name}' is of another graph, of which only constants can be used here")
        return self.constant(from_native(value), tensor.dtype)

    def _as_left(self, value):
        """A variable within control dependencies is read behind them, as what they write is meant to be seen."""
        if not isinstance(value, Variable):
            return value
        return self.add("ReadVariableOp", [value.handle], {"dtype": value.dtype}, f"{value.variable_name}/read_behind").outputs[0]

    def tensor(self, node, index=0):
        return Tensor(self, node, index)

    def find(self, name):
        """The Tensor "node:1", or the Operation "node". Throws: KeyError."""
        node, _, output = name.partition(":")
        found = self.native.find(node)
        if found < 0:
            raise KeyError(f"the graph has no node '{node}'")
        return Operation(self, found) if not output else Tensor(self, found, int(output))

    get_tensor_by_name = get_operation_by_name = as_graph_element = find

    def get_operations(self):
        return [Operation(self, i) for i in range(self.native.size())]

    def convert(self, value, dtype=None, name=None):
        """`value` as a Tensor: one already, or a constant of an array, number or text."""
        dtype = as_dtype(dtype)
        if isinstance(value, Assignment):
            value = value.as_tensor()
        if isinstance(value, Tensor):
            return self._own(value)
        if isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in _leaves(value)):
            from braid import ops
            parts = [self.convert(each, dtype) for each in value]
            return ops.call("Pack", parts, {"axis": 0, "N": len(parts)}, name=name)
        return self.constant(value, dtype, name=name)

    def constant(self, value, dtype=None, shape=None, name=None):
        dtype = as_dtype(dtype)
        array = np.asarray(value)
        if dtype is None and array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype(np.float32)
        if dtype is None and array.dtype == np.int64 and not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype(np.int32)
        if dtype is not None and dtype != dtypes.string:
            array = array.astype(dtype.numpy)
        if shape is not None:
            shape = tuple(shape)
            array = np.full(shape, array.item()) if array.size == 1 else array.reshape(shape)
            array = array if dtype is None or dtype == dtypes.string else array.astype(dtype.numpy)
        kind = dtype or as_dtype(array.dtype)
        attrs = {"dtype": kind, "value": ("tensor", to_native(array))}
        return self.add("Const", [], attrs, name or "Const").outputs[0]

    def control(self, before, node):
        self.native.control(before.node, node.node)

    # ------------------------------------------------------------------------------------------------------- scopes
    @contextlib.contextmanager
    def _pushed(self, stack, item):
        stack.append(item)
        try:
            yield item
        finally:
            stack.pop()

    def name_scope(self, name):
        # As in TensorFlow, a scope that is opened again gets a name of its own.
        return self._pushed(self._names, self._free_scope(name) + "/")

    def _free_scope(self, name):
        used = self.collections.setdefault("__scopes", {})
        full = self.scoped(name)
        number = used.get(full, 0)
        used[full] = number + 1
        return name if number == 0 else f"{name}_{number}"

    def stream(self, stream, include_grad=True):
        self.collections.setdefault("__streams", set()).add(int(stream))
        return self._pushed(self._streams, (int(stream), include_grad))

    def colocate(self, target):
        return self._pushed(self._colocations, target)

    def device(self, device):
        return self._pushed(self._devices, device or "")

    def control_dependencies(self, nodes):
        return self._pushed(self._controls, list(nodes or []))

    # ---------------------------------------------------------------------------------------------------- variables
    def add_variable(self, name, shape, dtype=None, init=None, trainable=True, sparse=False):
        """A variable that begins as `init` says: ("zeros",), ("constant", x), ("uniform", low, high),
        ("normal", mean, deviation) or ("truncated_normal", mean, deviation); None: unset."""
        dtype = as_dtype(dtype) or dtypes.float32
        full = self.native.unique_name(self.scoped(name))
        attrs = {"dtype": dtype, "shape": Shape(shape), "_trainable": trainable, "_sparse": sparse, "shared_name": full}
        if init is not None:
            kinds = {"zeros": 0, "constant": 1, "uniform": 2, "normal": 3, "truncated_normal": 4}
            numbers = [float(each) for each in init[1:]] + [0.0, 0.0]
            attrs.update(_init_kind=kinds[init[0]], _init_a=numbers[0], _init_b=numbers[1])
        controls, self._controls = self._controls, []
        try:
            handle = self.add("VarHandleOp", [], attrs, name).outputs[0]
            read = self.add("ReadVariableOp", [handle], {"dtype": dtype}, f"{name}/Read").outputs[0]
        finally:
            self._controls = controls
        made = Variable(self, handle, read, full, trainable)
        self.variables.append(made)
        return made

    def add_gradients(self, loss):
        """[(variable, dense Tensor or None, (indices, values) or None)] of a scalar loss by its trained variables."""
        by_name = {each.variable_name: each for each in self.variables}
        found = []
        for name, handle, dense, rows in self.native.gradients((loss.node, loss.index)):
            found.append((by_name.get(name), dense and self.tensor(*dense), rows and tuple(self.tensor(*r) for r in rows)))
        return found

    def write(self, file):
        """Writes the GraphDef, as text where the name ends in .pbtxt."""
        self.native.write(str(file))

    @staticmethod
    def load(file, roots=()):
        """A graph from a GraphDef, MetaGraphDef, SavedModel or ONNX file; of it what `roots` need, or all."""
        graph = Graph(_Native.load(str(file), list(roots)))
        for name, handle, number, _, trainable in graph.native.variables():
            attrs = {"dtype": dtypes.of_number(number)}
            read = graph.add("ReadVariableOp", [graph.tensor(handle)], attrs, f"{name}/Read").outputs[0]
            graph.variables.append(Variable(graph, graph.tensor(handle), read, name, trainable))
        return graph


def _leaves(value):
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


_threads = threading.local()


def _defaults():
    if not hasattr(_threads, "stack"):
        _threads.stack = [Graph()]
    return _threads.stack


def default_graph():
    """The graph that new nodes of this thread go to."""
    return _defaults()[-1]


def reset_default_graph():
    _defaults()[:] = [Graph()]
