"""Makes graph.pbtxt, rows.txt and reference.json beside this file: a whole training graph of TensorFlow 1.x (reference
variables, initialisers, gradient nodes, ApplyGradientDescent, Save and Restore), rows to train on, and what TensorFlow
2.15.1 computes for it in 100 steps.

Usage: python3 make_training_graph.py. tf_training_graph_test.cc trains the same graph.
"""

import json
import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf
from google.protobuf import text_format

v1 = tf.compat.v1
HERE = pathlib.Path(__file__).parent
ROWS, STEPS, RATE = 60, 100, 0.05


def make_rows():
    """Three classes around centres of their own: four numbers with one decimal, and the class."""
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 3, ROWS)
    centres = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
    return np.round(centres[classes] + rng.normal(0, 0.4, (ROWS, 4)), 1), classes


def entry(array):
    return {"shape": list(array.shape), "values": [float(v) for v in array.ravel()]}


def main():
    features, classes = make_rows()
    lines = [",".join("%.1f" % v for v in row) + ",%d" % c for row, c in zip(features, classes)]
    (HERE / "rows.txt").write_text("\n".join(lines) + "\n")
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.disable_resource_variables()
        v1.set_random_seed(7)
        x, y = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 3])

        def dense(name, inputs, wide, units):
            with v1.variable_scope(name):
                kernel = v1.get_variable("kernel", [wide, units], initializer=v1.glorot_uniform_initializer())
                bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
                return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)

        hidden = tf.nn.sigmoid(dense("dense", x, 4, 5))
        loss = v1.losses.softmax_cross_entropy(y, dense("dense_1", hidden, 5, 3))
        optimizer = v1.train.GradientDescentOptimizer(RATE)
        gradients = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(gradients)
        v1.train.Saver()
        session.run(v1.global_variables_initializer())
        variables = {v.op.name: v for _, v in gradients}
        feeds = {x: features.astype(np.float32), y: np.eye(3, dtype=np.float32)[classes]}
        reference = {"tensorflow": tf.__version__, "learning_rate": RATE,
                     "targets": [op.name for op in train.control_inputs],
                     "initial": {n: entry(session.run(v)) for n, v in variables.items()}}
        first = session.run([g for g, _ in gradients], feeds)
        reference["step1"] = {"grads": {v.op.name: entry(g) for (_, v), g in zip(gradients, first)}}
        reference["losses"] = [float(session.run([loss, train], feeds)[0]) for _ in range(STEPS)]
        reference["after_step100"] = {n: entry(session.run(v)) for n, v in variables.items()}
        (HERE / "graph.pbtxt").write_text(text_format.MessageToString(graph.as_graph_def()))
    (HERE / "reference.json").write_text(json.dumps(reference, indent=0) + "\n")


main()
