"""ATen programs of torch.export as nodes: what walks a program, and the table of its ops.

A rule is a function (c, *args, **kwargs) of the op's ATen arguments, registered under the op's ATen name; values among
the arguments are Tensors of the graph being made, symbolic sizes are ints or int32 scalars. `c` is the Converter.
Everything that stops a program is collected, node by node, and raised at once.
"""

import operator
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from braid import _braid, dtypes, ops
from braid.graph import Tensor

RULES: dict[str, Callable[..., Any]] = {}
# Ops that say something about values but compute nothing.
SILENT = {"aten._assert_scalar.default", "aten._assert_tensor_metadata.default", "aten._assert_async.msg",
          "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default"}
# Ops whose results are as large as the data says, and what to write instead.
OF_DATA = {"aten.nonzero.default": "torch.where(condition, a, b), or a product with the mask",
           "aten.masked_select.default": "torch.where(mask, x, 0) and sums over it",
           "aten.unique.default": "ids as they are: rows that a batch names twice are summed",
           "aten._unique2.default": "ids as they are: rows that a batch names twice are summed",
           "aten.bincount.default": "torch.nn.functional.one_hot(x, classes).sum(0)"}
# Ops that there are no rules for, and what to write instead.
INSTEAD = {"aten.embedding_renorm.default": "max_norm changes rows as they are read: torch.nn.functional.normalize of the rows",
           "aten._ctc_loss.Tensor": "the loss of CTC walks over steps that data decide: there is nothing in its place",
           "aten._ctc_loss.default": "the loss of CTC walks over steps that data decide: there is nothing in its place",
           "aten._fft_r2c.default": "a product with a matrix of cosines and sines is the same for a fixed length",
           "aten.linalg_inv_ex.default": "decompositions of matrices are not computed",
           "aten._linalg_solve_ex.default": "decompositions of matrices are not computed",
           "aten._linalg_slogdet.default": "decompositions of matrices are not computed",
           "aten.linalg_cholesky_ex.default": "decompositions of matrices are not computed",
           "aten.linalg_matrix_exp.default": "torch.nn.utils.parametrizations.spectral_norm or weight_norm are taken"}
TORCH = os.path.dirname(torch.__file__) + os.sep
SYMBOLIC = {operator.mul: "mul", operator.add: "add", operator.sub: "sub", operator.floordiv: "floordiv"}
_TYPES = {torch.float32: dtypes.float32, torch.float64: dtypes.float64, torch.float16: dtypes.float16,
          torch.int64: dtypes.int64, torch.int32: dtypes.int32, torch.int16: dtypes.int16, torch.int8: dtypes.int8,
          torch.uint8: dtypes.uint8, torch.bool: dtypes.bool_}


def rule(*names):
    """Registers a rule for these ATen names, such as "add.Tensor"."""

    def register(function):
        RULES.update((f"aten.{name}", function) for name in names)
        return function

    return register


def dtype_of(kind):
    if kind == torch.bfloat16:
        raise ValueError("values of torch.bfloat16: export without autocast and in float32, and let the job compute in 16 "
                         "bits: Trainer(set=['runtime.precision=BF16'])")
    if kind not in _TYPES:
        raise ValueError(f"values of {kind}")
    return _TYPES[kind]


def name_of(target):
    return str(target).removeprefix("torch.ops.")


def place_of(node):
    """Where the user's program made it, where torch has kept that: the innermost line that is not within PyTorch."""
    trace = (node.stack_trace or node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [each.strip() for each in trace if each.strip().startswith("File ")]
    own = [each for each in lines if not each.startswith((f'File "{TORCH}', 'File "<eval_with_key>'))] or lines
    return f" ({own[-1]})" if own else ""


def _stop_gradients(program):
    """What a program computes within torch.no_grad() is detached behind it: decompositions forget where gradients stop."""
    for node in list(program.graph.nodes):
        if not str(node.target).endswith("wrap_with_set_grad_enabled") or node.args[0]:
            continue
        for part in [user for user in node.users if user.target is operator.getitem]:
            value = part.meta.get("val")
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            with program.graph.inserting_after(part):
                stopped = program.graph.call_function(torch.ops.aten.detach.default, (part,))
            stopped.meta["val"] = value
            part.replace_all_uses_with(stopped, delete_user_cb=lambda user, own=stopped: user is not own)


def _refusal_of_complex(program):
    """Why a program of complex numbers is not trained, or None. Some of them PyTorch cannot decompose; of others each op is
    told that has no rule."""
    found = [node for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor) and
             node.meta["val"].dtype.is_complex]
    if not found:
        return None
    lines = (found[0].meta.get("stack_trace") or "").strip().splitlines()
    place = f" ({lines[-2].strip()})" if len(lines) > 1 else ""
    return _braid.InvalidArgument(
        f"the program cannot be trained here:\n  [{found[0].target}] node '{found[0].name}'{place}: complex numbers: "
        "write their real and imaginary parts, as x[..., 0] * cos - x[..., 1] * sin of a rotation, in place of torch.polar "
        "and view_as_complex")


def decomposed(program):
    """The program in ops that there are rules for, as far as PyTorch's decompositions go: those of export, and for what
    they leave the ones that PyTorch has besides."""
    refusal = _refusal_of_complex(program)
    _stop_gradients(program)
    try:
        return _decomposed(program)
    except AssertionError as error:
        if refusal is None:
            raise
        raise refusal from error


def _decomposed(program):
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if name_of(op) in RULES:
            table.pop(op)
    program = program.run_decompositions(table)
    for _ in range(3):
        left = {node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)
                and name_of(node.target) not in RULES and name_of(node.target) not in INSTEAD}
        more = {op: torch._decomp.decomposition_table[op] for op in left if op in torch._decomp.decomposition_table}
        if not more:
            break
        program = program.run_decompositions({**table, **more})
    return program


class Converter:
    """Makes nodes of a graph module. `training` decides what dropout and batch normalisation do."""

    def __init__(self, graph, training):
        self.graph, self.training = graph, training
        self.values, self.tables, self.problems = {}, {}, []
        self.node = None

    # ------------------------------------------------------------------------------------------------- help for rules
    def meta(self, index=None):
        """What torch knows of the node's output, or of an argument: a fake tensor, or None."""
        of = self.node if index is None else self.node.args[index]
        return of.meta.get("val") if isinstance(of, torch.fx.Node) else None

    def out_dtype(self):
        value = self.meta()
        return dtype_of((value[0] if isinstance(value, (tuple, list)) else value).dtype)

    def constant(self, value, dtype):
        return self.graph.constant(np.asarray(value).astype(dtype.numpy), dtype)

    def as_type(self, value, dtype):
        """A Tensor or number as that type."""
        if not isinstance(value, Tensor):
            return self.constant(value, dtype)
        return value if value.dtype == dtype else ops.cast(value, dtype)

    def dim(self, x, axis):
        """A size: an int, or an int32 scalar where it follows from the batch."""
        known = x.shape[axis]
        return int(known) if known is not None else ops.shape(x)[axis % len(x.shape)]

    def shape_value(self, shape):
        """Sizes as what Reshape and others take: a list of ints, or an int32 vector."""
        if not any(isinstance(each, Tensor) for each in shape):
            return [int(each) for each in shape]
        parts = [each if isinstance(each, Tensor) else self.constant(each, dtypes.int32) for each in shape]
        return ops.call("Pack", parts, {"axis": 0, "N": len(parts)})

    def reshape(self, x, shape):
        shape = list(shape)
        open_sizes = [i for i, each in enumerate(shape) if isinstance(each, Tensor)]
        if len(open_sizes) == 1 and -1 not in [each for each in shape if not isinstance(each, Tensor)]:
            shape[open_sizes[0]] = -1
        return ops.reshape(x, self.shape_value(shape))

    # ------------------------------------------------------------------------------------------------------- the walk
    def problem(self, node, text):
        self.problems.append(f"[{name_of(node.target)}] node '{node.name}'{place_of(node)}: {text}")

    def run(self, module, given):
        """Makes nodes for all of the module but its placeholders, which are `given` by name; gives the outputs, or None
        where there are problems."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = given.get(node.name)
            elif node.op == "call_function":
                self._convert(node)
            elif node.op == "get_attr":
                self.values[node] = _within(module, node.target)
            elif node.op == "output" and not self.problems:
                return self._resolved(node.args[0])
        return None

    def inlined(self, module, operands):
        """The outputs of a graph module that is a branch, or None where there are problems."""
        here, self.node = self.node, None
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        outputs = self.run(module, dict(zip(names, operands)))
        self.node = here
        return outputs

    def _convert(self, node):
        self.node = node
        name = name_of(node.target)
        if name in SILENT:
            return
        try:
            is_rule = node.target is not operator.getitem and node.target not in SYMBOLIC
            if name in OF_DATA:
                self.problem(node, f"how large its result is follows from the data: write {OF_DATA[name]}")
            elif is_rule and name not in RULES:
                if not isinstance(node.target, torch._ops.OpOverload) and self.problems and name not in INSTEAD:
                    return  # a check of a size that follows from data, which is said there
                self.problem(node, INSTEAD.get(name, "there is no rule for this op, and PyTorch does not decompose it "
                                                     "into others"))
            elif self._missing(node):
                return  # what it needs has failed, which is said there
            elif node.target is operator.getitem:
                value = self._resolved(node.args[0])[node.args[1]]
                if value is None and node.users:
                    raise ValueError("this output is not computed here, such as the places of maxima (return_indices)")
                self.values[node] = value
            elif node.target in SYMBOLIC:
                self.values[node] = self._symbolic(node)
            else:
                args, kwargs = self._resolved(node.args), self._resolved(node.kwargs)
                made = RULES[name](self, *args, **kwargs)
                if made is not None or not self.problems:
                    self.values[node] = self._sized(made, self.meta())
        except (_braid.Error, ValueError, TypeError, KeyError, NotImplementedError) as error:
            self.problem(node, str(error))

    def _sized(self, value, known):
        """The value with the sizes that PyTorch knows and shape inference has lost, as behind shapes that are computed."""
        if isinstance(value, list) and isinstance(known, (list, tuple)):
            return [self._sized(*each) for each in zip(value, known)] + value[len(known):]
        if not isinstance(value, Tensor) or not isinstance(known, torch.Tensor):
            return value
        sizes = [each if isinstance(each, int) else None for each in known.shape]
        found = value.shape if value.shape is not None else [None] * len(sizes)
        if all(size is None or size == of_value for size, of_value in zip(sizes, found)):
            return value
        return ops.call("EnsureShape", [value], {"shape": ("shape", [-1 if size is None else size for size in sizes])})

    def _missing(self, node):
        return bool(self.problems) and any(each not in self.values for each in node.all_input_nodes)

    def _symbolic(self, node):
        a, b = self._resolved(node.args)
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return node.target(a, b)
        return node.target(a, b) if isinstance(a, Tensor) else node.target(self.constant(a, dtypes.int32), b)

    def _resolved(self, value):
        if isinstance(value, torch.fx.Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self._resolved(each) for each in value]
        if isinstance(value, dict):
            return {key: self._resolved(each) for key, each in value.items() if key not in (
                "layout", "device", "pin_memory", "memory_format", "non_blocking")}
        return value


def _within(module, target):
    """What a dotted name means in a module: a graph of a branch or a constant."""
    for part in target.split("."):
        module = getattr(module, part)
    return module


@rule("sym_size.int")
def _sym_size(c, x, axis):
    return c.dim(x, axis)
