"""Makes graphs/NAME.pbtxt and graphs/NAME.tsv beside this file: small frozen graphs as TensorFlow 2.15.1 exports them, and
what it computes for their feeds.

A line of NAME.tsv is: feed or output, node, number of the output, type, sizes between commas, values between spaces.
Usage: python3 make_graphs.py. tf_graphs_test.cc imports each graph, runs it and compares.
"""

import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

HERE = pathlib.Path(__file__).parent / "graphs"
rng = np.random.default_rng(11)


def floats(*shape):
    return rng.normal(size=shape).astype(np.float32).round(3)


def weight(array):
    """What is left of a variable in a frozen graph."""
    return tf.identity(tf.constant(array))


def mlp(x):
    for wide, units in [(6, 5), (5, 4)]:
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weight(floats(wide, units))), weight(floats(units))))
    return {"probabilities": tf.nn.softmax(x), "top": tf.argmax(x, axis=1)}


def cnn(x):
    x = tf.nn.conv2d(x, weight(floats(3, 3, 2, 4)), strides=[1, 2, 1, 1], padding="SAME")
    x = tf.nn.elu(tf.nn.bias_add(x, weight(floats(4))))
    x = tf.nn.max_pool2d(x, 2, 2, "VALID") + tf.nn.avg_pool2d(x, 2, 2, "VALID")
    return {"features": tf.reshape(x, [tf.shape(x)[0], -1])}


def batch_norm(x):
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(x, floats(3), floats(3), mean=floats(3),
                                                variance=np.abs(floats(3)) + 0.5, is_training=False)
    return {"normal": y, "layer": (x - tf.reduce_mean(x, -1, keepdims=True))
            * tf.math.rsqrt(tf.math.reduce_variance(x, -1, keepdims=True) + 1e-3)}


def embedding(ids, weights):
    table = weight(floats(10, 3))
    rows = tf.gather(table, ids)
    unique, index = tf.unique(tf.reshape(ids, [-1]))
    return {"mean": tf.reduce_mean(rows, 1), "weighted": tf.reduce_sum(rows * weights[..., tf.newaxis], 1),
            "unique": unique, "index": index, "hot": tf.one_hot(ids, 10, on_value=2.0, off_value=-1.0)}


def segments(x, ids):
    return {"sum": tf.math.segment_sum(x, ids), "mean": tf.math.segment_mean(x, ids), "max": tf.math.segment_max(x, ids),
            "unsorted": tf.math.unsorted_segment_sum(x, tf.reverse(ids, [0]), 5),
            "sparse": tf.sparse.segment_mean(x, tf.constant([0, 2, 2, 5]), tf.constant([0, 0, 1, 1]))}


def reductions(x):
    return {"sum": tf.reduce_sum(x, [0, 2]), "mean": tf.reduce_mean(x, 1, keepdims=True), "max": tf.reduce_max(x),
            "prod": tf.reduce_prod(x, -1), "any": tf.reduce_any(x > 1, 1), "all": tf.reduce_all(x < 2, [1, 2]),
            "logsumexp": tf.reduce_logsumexp(x, 2), "norm": tf.norm(x, axis=1), "argmin": tf.argmin(x, 2),
            "cumulative": tf.cumsum(x, 1, exclusive=True, reverse=True)}


def shapes(x, y):
    first, rest = tf.split(x, [1, 3], axis=1)
    values, indices = tf.math.top_k(x, 2)
    return {"slice": x[1:, ::-2], "mask": x[..., tf.newaxis, 1], "joined": tf.concat([rest, y, first], 1),
            "stacked": tf.stack(tf.unstack(x, axis=1), axis=0), "padded": tf.pad(x, [[1, 0], [0, 2]], constant_values=7),
            "mirror": tf.pad(x, [[1, 1], [2, 0]], mode="REFLECT"), "tiled": tf.tile(y, [2, 3]),
            "turned": tf.transpose(tf.reshape(x, [2, 3, 2]), [2, 0, 1]), "values": values, "indices": indices,
            "spread": tf.broadcast_to(y[:, :1], [3, 4]), "where": tf.where(x > 0, x, -2 * x)}


def elementwise(x, y):
    return {"tanh": tf.tanh(x), "erf": tf.math.erf(x), "gelu": tf.nn.gelu(x), "softplus": tf.nn.softplus(x),
            "selu": tf.nn.selu(x), "leaky": tf.nn.leaky_relu(x, 0.3), "swish": tf.nn.silu(x), "power": tf.pow(tf.abs(x), y),
            "mod": tf.math.floormod(x, 0.7), "div": tf.math.divide_no_nan(x, tf.nn.relu(y)), "floor": tf.floor(3 * x),
            "clip": tf.clip_by_value(x, -0.5, 0.8), "difference": tf.math.squared_difference(x, y),
            "least": tf.minimum(x, y), "whole": tf.cast(x * 10, tf.int32) // 3, "sign": tf.sign(x),
            "is": tf.logical_or(tf.logical_not(x > y), tf.equal(tf.round(x), 0.0))}


def products(a, b):
    return {"batched": tf.matmul(a, b, transpose_b=True), "einsum": tf.einsum("bij,bkj->bik", a, b) / 2,
            "outer": tf.einsum("bi,bj->bij", a[:, 0], b[:, 1]), "dot": tf.tensordot(a, b[0], axes=[[2], [1]]),
            "diagonal": tf.linalg.diag_part(tf.matmul(a, b, transpose_b=True)),
            "band": tf.linalg.band_part(tf.matmul(a, b, transpose_b=True), 0, 1)}


def losses(logits, labels):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        sparse = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        sigmoid = tf.nn.sigmoid_cross_entropy_with_logits(tf.one_hot(labels, 4), logits)
        total = tf.reduce_mean(sparse) + 0.1 * tf.reduce_sum(sigmoid) + tf.nn.l2_loss(logits)
    return {"sparse": sparse, "sigmoid": sigmoid, "gradient": tape.gradient(total, logits),
            "in_top": tf.math.in_top_k(labels, logits, 2)}


def lstm(x):
    kernel, bias = weight(floats(3 + 2, 8)), weight(floats(8))
    h = c = tf.zeros([tf.shape(x)[0], 2])
    for t in range(3):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x[:, t], h], 1), kernel) + bias, 4, axis=1)
        c = tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
    return {"h": h, "c": c}


CASES = {
    mlp: [floats(3, 6)], cnn: [floats(2, 6, 8, 2)], batch_norm: [floats(2, 4, 4, 3)],
    embedding: [np.array([[1, 9, 1], [4, 0, 9]], np.int64), floats(2, 3)],
    segments: [floats(6, 3), np.array([0, 0, 1, 3, 3, 4], np.int32)], reductions: [floats(2, 3, 4)],
    shapes: [floats(3, 4), floats(3, 2)], elementwise: [floats(3, 5), floats(3, 5)],
    products: [floats(2, 3, 4), floats(2, 3, 4)],
    losses: [floats(5, 4), np.array([0, 3, 1, 1, 2], np.int32)], lstm: [floats(2, 3, 3)],
}


def line(kind, name, array):
    array = np.asarray(array)
    values = " ".join(repr(v) if array.dtype.kind == "f" else str(int(v)) for v in array.ravel().tolist())
    return "\t".join([kind, *name.split(":"), str(array.dtype), ",".join(map(str, array.shape)), values]) + "\n"


def main():
    for old in HERE.glob("*"):
        old.unlink()
    for function, feeds in CASES.items():
        # The batch may have any size.
        signature = [tf.TensorSpec([None, *f.shape[1:]], f.dtype) for f in feeds]
        if function in (shapes, segments):
            signature = [tf.TensorSpec(f.shape, f.dtype) for f in feeds]
        concrete = tf.function(function).get_concrete_function(*signature)
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
        graph = frozen.graph.as_graph_def()
        values = dict(zip([t.name for t in frozen.outputs], frozen(*map(tf.constant, feeds))))
        values = {name: value for name, value in values.items() if "NoOp" not in name}
        text = "# " + function.__name__ + "\n"
        text += "".join(line("feed", t.name, f) for t, f in zip(frozen.inputs, feeds))
        text += "".join(line("output", name, value) for name, value in values.items())
        (HERE / (function.__name__ + ".pbtxt")).write_text(text_format.MessageToString(graph))
        (HERE / (function.__name__ + ".tsv")).write_text(text)
        print(function.__name__, len(graph.node), "nodes,", len(values), "outputs")


main()
