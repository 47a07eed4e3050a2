"""Makes rows.csv, initial.npz and losses.json beside this file: what TensorFlow's own optimizers lose on a small
wide & deep model, step by step, from given values and on given rows. tests/integration/training_controls_test.cc
trains the same with braid. Needs TensorFlow (the files here are 2.21's): python3 make.py"""
import json
import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

ROWS, BATCH, STEPS, WORDS, DIM, HIDDEN = 120, 20, 60, 8, 2, 4
HERE = pathlib.Path(__file__).parent


def make_rows(rng):
    numbers = rng.normal(size=(ROWS, 2)).astype(np.float32).round(3)
    ids = np.minimum(rng.geometric(0.3, size=(ROWS, 3)) - 1, WORDS - 1)
    score = numbers[:, 0] - 0.7 * numbers[:, 1] + (ids[:, 0] == 0) - 0.5 * (ids[:, 1] > 2)
    labels = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-score))).astype(np.int64)
    weights = rng.uniform(0.25, 3, size=ROWS).astype(np.float32).round(2)
    return numbers, ids, weights, labels


def make_initial(rng):
    shapes = {"wide/dense/kernel": (2, 1), "wide/dense/bias": (1,)}
    for c in range(3):
        shapes[f"wide/c{c}/table"] = (WORDS, 1)
        shapes[f"deep/c{c}/table"] = (WORDS, DIM)
    shapes["deep/mlp/layer0/kernel"], shapes["deep/mlp/layer0/bias"] = (2 + 3 * DIM, HIDDEN), (HIDDEN,)
    shapes["deep/logit/kernel"], shapes["deep/logit/bias"] = (HIDDEN, 1), (1,)
    return {name: rng.uniform(-0.5, 0.5, size=shape).astype(np.float32) for name, shape in shapes.items()}


def logits(v, numbers, ids):
    wide = numbers @ v["wide/dense/kernel"] + v["wide/dense/bias"]
    parts = [numbers]
    for c in range(3):
        wide += tf.gather(v[f"wide/c{c}/table"], ids[:, c])
        parts.append(tf.gather(v[f"deep/c{c}/table"], ids[:, c]))
    deep = tf.nn.relu(tf.concat(parts, 1) @ v["deep/mlp/layer0/kernel"] + v["deep/mlp/layer0/bias"])
    deep = deep @ v["deep/logit/kernel"] + v["deep/logit/bias"]
    return tf.reshape(wide + deep, [-1])


def dense(gradient):
    return tf.convert_to_tensor(gradient)  # rows of one index are summed


V1 = tf.compat.v1.train
KERAS = tf.keras.optimizers
SGD = "optimizer.kind=SGD", "optimizer.learning_rate=0.5"


def v1_sgd(grads, variables):
    V1.GradientDescentOptimizer(0.5).apply_gradients(zip(grads, variables))


def ftrl_wide():
    wide = V1.FtrlOptimizer(0.1, learning_rate_power=-0.5, initial_accumulator_value=0.2, l1_regularization_strength=0.05,
                            l2_regularization_strength=0.02, l2_shrinkage_regularization_strength=0.01)
    deep = V1.AdagradOptimizer(0.05, initial_accumulator_value=0.1)

    def apply(grads, variables):
        pairs = list(zip(grads, variables))
        wide.apply_gradients([(g, v) for g, v in pairs if v.name.startswith("wide")])
        deep.apply_gradients([(g, v) for g, v in pairs if not v.name.startswith("wide")])
    return apply


def touched(gradient):
    """1 for the rows that a gradient names, of a table; else 1."""
    if not isinstance(gradient, tf.IndexedSlices):
        return 1.0
    rows = np.zeros((WORDS, 1), np.float32)
    rows[gradient.indices.numpy()] = 1
    return rows


def keras(optimizer):
    """Keras updates all rows of a table, braid those that a batch names: the others are put back."""
    def apply(grads, variables):
        if not optimizer.built:
            optimizer.build(variables)
        slots = [getattr(optimizer, name, []) for name in ("_momentums", "_velocities", "_average_gradients")]
        lists = [variables] + [own for own in slots if own]
        before = [[v.numpy() for v in own] for own in lists]
        optimizer.apply_gradients(zip(map(dense, grads), variables))
        for own, old in zip(lists, before):
            for v, was, gradient in zip(own, old, grads):
                v.assign(touched(gradient) * v.numpy() + (1 - touched(gradient)) * was)
    return apply


def ftrl_power(grads, variables, optimizer=[]):
    if not optimizer:
        optimizer.append(V1.FtrlOptimizer(0.05, learning_rate_power=-0.7, initial_accumulator_value=0.1))
    optimizer[0].apply_gradients(zip(grads, variables))


def regularised(grads, variables):
    grads = [dense(g) + touched(g) * (0.03 * v + 0.02 * tf.sign(v)) for g, v in zip(grads, variables)]
    v1_sgd(grads, variables)


# name -> (braid's settings, whether rows are weighted, class weights, what updates the variables)
CASES = {
    "ftrl_wide": (["optimizer.kind=ADAGRAD", "optimizer.learning_rate=0.05",
                   "optimizer.group=match: 'wide/.*' kind: FTRL learning_rate: 0.1 initial_accumulator: 0.2 "
                   "l1: 0.05 l2: 0.02 l2_shrinkage: 0.01"], False, None, ftrl_wide()),
    "ftrl_power": (["optimizer.kind=FTRL", "optimizer.learning_rate=0.05",
                    "optimizer.learning_rate_power=-0.7"], False, None, ftrl_power),
    "rmsprop": (["optimizer.kind=RMSPROP", "optimizer.learning_rate=0.01", "optimizer.rho=0.8",
                 "optimizer.epsilon=1e-3"], False, None, keras(KERAS.RMSprop(0.01, rho=0.8, epsilon=1e-3))),
    "rmsprop_centered": (["optimizer.kind=RMSPROP", "optimizer.learning_rate=0.01", "optimizer.rho=0.8",
                          "optimizer.momentum=0.5", "optimizer.centered=true", "optimizer.epsilon=1e-3"],
                         False, None,
                         keras(KERAS.RMSprop(0.01, rho=0.8, momentum=0.5, epsilon=1e-3, centered=True))),
    "adamw": (["optimizer.kind=ADAMW", "optimizer.learning_rate=0.02", "optimizer.weight_decay=0.1",
               "optimizer.epsilon=1e-3"], False, None,
              keras(KERAS.AdamW(0.02, weight_decay=0.1, epsilon=1e-3))),
    "clip_norm": ([*SGD, "optimizer.clip_norm=0.2"], False, None,
                  lambda grads, variables: v1_sgd(
                      tf.clip_by_global_norm([dense(g) for g in grads], 0.2)[0], variables)),
    "clip_value": ([*SGD, "optimizer.clip_value=0.02"], False, None,
                   lambda grads, variables: v1_sgd(
                       [tf.clip_by_value(dense(g), -0.02, 0.02) for g in grads], variables)),
    "l1_l2": ([*SGD, "optimizer.l1=0.02", "optimizer.l2=0.03"], False, None, regularised),
    "weights": ([*SGD], True, None, v1_sgd),
    "class_weights": ([*SGD, "model.class_weights=0.5,2"], True, (0.5, 2), v1_sgd),
}


def train(initial, rows, weighted, class_weights, update):
    numbers, ids, weights, labels = rows
    variables = {name: tf.Variable(value, name=name) for name, value in initial.items()}
    loss_of = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    losses = []
    for step in range(STEPS):
        at = slice(step * BATCH % ROWS, step * BATCH % ROWS + BATCH)
        factor = weights[at] if weighted else np.ones(BATCH, np.float32)
        if class_weights:
            factor = factor * np.array(class_weights, np.float32)[labels[at]]
        with tf.GradientTape() as tape:
            out = logits(variables, numbers[at], ids[at])
            loss = loss_of(labels[at].astype(np.float32)[:, None], out[:, None], sample_weight=factor)
        update(tape.gradient(loss, list(variables.values())), list(variables.values()))
        losses.append(float(loss))
    return losses


def main():
    rng = np.random.default_rng(7)
    rows, initial = make_rows(rng), make_initial(rng)
    with open(HERE / "rows.csv", "w") as out:
        for number, id_, weight, label in zip(*rows):
            out.write(",".join([f"{x:g}" for x in number] + [str(i) for i in id_] + [f"{weight:g}", str(label)]) + "\n")
    np.savez(HERE / "initial.npz", **initial)
    cases = [{"name": name, "set": sets, "weighted": weighted,
              "losses": [float(f"{x:.9g}") for x in train(initial, rows, weighted, class_weights, update)]}
             for name, (sets, weighted, class_weights, update) in CASES.items()]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "losses.json").write_text('{"made_with": "TensorFlow %s", "cases": [\n%s\n]}\n' % (tf.__version__, lines))
    for case in cases:
        print(case["name"], case["losses"][0], case["losses"][-1])


main()
