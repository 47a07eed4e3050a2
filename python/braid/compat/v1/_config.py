"""ConfigProto and what is below it, as plain objects: the fields that programs set, under their names. A field that
nobody knows is refused; one that does nothing here is said once."""

import logging
from typing import Any

_log = logging.getLogger("braid")
_said: set[str] = set()


def say_once(text):
    if text not in _said:
        _said.add(text)
        _log.warning("%s", text)


class _Message:
    _fields: dict[str, Any] = {}  # name -> default value, message class, or [message class] of a repeated one
    _ignored: tuple[str, ...] = ()

    def __init__(self, **values):
        for name, default in self._fields.items():
            made = default() if isinstance(default, type) else _Repeated(default[0]) if isinstance(default, list) else default
            object.__setattr__(self, name, made)
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field '{name}'")
        if name in self._ignored:
            say_once(f"{type(self).__name__}.{name} has no effect here")
        object.__setattr__(self, name, value)

    def CopyFrom(self, other):  # noqa: N802: as of protobuf
        self.__dict__.update(other.__dict__)

    MergeFrom = CopyFrom


class _Repeated(list):
    def __init__(self, item):
        super().__init__()
        self._item = item

    def add(self, **values):
        self.append(self._item(**values))
        return self[-1]


class ThreadPoolOptions(_Message):
    _fields = {"num_threads": 0, "inter_op_threads_num": 1, "intra_op_threads_num": 1, "global_name": ""}


class MultiStreamOptions(_Message):
    _fields = {"multi_stream_num": 1, "partition_policy": 0}


class RewriterConfig(_Message):
    DEFAULT, ON, OFF, AGGRESSIVE = 0, 1, 2, 3
    _fields = {"use_multi_stream": 0, "multi_stream_opts": MultiStreamOptions, "constant_folding": 0,
               "layout_optimizer": 0, "arithmetic_optimization": 0, "disable_meta_optimizer": False}
    _ignored = ("constant_folding", "layout_optimizer", "arithmetic_optimization", "disable_meta_optimizer")


class OptimizerOptions(_Message):
    L0, L1, ON_1, OFF = -1, 0, 1, -1
    _fields = {"stage_multi_stream": False, "opt_level": 0, "global_jit_level": 0, "do_common_subexpression_elimination": True,
               "do_constant_folding": True, "do_function_inlining": True}
    _ignored = ("opt_level", "global_jit_level", "do_common_subexpression_elimination", "do_constant_folding",
                "do_function_inlining")


class GraphOptions(_Message):
    _fields = {"rewrite_options": RewriterConfig, "optimizer_options": OptimizerOptions, "build_cost_model": 0}
    _ignored = ("build_cost_model",)


class GPUOptions(_Message):
    _fields = {"allow_growth": False, "per_process_gpu_memory_fraction": 0.0, "visible_device_list": "",
               "allocator_type": "", "force_gpu_compatible": False}
    _ignored = ("allow_growth", "per_process_gpu_memory_fraction", "allocator_type", "force_gpu_compatible")


class ConfigProto(_Message):
    _fields = {"graph_options": GraphOptions, "gpu_options": GPUOptions, "log_device_placement": False,
               "allow_soft_placement": True, "inter_op_parallelism_threads": 0, "intra_op_parallelism_threads": 0,
               "session_stage_subgraph_thread_pool": [ThreadPoolOptions], "session_inter_op_thread_pool": [ThreadPoolOptions],
               "device_count": dict, "operation_timeout_in_ms": 0, "isolate_session_state": False, "device_filters": list}
    _ignored = ("inter_op_parallelism_threads", "isolate_session_state", "device_filters", "log_device_placement")


class RunOptions(_Message):
    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = 0, 1, 2, 3
    _fields = {"trace_level": 0, "timeout_in_ms": 0}
    _ignored = ("trace_level",)


class RunMetadata(_Message):
    _fields = {"step_stats": None}
