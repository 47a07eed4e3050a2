"""Conditionals of PyTorch: both branches are computed and one is chosen."""

from braid import ops
from braid.graph import Tensor
from braid.io._aten import INSTEAD, RULES

_SUM = "a Python loop over a known number of steps, which export unrolls"
INSTEAD.update({"while_loop": f"write {_SUM}", "scan": f"write {_SUM}", "associative_scan": f"write {_SUM}",
                "map_impl": "write operations on the whole batch, or torch.vmap",
                "flex_attention": "write torch.nn.functional.scaled_dot_product_attention with attn_mask="})


def _gate(value, predicate, when):
    """The value, into a branch: gradients come back where the branch is taken, so that none is a NaN of the other's."""
    if not isinstance(value, Tensor) or not value.dtype.is_floating:
        return value
    stopped = ops.stop_gradient(value)
    return ops.where(predicate, value, stopped) if when else ops.where(predicate, stopped, value)


def _cond(c, predicate, if_true, if_false, operands=()):
    if not isinstance(predicate, Tensor):
        return c.inlined(if_true if predicate else if_false, operands)
    made = [c.inlined(graph, [_gate(each, predicate, when) for each in operands])
            for graph, when in ((if_true, True), (if_false, False))]
    if None in made:
        return None
    return [a if a is b else ops.where(predicate, a, b) for a, b in zip(*made)]


RULES["cond"] = _cond
