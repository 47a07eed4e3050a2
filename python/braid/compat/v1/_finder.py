"""`from tensorflow.core.protobuf import rewriter_config_pb2` where TensorFlow is not installed: programs write it beside
their import of tensorflow. With TensorFlow its own module is used, whose numbers are the same."""

import importlib.abc
import importlib.machinery
import sys
import types

from braid.compat.v1 import _config

_MODULES = {
    "tensorflow": {}, "tensorflow.core": {}, "tensorflow.core.protobuf": {},
    "tensorflow.core.protobuf.rewriter_config_pb2": {"RewriterConfig": _config.RewriterConfig},
    "tensorflow.core.protobuf.config_pb2": {"ConfigProto": _config.ConfigProto, "GPUOptions": _config.GPUOptions,
                                            "RunOptions": _config.RunOptions, "RunMetadata": _config.RunMetadata},
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name not in _MODULES:
            return None
        # `import tensorflow` itself must fail as it does without us: only what lies below is served.
        if name == "tensorflow" and not _imports_below(sys._getframe(1)):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=not name.endswith("_pb2"))

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__dict__.update(_MODULES[spec.name])
        return module

    def exec_module(self, module):
        pass


def _imports_below(frame):
    """Whether `tensorflow` is imported as the parent of one of our modules."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        name = frame.f_locals.get("name", "")
        if isinstance(name, str) and name.startswith("tensorflow."):
            return name in _MODULES
        frame = frame.f_back
    return False


def install():
    """Behind all others: an installed TensorFlow is found first."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
