"""Rules of ATen's random ops (_aten.py). The numbers are Braid's, of the same distributions."""


from braid import dtypes, ops
from braid.io._aten import rule


def _uniform(c, sizes):
    return ops.random_uniform(c.shape_value(sizes), dtype=dtypes.float32)


def _sizes(c, x):
    return [c.dim(x, i) for i in range(len(x.shape))]


@rule("rand.default")
def _rand(c, sizes, **settings):
    return c.as_type(_uniform(c, sizes), c.out_dtype())


@rule("rand_like.default")
def _rand_like(c, x, **settings):
    return c.as_type(_uniform(c, _sizes(c, x)), c.out_dtype())


@rule("randn.default")
def _randn(c, sizes, **settings):
    return c.as_type(ops.random_normal(c.shape_value(sizes)), c.out_dtype())


@rule("randn_like.default")
def _randn_like(c, x, **settings):
    return c.as_type(ops.random_normal(c.shape_value(_sizes(c, x))), c.out_dtype())


@rule("normal_functional.default")
def _normal(c, x, mean=0.0, deviation=1.0, **settings):
    return ops.random_normal(c.shape_value(_sizes(c, x))) * float(deviation) + float(mean)


@rule("uniform.default")
def _between(c, x, low=0.0, high=1.0, **settings):
    return _uniform(c, _sizes(c, x)) * float(high - low) + float(low)


@rule("exponential.default")
def _exponential(c, x, rate=1.0, **settings):
    drawn = -ops.call("Log1p", [-_uniform(c, _sizes(c, x))]) * (1.0 / rate)
    return ops.maximum(drawn, 2.0 ** -32)  # its logarithm is finite


@rule("bernoulli.default", "bernoulli.p")
def _bernoulli(c, x, share=None, **settings):
    limit = x if share is None else share
    return ops.cast(_uniform(c, _sizes(c, x)) < limit, c.out_dtype())


@rule("rrelu_with_noise_functional.default")
def _rrelu(c, x, noise, lower=0.125, upper=1 / 3, training=False, **settings):
    """Slopes of negative elements are drawn; without training the mean slope counts."""
    if not (training and c.training):
        slope = (lower + upper) / 2
    else:
        slope = _uniform(c, _sizes(c, x)) * (upper - lower) + lower
    y = ops.where(x > 0.0, x, x * slope)
    return [y, noise]
