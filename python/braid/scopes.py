"""Nodes of the default graph, and the scopes that annotate new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from braid import _braid, dtypes
from braid.attrs import native_shape
from braid.dtypes import as_dtype
from braid.graph import Operation, Tensor, Variable, default_graph

Dimensions = Sequence[int | None] | int | None
Scope = AbstractContextManager[Any]


def placeholder(name: str, shape: Dimensions, dtype: Any = dtypes.float32) -> Tensor:
    """A value that each run is fed with; unknown dimensions are None."""
    graph = default_graph()
    attrs = {"dtype": as_dtype(dtype), "shape": ("shape", native_shape(shape))}
    return graph.add("Placeholder", [], attrs, name).outputs[0]


class Inputs(Mapping[str, Tensor]):
    """Columns of a batch by name, as placeholders that are made when they are asked for."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._columns = rows
        self.made: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.made:
            if name not in self._columns:
                raise _braid.InvalidArgument(f"the data has no column '{name}': it has {sorted(self._columns)}")
            column = self._columns[name]
            self.made[name] = placeholder(name, [None, *column.shape[1:]], column.dtype)
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def constant(value: Any, dtype: Any = None, shape: Dimensions = None, name: str | None = None) -> Tensor:
    """A constant of a number, text or array."""
    return default_graph().constant(value, dtype, shape, name)


def variable(name: str, shape: Dimensions, init: tuple[Any, ...] | None = ("zeros",), dtype: Any = dtypes.float32,
             trainable: bool = True, sparse: bool = False) -> Variable:
    """A variable; see Graph.add_variable for `init`. `sparse`: a table that gathers read, trained by rows."""
    return default_graph().add_variable(name, shape, dtype, init, trainable, sparse)


def name_scope(name: str) -> Scope:
    """Nodes and variables inside are called "name/..."."""
    return default_graph().name_scope(name)


def stream(id: int | None = None, include_grad: bool = True) -> Scope:
    """Nodes inside run on compute stream `id` (None: the next that no scope has); their gradients too, unless
    include_grad is False."""
    graph = default_graph()
    used = graph.collections.setdefault("__streams", set())
    if id is None:
        id = next(i for i in range(1, 65536) if i not in used)
    return graph.stream(id, include_grad)


def colocate(target: Tensor | Operation) -> Scope:
    """Nodes inside are on the stream of `target`'s node."""
    return default_graph().colocate(target)


def device(name: str | None) -> Scope:
    """Nodes inside ask for this device: "/gpu:0", "/cpu:0"."""
    return default_graph().device(name)


def control(*nodes: Tensor | Operation) -> Scope:
    """Nodes inside run after these."""
    return default_graph().control_dependencies(nodes)


def gradients(loss: Tensor, variables: Iterable[Variable] | None = None) -> dict[Variable, Any]:
    """Gradients of a scalar loss: a dict from variable to a Tensor, or to (indices, values) of rows."""
    found = {each: dense if dense is not None else rows for each, dense, rows in default_graph().add_gradients(loss)}
    return found if variables is None else {each: found.get(each) for each in variables}


_STAGE = {"capacity", "num_threads", "num_clients", "timeout_millis", "use_stage_subgraph_thread_pool",
          "stage_subgraph_thread_pool_id", "stage_subgraph_stream_id", "on_timeout", "ordered",
          "closed_exception_types", "ignored_exception_types"}


def staged(features: Any, feed_dict: Mapping[Tensor, Tensor] | None = None, name: str | None = None, **options: Any) -> Any:
    """Evaluates `features` (a Tensor, or lists and dicts of them) ahead of the step, on threads of their own, and gives
    the same structure of the values that come out. Options are those of docs/user/staging.md; `feed_dict` maps
    placeholders above the stage to Tensors that are evaluated for each record."""
    unknown = set(options) - _STAGE
    if unknown:
        raise TypeError(f"staged() has no parameter {sorted(unknown)[0]!r}")
    graph = default_graph()
    count = graph.collections.setdefault("__stages", [])
    stage = name or ("stage" if not count else f"stage_{len(count)}")
    count.append(stage)
    attrs: dict[str, Any] = {"_stage": stage}
    for key, value in options.items():
        attrs[f"_stage_{key}"] = ("ls", [_error_name(e) for e in value]) if key.endswith("_types") else value
    if feed_dict:
        attrs["_stage_feeds"] = ("ls", [f"{k.value_name}={v.value_name}" for k, v in feed_dict.items()])
    return _map(features, lambda value: graph.add("Identity", [value], attrs, stage).outputs[0])


def _error_name(error: str | type[BaseException]) -> str:
    return error if isinstance(error, str) else error.__name__


def _map(features: Any, visit: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(features, dict):
        return {key: _map(features[key], visit) for key in sorted(features)}
    if isinstance(features, (list, tuple)):
        return [_map(each, visit) for each in features]
    return features if features is None else visit(features)
