"""Elements of tf.data's datasets: nested tuples and dicts, their types and shapes, and what a function makes of them."""

import numpy as np

from braid import _braid, dtypes
from braid.dtypes import from_native, to_native
from braid.graph import Graph
from braid.scopes import placeholder


def flat(value):
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flat(value[key])]
    if isinstance(value, tuple):
        return [leaf for each in value for leaf in flat(each)]
    return [value]


def packed(like, leaves):
    """`leaves`, an iterator, in the structure of `like`."""
    if isinstance(like, dict):
        made = {key: packed(like[key], leaves) for key in sorted(like)}
        return {key: made[key] for key in like}
    if isinstance(like, tuple):
        return tuple(packed(each, leaves) for each in like)
    return next(leaves)


class Spec:
    """Type and shape of a part of an element; None in it: any size."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, shape


def array(value):
    value = np.asarray(value)
    return value.astype(object) if value.dtype.kind in "US" else value


def spec_of(value):
    value = array(value)
    return Spec(dtypes.string if value.dtype == object else dtypes.as_dtype(value.dtype), list(value.shape))


def evaluator(specs, function):
    """(the structure of what a function of TensorFlow makes of an element, its specs, a function of values)."""
    with Graph() as graph:
        given = [placeholder("element", spec.shape, spec.dtype) for spec in flat(specs)]
        arguments = packed(specs, iter(given))
        made = function(*arguments) if isinstance(arguments, tuple) else function(arguments)
        made = tuple(made) if isinstance(made, list) else made
        results = [graph.convert(each) for each in flat(made)]
    names, feeds = [each.value_name for each in results], [each.value_name for each in given]
    session = _braid.Session(1, "NONE", 1, 1, 3600.0, False, [])

    def evaluate(values):
        fed = [(name, to_native(as_of(value, spec))) for name, value, spec in zip(feeds, values, flat(specs))]
        return [array(from_native(each)) for each in session.run(graph.native, names, [], fed)]

    found = [Spec(each.dtype, None if each.shape is None else list(each.shape)) for each in results]
    return packed(made, iter(found)), evaluate


def as_of(value, spec):
    value = array(value)
    return value if spec.dtype == dtypes.string else np.asarray(value, spec.dtype.numpy, order="C")


def stack(values, spec):
    if spec.dtype != dtypes.string:
        return np.stack(values)
    made = np.empty((len(values), *np.shape(values[0])), dtype=object)
    for row, value in enumerate(values):
        made[row] = value if np.ndim(value) else value.item() if isinstance(value, np.ndarray) else value
    return made


def flat_shapes(like, shapes):
    """Shapes in the structure of `like`, flat: lists, tuples, or what has as_list()."""
    if isinstance(like, dict):
        return [leaf for key in sorted(like) for leaf in flat_shapes(like[key], shapes[key])]
    if isinstance(like, tuple):
        return [leaf for each, part in zip(like, shapes) for leaf in flat_shapes(each, part)]
    return [None if shapes is None else shapes.as_list() if hasattr(shapes, "as_list") else list(shapes)]
