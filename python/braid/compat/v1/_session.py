"""tf.Session over braid.Session."""

import weakref

from braid import session as _session
from braid.compat.v1 import _cluster, _iterators, cuda
from braid.compat.v1._config import say_once
from braid.graph import default_graph


def _settings(config, graph):
    """What a ConfigProto (ours or TensorFlow's) says of a session."""
    streams, policy, multi, threads, timeout, pools = 1, "NONE", False, 0, 3600.0, []
    if config is not None:
        rewrite = config.graph_options.rewrite_options
        if getattr(rewrite, "use_multi_stream", 0) == 1:
            streams = max(1, rewrite.multi_stream_opts.multi_stream_num)
        multi = getattr(config.graph_options.optimizer_options, "stage_multi_stream", False)
        threads = config.intra_op_parallelism_threads
        timeout = config.operation_timeout_in_ms / 1000 or timeout
        pools = [(each.inter_op_threads_num, each.intra_op_threads_num, each.global_name)
                 for each in getattr(config, "session_stage_subgraph_thread_pool", ())]
    streams = max(streams, cuda.streams_of_environment())
    if streams > 1:
        policy = "AUTO"
        used = graph.collections.get("__streams", set())
        if used and max(used) >= streams:
            say_once(f"stream {max(used)} is named, but there are {streams} streams (multi_stream_num)")
    return dict(streams=streams, policy=policy, stage_multi_stream=multi, threads=threads, timeout=timeout, pools=pools)


class Session(_session.Session):
    """tf.Session(target, graph, config): runs the graph again and again, with its variables."""

    def __init__(self, target="", graph=None, config=None):
        graph = graph or default_graph()
        self._peers = _cluster.peers() if target else None
        if target and _cluster.world() == 1:
            say_once(f"Session(target={target!r}): this process runs its own graph; the target is not used")
        seed = graph.seed if graph.seed is not None else 1
        super().__init__(graph, seed=seed, peers=self._peers, **_settings(config, graph))

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """As of braid.Session; initializers of iterators begin their datasets, with what is fed to these."""
        _iterators.begin_iterators(self, self._plan(fetches).targets, lambda: self._by_tensor(feed_dict or {}),
                                   lambda tensors: super(Session, self).run(tensors, feed_dict))
        return super().run(fetches, feed_dict, options, run_metadata)

    def _by_tensor(self, feed_dict):
        return {self.graph.find(key if ":" in key else key + ":0") if isinstance(key, str) else key: value
                for key, value in feed_dict.items()}

    def _add_sources(self):
        _iterators.current.session = weakref.ref(self)
        super()._add_sources()

    def list_devices(self):
        return []


class InteractiveSession(Session):
    """A Session that is the default one from its making to its close()."""

    def __init__(self, target="", graph=None, config=None):
        super().__init__(target, graph, config)
        self.__enter__()

    def close(self):
        if self in getattr(_session._threads, "stack", []):
            _session._threads.stack.remove(self)
            self.graph.__exit__()
        super().close()


def get_default_session():
    stack = getattr(_session._threads, "stack", [])
    return stack[-1] if stack else None
