"""Sessions: parts of a graph run again and again over the same variables."""

import atexit
import threading
import time
import weakref

import numpy as np

from braid import _braid, graph as _graph
from braid.dtypes import Array, from_native, string, to_native

_threads = threading.local()
_open_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
_SOURCE_TIME = 5  # seconds that sources of records may take to return when the interpreter ends


@atexit.register
def _close_all():
    """Threads of stages call the interpreter for records: none may be at it when the interpreter ends."""
    end = time.monotonic() + _SOURCE_TIME
    for session in list(_open_sessions):
        session._native.close(max(0.1, end - time.monotonic()))


def default_session():
    """The innermost `with session:`. Throws: InvalidArgument when there is none."""
    stack = getattr(_threads, "stack", [])
    if not stack:
        raise _braid.InvalidArgument("there is no default session: `with bd.Session() as session:`")
    return stack[-1]


def as_feed(tensor, value):
    """`value` as an array of the tensor's type, without a copy where it is one: of NumPy, or of any other that gives its
    memory by DLPack (PyTorch's on the CPU, JAX's)."""
    if value is None:
        raise _braid.InvalidArgument(f"feed '{tensor.value_name}': None is no array")
    try:
        return _as_feed(tensor, value)
    except ValueError as error:
        raise _braid.InvalidArgument(f"feed '{tensor.value_name}': {error}") from error


def _as_feed(tensor, value):
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        if str(value.dtype).rsplit(".", 1)[-1] == tensor.dtype.name:
            return value
    if tensor.dtype == string:
        return to_native(np.asarray(value, dtype=object))
    if not isinstance(value, np.ndarray) or value.dtype != tensor.dtype.numpy:
        value = np.asarray(value, dtype=tensor.dtype.numpy)
    return to_native(value)


class Session:
    """Runs a graph. Variables live as long as the session.

    graph: the default one where it is None. streams: compute streams, as many as bd.stream has named where it is None;
    policy: as streams.policy of a job ("AUTO",
    "NONE", "USER", "FULL", "COST", "EMBEDDING"). seed: of random numbers and of first values that a rule makes.
    threads: inside ops, 0 one for each core. timeout: seconds that a run may take. pools: (inter-op threads, intra-op
    threads, name) of each thread pool of stages.

    Thread rule: one run at a time. Ctrl-C ends a wait for a stage within a tenth of a second, and nothing is lost.
    """

    def __init__(self, graph=None, streams=None, policy="AUTO", seed=1, threads=0, timeout=3600.0,
                 stage_multi_stream=False, pools=(), peers=None):
        self.graph = graph or _graph.default_graph()
        if streams is None:
            streams = 1 + max(self.graph.collections.get("__streams", ()), default=0)
        self._native = _braid.Session(streams, policy, seed, threads, timeout, stage_multi_stream, list(pools),
                                      peers)
        _open_sessions.add(self)
        self._plans = {}
        self._sources = 0
        self._entered = []

    # ------------------------------------------------------------------------------------------------------- running
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """The values of `fetches` (a Tensor, an Operation, a name, or lists and dicts of these; None for what has no
        value), fed with `feed_dict`: Tensors or names to arrays. Throws: InvalidArgument, OutOfRange at the end of an
        input, and what a step throws."""
        plan = self._plan(fetches)
        feeds = []
        for key, value in (feed_dict or {}).items():
            tensor = self.graph.find(key if ":" in key else key + ":0") if isinstance(key, str) else key
            feeds.append((tensor.value_name, as_feed(tensor, value)))
        self._add_sources()
        values = self._native.run(self.graph.native, plan.names, plan.targets, feeds)
        return plan.build([_result(each) for each in values])

    def _plan(self, fetches):
        key = _key(fetches)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(self.graph, fetches)
        return plan

    def _add_sources(self):
        while self._sources < len(self.graph.sources):
            placeholders, make = self.graph.sources[self._sources]
            self._sources += 1
            self._native.add_source([each.value_name for each in placeholders], make())

    def start_stages(self):
        """Begins the graph's stages; a run that takes from one does that, too."""
        self._add_sources()
        self._native.start_stages(self.graph.native)

    # ----------------------------------------------------------------------------------------------------- variables
    def value(self, variable):
        """The variable's value (a copy), or None."""
        value = self._native.value(getattr(variable, "variable_name", variable))
        return None if value is None else from_native(value)

    def assign(self, variable, value):
        """Sets a variable."""
        dtype = getattr(variable, "dtype", None)
        array = np.asarray(value, dtype=None if dtype is None else dtype.numpy)
        self._native.assign(self.graph.native, getattr(variable, "variable_name", variable), to_native(array))

    def variables(self):
        """All values, by name."""
        return {name: self.value(name) for name in self._native.variables()}

    def close(self):
        """Ends the stages' threads. Variables stay. Waits for a source that is at a record; Ctrl-C ends the wait."""
        self._native.close()

    def __enter__(self):
        if not hasattr(_threads, "stack"):
            _threads.stack = []
        _threads.stack.append(self)
        self.graph.__enter__()
        return self

    def as_default(self):
        return self

    def __exit__(self, *_):
        self.graph.__exit__()
        _threads.stack.remove(self)
        self.close()


def _result(value):
    value = from_native(value)
    return value.view(Array) if isinstance(value, np.ndarray) and value.dtype != object else value


def _key(fetches):
    if isinstance(fetches, dict):
        return tuple((k, _key(v)) for k, v in fetches.items())
    if isinstance(fetches, (list, tuple)):
        return (type(fetches).__name__,) + tuple(_key(each) for each in fetches)
    if isinstance(fetches, _graph.Tensor):
        return fetches.node, fetches.index
    return ("op", fetches.node) if isinstance(fetches, _graph.Operation) else fetches


class _Plan:
    """What a structure of fetches asks for, and how to put the values back into it."""

    def __init__(self, graph, fetches):
        self.graph = graph
        self.names, self.targets = [], []
        self._structure = self._take(fetches)

    def _take(self, fetch):
        if isinstance(fetch, dict):
            return {key: self._take(each) for key, each in fetch.items()}
        if isinstance(fetch, (list, tuple)):
            return [self._take(each) for each in fetch]
        if isinstance(fetch, str):
            fetch = self.graph.find(fetch)
        if isinstance(fetch, _graph.Assignment):
            fetch = fetch.as_tensor()
        if fetch is None or isinstance(fetch, _graph.Operation):
            if fetch is not None:
                self.targets.append(fetch.name)
            return None
        if not isinstance(fetch, _graph.Tensor):
            raise TypeError(f"{fetch!r} cannot be fetched: a Tensor, an Operation, or a name can")
        if fetch.value_name not in self.names:
            self.names.append(fetch.value_name)
        return _Place(self.names.index(fetch.value_name))

    def build(self, values):
        return self._build(self._structure, values)

    def _build(self, at, values):
        if isinstance(at, dict):
            return {key: self._build(each, values) for key, each in at.items()}
        if isinstance(at, list):
            return [self._build(each, values) for each in at]
        return None if at is None else values[at.index]


class _Place:
    def __init__(self, index):
        self.index = index
