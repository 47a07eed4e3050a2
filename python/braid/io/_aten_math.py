"""Rules of ATen's elementwise ops, reductions, products and ops that move elements (_aten.py)."""

import builtins
import math

import numpy as np
import torch

from braid import dtypes, ops
from braid.graph import Tensor
from braid.io._aten import RULES, dtype_of, rule


def both(c, a, b):
    """Two operands as torch's common type."""
    kinds = [c.meta(i) if c.meta(i) is not None else value for i, value in enumerate((a, b))]
    kind = dtype_of(torch.result_type(*[torch.tensor(0) if isinstance(each, Tensor) else each for each in kinds]))
    if kind in (dtypes.int8, dtypes.uint8, dtypes.int16) and c.out_dtype() == dtypes.bool_:
        kind = dtypes.int32  # comparisons
    return c.as_type(a, kind), c.as_type(b, kind)


def _binary(op, *names):
    @rule(*[f"{name}.{form}" for name in names for form in ("Tensor", "Scalar", "default", "Tensor_Tensor",
                                                             "Tensor_Scalar")])
    def apply(c, a, b):
        return ops.call(op, builtins.list(both(c, a, b)))


for _op, _names in {"Mul": ("mul",), "Equal": ("eq",),
                    "NotEqual": ("ne",), "Less": ("lt",), "LessEqual": ("le",), "Greater": ("gt",), "Atan2": ("atan2",),
                    "GreaterEqual": ("ge",), "FloorMod": ("remainder",), "LogicalAnd": ("logical_and",),
                    "LogicalOr": ("logical_or",)}.items():
    _binary(_op, *_names)


def _extreme(c, op, a, b):
    """The larger or the smaller of two; of equal ones each has half of the gradient, as in PyTorch."""
    found = ops.call(op, [a, b])
    if not a.dtype.is_floating:
        return found
    return ops.call("SelectV2", [ops.call("Equal", [a, b]), a * 0.5 + b * 0.5, found])


@rule("maximum.default", "minimum.default")
def _larger(c, a, b):
    return _extreme(c, "Maximum" if "max" in str(c.node.target) else "Minimum", *both(c, a, b))


def _unary(name, op):
    @rule(f"{name}.default")
    def apply(c, x):
        return ops.call(op, [c.as_type(x, c.out_dtype())])


for _name, _op in {"neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "log1p": "Log1p", "expm1": "Expm1",
                   "sqrt": "Sqrt", "rsqrt": "Rsqrt", "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos", "tan": "Tan",
                   "tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "relu6": "Relu6", "erf": "Erf", "erfc": "Erfc",
                   "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "square": "Square",
                   "atan": "Atan", "asin": "Asin", "acos": "Acos", "sinh": "Sinh", "cosh": "Cosh",
                   "selu": "Selu"}.items():
    _unary(_name, _op)


def _question(name, op):
    @rule(f"{name}.default")
    def apply(c, x):
        kind = x.dtype if op != "LogicalNot" else dtypes.bool_
        if kind.is_integer and op != "LogicalNot":  # every integer is finite
            return ops.call("Fill", [ops.shape(x), np.asarray(op == "IsFinite")])
        return ops.call(op, [c.as_type(x, kind)])


for _name, _op in {"logical_not": "LogicalNot", "isnan": "IsNan", "isinf": "IsInf", "isfinite": "IsFinite"}.items():
    _question(_name, _op)


@rule("add.Tensor", "add.Scalar")
def _add(c, a, b, alpha=1):
    a, b = both(c, a, b)
    if a.dtype == dtypes.bool_:
        return ops.call("LogicalOr", [a, b])
    return a + (b if alpha == 1 else b * alpha)


@rule("sub.Tensor", "sub.Scalar")
def _sub(c, a, b, alpha=1):
    a, b = both(c, a, b)
    return a - (b if alpha == 1 else b * alpha)


@rule("rsub.Scalar", "rsub.Tensor")
def _rsub(c, a, b, alpha=1):
    return _sub(c, b, a, alpha) if isinstance(b, Tensor) else c.as_type(b, c.out_dtype()) - a * alpha


@rule("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(c, a, b, rounding_mode=None):
    kind = c.out_dtype()
    a, b = c.as_type(a, kind), c.as_type(b, kind)
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc" and kind.is_integer:
        return ops.call("TruncateDiv", [a, b])
    if rounding_mode == "trunc":
        raise ValueError("rounding_mode='trunc' of floats")
    return ops.call("RealDiv", [a, b])


@rule("trunc.default", "frac.default", "fix.default")
def _trunc(c, x):
    whole = ops.call("Sign", [x]) * ops.call("Floor", [abs(x)])
    whole = ops.call("StopGradient", [whole])
    return x - whole if "frac" in str(c.node.target) else whole


@rule("hypot.default")
def _hypot(c, a, b):
    a, b = both(c, a, b)
    return _root(c, ops.square(a) + ops.square(b))


@rule("erfinv.default")
def _erfinv(c, x):
    return ops.call("Erfinv", [x])


@rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(c, a, b):
    if not isinstance(b, Tensor) and b == 2:
        return ops.call("Square", [c.as_type(a, c.out_dtype())])
    kind = c.out_dtype()
    return ops.call("Pow", [c.as_type(a, kind), c.as_type(b, kind)])


@rule("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "bitwise_and.Scalar", "bitwise_or.Scalar")
def _bitwise(c, a, b):
    word = c.node.target.__name__.split(".")[0].removeprefix("bitwise_")
    a, b = both(c, a, b)
    if a.dtype == dtypes.bool_:
        return ops.call({"and": "LogicalAnd", "or": "LogicalOr", "xor": "NotEqual"}[word], [a, b])
    return ops.call(f"Bitwise{word.capitalize()}", [a, b])


@rule("bitwise_not.default")
def _bitwise_not(c, a):
    return ops.call("LogicalNot" if a.dtype == dtypes.bool_ else "Invert", [a])


@rule("clamp.Tensor")
def _clamp_between(c, x, low=None, high=None):
    kind = c.out_dtype()
    x = c.as_type(x, kind)
    x = x if low is None else _extreme(c, "Maximum", x, c.as_type(low, kind))
    return x if high is None else _extreme(c, "Minimum", x, c.as_type(high, kind))


@rule("clamp.default", "hardtanh.default")
def _clamp(c, x, low=None, high=None):
    if low is None and high is None and "hardtanh" in str(c.node.target):
        low, high = -1.0, 1.0
    kind = c.out_dtype()
    x = c.as_type(x, kind)
    x = x if low is None else ops.call("Maximum", [x, c.as_type(low, kind)])
    return x if high is None else ops.call("Minimum", [x, c.as_type(high, kind)])


@rule("clamp_min.default")
def _clamp_min(c, x, low):
    return _clamp(c, x, low, None)


@rule("clamp_max.default")
def _clamp_max(c, x, high):
    return _clamp(c, x, None, high)


@rule("where.self", "where.ScalarOther", "where.ScalarSelf")
def _where(c, condition, a, b):
    kind = c.out_dtype()
    return ops.call("SelectV2", [condition, c.as_type(a, kind), c.as_type(b, kind)])


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c, x, mask, value):
    return ops.call("SelectV2", [mask, c.as_type(value, x.dtype), x])


# ------------------------------------------------------------------------------------------------------------ reductions
def _axes(x, dim):
    if dim is None or dim == []:
        return builtins.list(builtins.range(len(x.shape)))
    return [dim] if isinstance(dim, int) else builtins.list(dim)


def _reduction(name, op, cast=True):
    @rule(f"{name}.default", f"{name}.dim_IntList", f"{name}.dim", f"{name}.dims")
    def reduce(c, x, dim=None, keepdim=False, dtype=None):
        x = c.as_type(x, c.out_dtype()) if cast else x
        return ops.call(op, [x, np.asarray(_axes(x, dim), np.int32)], {"keep_dims": keepdim})

    return reduce


_sum, _mean = _reduction("sum", "Sum"), _reduction("mean", "Mean")
_amax, _amin, _prod = _reduction("amax", "Max"), _reduction("amin", "Min"), _reduction("prod", "Prod")
_any, _all = _reduction("any", "Any"), _reduction("all", "All")
_max, _min = rule("max.default")(_amax), rule("min.default")(_amin)
rule("prod.dim_int")(_prod)


@rule("argmax.default", "argmin.default")
def _argmax(c, x, dim=None, keepdim=False):
    if dim is None:
        x, dim = ops.reshape(x, [-1]), 0
    found = (ops.argmax if "argmax" in str(c.node.target) else ops.argmin)(x, dim)
    return ops.expand_dims(found, dim) if keepdim else found


@rule("max.dim", "min.dim")
def _max_dim(c, x, dim, keepdim=False):
    """The value at the first place that has it, which alone has the gradient; amax's is shared by equal ones."""
    if len(x.shape) == 0:
        return [x, c.constant(0, dtypes.int64)]
    place = (ops.argmin if "min" in str(c.node.target) else ops.argmax)(x, dim)
    at = ops.expand_dims(place, dim)
    value = RULES["aten.gather.default"](c, x, dim, at)
    return [value, at] if keepdim else [ops.squeeze(value, [dim % len(x.shape)]), place]


def count(c, x, axes):
    """How many elements a reduction over `axes` takes, as a number or a float32 scalar."""
    sizes = [c.dim(x, axis) for axis in axes]
    known = math.prod(each for each in sizes if not isinstance(each, Tensor))
    for each in sizes:
        if isinstance(each, Tensor):
            known = ops.cast(each, dtypes.float32) * float(known)
    return known if isinstance(known, Tensor) else float(known)


@rule("var.correction", "var.dim", "var_mean.correction")
def _var(c, x, dim=None, correction=1, keepdim=False):
    correction = 1 if correction is None else correction
    axes = _axes(x, dim)
    mean = ops.reduce_mean(x, axes, keepdims=True)
    squares = ops.reduce_sum(ops.square(x - mean), axes, keepdims=keepdim)
    variance = squares / (count(c, x, axes) - float(correction))
    if "var_mean" not in str(c.node.target):
        return variance
    return [variance, mean if keepdim else ops.squeeze(mean, [each % len(x.shape) for each in axes])]


@rule("logsumexp.default")
def _logsumexp(c, x, dim, keepdim=False):
    axes = _axes(x, dim)
    top = ops.call("StopGradient", [ops.reduce_max(x, axes, keepdims=True)])
    found = ops.call("Log", [ops.reduce_sum(ops.exp(x - top), axes, keepdims=True)]) + top
    return found if keepdim else ops.squeeze(found, [each % len(x.shape) for each in axes])


def _root(c, x, power=0.5):
    """A root whose gradient is 0 where x is 0, as PyTorch's norms and deviations have it."""
    zero = ops.call("Equal", [x, c.constant(0, x.dtype)])
    safe = ops.call("SelectV2", [zero, c.constant(1, x.dtype), x])
    root = ops.sqrt(safe) if power == 0.5 else ops.call("Pow", [safe, c.constant(power, x.dtype)])
    return ops.call("SelectV2", [zero, c.constant(0, x.dtype), root])


@rule("std.correction", "std.dim", "std_mean.correction")
def _std(c, x, dim=None, correction=1, keepdim=False):
    correction = 1 if correction is None else correction
    axes = _axes(x, dim)
    mean = ops.reduce_mean(x, axes, keepdims=True)
    squares = ops.reduce_sum(ops.square(x - mean), axes, keepdims=keepdim)
    deviation = _root(c, squares / (count(c, x, axes) - float(correction)))
    if "std_mean" not in str(c.node.target):
        return deviation
    return [deviation, mean if keepdim else ops.squeeze(mean, [each % len(x.shape) for each in axes])]


@rule("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar")
def _norm(c, x, order=2, dim=None, keepdim=False, dtype=None):
    order, axes = 2 if order is None else order, _axes(x, dim)
    x = c.as_type(x, c.out_dtype())
    if order in (math.inf, -math.inf):
        return (ops.reduce_max if order > 0 else ops.reduce_min)(abs(x), axes, keepdims=keepdim)
    if order == 0:
        return ops.reduce_sum(ops.cast(ops.call("NotEqual", [x, c.constant(0, x.dtype)]), x.dtype), axes, keepdims=keepdim)
    if order == 1:
        return ops.reduce_sum(abs(x), axes, keepdims=keepdim)
    if order == 2:
        return _root(c, ops.reduce_sum(ops.square(x), axes, keepdims=keepdim))
    if order < 1:
        raise ValueError(f"a norm of order {order}, whose slope at 0 has no limit")
    powers = ops.call("Pow", [abs(x), c.constant(order, x.dtype)])
    return _root(c, ops.reduce_sum(powers, axes, keepdims=keepdim), 1 / order)


@rule("_cdist_forward.default", "cdist.default")
def _distances(c, a, b, p=2.0, compute_mode=None):
    return _norm(c, ops.expand_dims(a, -2) - ops.expand_dims(b, -3), p, [-1])


@rule("cumsum.default")
def _cumsum(c, x, dim, dtype=None):
    return ops.call("Cumsum", [c.as_type(x, c.out_dtype()), np.int32(dim)], {"exclusive": False, "reverse": False})


# -------------------------------------------------------------------------------------------------------------- products
@rule("mm.default", "bmm.default", "matmul.default")
def _matmul(c, a, b):
    if len(a.shape) == 1 and len(b.shape) == 1:
        return ops.reduce_sum(a * b)
    if len(b.shape) == 1:
        return ops.reduce_sum(a * b, -1)
    if len(a.shape) == 1:
        return ops.squeeze(ops.matmul(ops.expand_dims(a, 0), b), [len(b.shape) - 2])
    return ops.matmul(a, b)


@rule("addmm.default", "baddbmm.default")
def _addmm(c, bias, a, b, beta=1, alpha=1):
    product = ops.matmul(a, b)
    return (product if alpha == 1 else product * alpha) + (bias if beta == 1 else bias * beta)


@rule("linear.default")
def _linear(c, x, weight, bias=None):
    flat = x if len(x.shape) == 2 else ops.reshape(x, [-1, int(x.shape[-1])])
    y = ops.matmul(flat, weight, transpose_b=True)
    y = y if bias is None else ops.call("BiasAdd", [y, bias])
    if len(x.shape) == 2:
        return y
    return c.reshape(y, [c.dim(x, i) for i in builtins.range(len(x.shape) - 1)] + [int(weight.shape[0])])
