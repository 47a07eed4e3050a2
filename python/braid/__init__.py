"""Braid: trains ranking and recommendation models over many streams, with parameter servers or all-reduce.

    import braid as bd

docs/user/python.md has programs; help(bd.Trainer), help(bd.Session) and help(bd.ops) the rest.
"""

import braid._load  # noqa: F401: before all that needs the module
from braid._braid import (Cancelled, DataLoss, DeadlineExceeded, DeviceError, Error, Internal, InvalidArgument,
                          OutOfMemory, OutOfRange, Unavailable, version as __version__)
from braid.dtypes import (DType, bool_, float16, float32, float64, int8, int16, int32, int64, resource, string, uint8,
                          uint16, uint32, uint64)
from braid.attrs import Shape
from braid.graph import Graph, Tensor, Variable, default_graph
from braid.scopes import (Inputs, colocate, constant, control, device, gradients, name_scope, placeholder, staged, stream,
                          variable)
from braid.session import Session
from braid import callbacks, data, io, losses, nn, ops, optim
from braid.settings import (AllReduce, Checkpoint, Experts, History, Hybrid, Local, Mirrored, Outputs, PS, PSAllReduce,
                            Pipeline, StepResult, TensorParallel)
from braid.train import Trainer
from braid.ops import load_library as load_op_library
from braid import _exit

__all__ = [
    "Cancelled", "DataLoss", "DeadlineExceeded", "DeviceError", "Error", "Internal", "InvalidArgument", "OutOfMemory",
    "OutOfRange", "Unavailable",
    "DType", "Shape", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "resource", "string",
    "uint8", "uint16", "uint32", "uint64",
    "Graph", "Inputs", "Session", "Tensor", "Variable", "colocate", "constant", "control", "default_graph", "device",
    "gradients", "name_scope", "placeholder", "staged", "stream", "variable",
    "callbacks", "data", "io", "losses", "nn", "ops", "optim", "load_op_library",
    "AllReduce", "Checkpoint", "Experts", "History", "Hybrid", "Local", "Mirrored", "Outputs", "PS", "PSAllReduce",
    "Pipeline", "StepResult", "TensorParallel", "Trainer",
]

_exit.install()
