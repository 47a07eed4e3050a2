"""tf.train's learning rates that follow from the step: exponential_decay and its kin, as values of the graph."""

import math

import numpy as np

from braid import ops as _ops
from braid.dtypes import float32
from braid.graph import default_graph


def _number(value):
    return default_graph().constant(np.float32(value))


def _passed(global_step, decay_steps, staircase=False):
    """Which share of decay_steps has passed; of a staircase the whole ones."""
    passed = _ops.cast(global_step, float32) / float(decay_steps)
    return _ops.call("Floor", [passed]) if staircase else passed


def exponential_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    """learning_rate * decay_rate ^ (global_step / decay_steps)."""
    return _ops.call("Pow", [_number(decay_rate), _passed(global_step, decay_steps, staircase)]) * float(learning_rate)


def natural_exp_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    """learning_rate * exp(-decay_rate * global_step / decay_steps)."""
    return _ops.call("Exp", [_passed(global_step, decay_steps, staircase) * -float(decay_rate)]) * float(learning_rate)


def inverse_time_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    """learning_rate / (1 + decay_rate * global_step / decay_steps)."""
    return _number(learning_rate) / (_passed(global_step, decay_steps, staircase) * float(decay_rate) + 1.0)


def polynomial_decay(learning_rate, global_step, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False, name=None):
    """From learning_rate to end_learning_rate by a power of the share of steps that is left; with `cycle` again and again,
    each time over more steps."""
    step = _ops.cast(global_step, float32)
    if cycle:
        turns = _ops.maximum(_ops.call("Ceil", [step / float(decay_steps)]), _number(1))
        share = step / (turns * float(decay_steps))
    else:
        share = _ops.minimum(step, _number(decay_steps)) / float(decay_steps)
    left = _ops.call("Pow", [_number(1) - share, _number(power)])
    return left * (float(learning_rate) - float(end_learning_rate)) + float(end_learning_rate)


def cosine_decay(learning_rate, global_step, decay_steps, alpha=0.0, name=None):
    """From learning_rate to alpha of it along half a wave."""
    share = _ops.minimum(_ops.cast(global_step, float32), _number(decay_steps)) / float(decay_steps)
    wave = (_ops.call("Cos", [share * math.pi]) + 1.0) * 0.5
    return (wave * (1.0 - float(alpha)) + float(alpha)) * float(learning_rate)


def piecewise_constant(x, boundaries, values, name=None):
    """values[0] up to boundaries[0], it included, values[1] up to boundaries[1], ...; the last behind all of them."""
    if len(values) != len(boundaries) + 1:
        raise ValueError(f"piecewise_constant: {len(boundaries)} boundaries part {len(boundaries) + 1} values, got {len(values)}")
    step, rate = _ops.cast(x, float32), _number(values[0])
    for boundary, before, behind in zip(boundaries, values, values[1:]):
        rate = rate + _ops.cast(_ops.greater(step, _number(boundary)), float32) * (float(behind) - float(before))
    return rate


piecewise_constant_decay = piecewise_constant
