"""Makes optimizers.json beside this file: what TensorFlow 2.15.1's update ops make of eight weights in three steps.

Usage: python3 make_optimizers.py. optim_test.cc gives apply_update() the same weights and gradients.
"""

import json
import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

STEPS, SIZE, RATE = 3, 8, 0.05


def step(kind, spec, weights, slots, gradient, number):
    """One update by the op of `kind`; the slots in the order of base/optim.h."""
    handles = [tf.Variable(weights)] + [tf.Variable(s) for s in slots]
    var, *rest = [h.handle for h in handles]
    raw = tf.raw_ops
    if kind == "SGD":
        raw.ResourceApplyGradientDescent(var=var, alpha=RATE, delta=gradient)
    elif kind == "MOMENTUM":
        raw.ResourceApplyMomentum(var=var, accum=rest[0], lr=RATE, grad=gradient, momentum=spec["momentum"],
                                  use_nesterov=spec.get("nesterov", False))
    elif kind == "ADAGRAD":
        raw.ResourceApplyAdagrad(var=var, accum=rest[0], lr=RATE, grad=gradient)
    elif kind == "ADAM":
        b1, b2 = spec["beta1"], spec["beta2"]
        raw.ResourceApplyAdam(var=var, m=rest[0], v=rest[1], beta1_power=b1 ** (number + 1),
                              beta2_power=b2 ** (number + 1), lr=RATE, beta1=b1, beta2=b2,
                              epsilon=spec["epsilon"], grad=gradient)
    elif kind == "FTRL":
        raw.ResourceApplyFtrlV2(var=var, accum=rest[0], linear=rest[1], grad=gradient, lr=RATE, l1=spec["l1"],
                                l2=spec["l2"], l2_shrinkage=spec["l2_shrinkage"],
                                lr_power=spec["learning_rate_power"])
    elif spec.get("centered"):
        raw.ResourceApplyCenteredRMSProp(var=var, ms=rest[0], mg=rest[1], mom=rest[2], lr=RATE, rho=spec["rho"],
                                         momentum=spec["momentum"], epsilon=spec["epsilon"], grad=gradient)
    else:
        raw.ResourceApplyRMSProp(var=var, ms=rest[0], mom=rest[1], lr=RATE, rho=spec["rho"],
                                 momentum=spec["momentum"], epsilon=spec["epsilon"], grad=gradient)
    return [h.numpy() for h in handles]


# Kind, its fields in OptimizerSpec, the first values of its slots.
CASES = [
    ("SGD", {}, []),
    ("MOMENTUM", {"momentum": 0.9}, [0]),
    ("MOMENTUM", {"momentum": 0.9, "nesterov": True}, [0]),
    ("ADAGRAD", {"initial_accumulator": 0.1}, [0.1]),
    ("ADAM", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}, [0, 0]),
    ("ADAM", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}, [0, 0]),
    ("FTRL", {"initial_accumulator": 0.1, "l1": 0.0, "l2": 0.0, "l2_shrinkage": 0.0, "learning_rate_power": -0.5},
     [0.1, 0]),
    ("FTRL", {"initial_accumulator": 0.2, "l1": 0.05, "l2": 0.1, "l2_shrinkage": 0.01, "learning_rate_power": -0.5},
     [0.2, 0]),
    ("RMSPROP", {"rho": 0.9, "momentum": 0.8, "epsilon": 1e-3}, [0, 0]),
    ("RMSPROP", {"rho": 0.8, "momentum": 0.5, "epsilon": 1e-2, "centered": True}, [0, 0, 0]),
]


def main():
    rng = np.random.default_rng(5)
    cases = []
    for kind, spec, first in CASES:
        weights = rng.normal(size=SIZE).astype(np.float32)
        values = [weights] + [np.full(SIZE, f, np.float32) for f in first]
        case = {"kind": kind, "spec": spec, "weights": weights.tolist(), "steps": []}
        for number in range(STEPS):
            gradient = rng.normal(size=SIZE).astype(np.float32)
            values = step(kind, spec, values[0], values[1:], gradient, number)
            case["steps"].append({"gradient": gradient.tolist(), "values": [v.tolist() for v in values]})
        cases.append(case)
    lines = ",\n".join(json.dumps(case) for case in cases)
    written = {"learning_rate": RATE, "tensorflow": tf.__version__}
    text = json.dumps(written)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    (pathlib.Path(__file__).parent / "optimizers.json").write_text(text)


main()
