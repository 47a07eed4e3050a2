#!/usr/bin/env python3
"""Writes the zoo's dlrm as a Keras program and its din as a program of TensorFlow 1, for bench/gpu/imported_graphs.py.

usage: tf_graphs.py FOLDER

Needs TensorFlow and Keras. Makes FOLDER/dlrm, a SavedModel whose tables are zeros (they compress well), and FOLDER/din.pb, a
GraphDef. Both are written as a user of those libraries would: din makes its attention layer of [history, item, their
product], where the zoo's own takes the product with the item out of the history.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf1 = tf.compat.v1
DENSE, COLUMNS, BUCKETS, DIM = 13, 26, 50000, 16
HISTORY, ITEMS, CITIES = 12, 500, 50


def sigmoid_loss(label, logit):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit))


def keras_dlrm():
    numbers, ids = keras.Input((DENSE,)), keras.Input((COLUMNS,), dtype="int64")
    bottom = layers.Dense(DIM, activation="relu")(layers.Dense(64, activation="relu")(numbers))
    rows = [layers.Embedding(BUCKETS, DIM, embeddings_initializer="zeros")(ids[:, i]) for i in range(COLUMNS)]
    stacked = keras.ops.stack([bottom, *rows], axis=1)
    dots = keras.ops.reshape(keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1))), (-1, (COLUMNS + 1) ** 2))
    pairs = [i * (COLUMNS + 1) + j for i in range(COLUMNS + 1) for j in range(i)]
    x = layers.Concatenate()([bottom, keras.ops.take(dots, np.array(pairs, np.int32), axis=1)])
    x = layers.Dense(64, activation="relu")(layers.Dense(128, activation="relu")(x))
    return keras.Model([numbers, ids], layers.Dense(1)(x))


def save_dlrm(folder):
    model = keras_dlrm()

    def outputs(dense, sparse, label):
        logit = tf.reshape(model([dense, sparse], training=True), [-1])
        return {"loss": tf.identity(sigmoid_loss(label, logit), name="loss"), "prediction": tf.identity(logit, name="prediction")}

    module = tf.Module()
    module.kept = [v.value for v in model.variables]
    specs = [tf.TensorSpec([None, DENSE], tf.float32, name="dense"), tf.TensorSpec([None, COLUMNS], tf.int64, name="sparse"),
             tf.TensorSpec([None], tf.float32, name="label")]
    tf.saved_model.save(module, folder, signatures={"train": tf.function(outputs, input_signature=specs)})


def variable(name, shape):
    return tf1.get_variable(name, shape, initializer=tf1.glorot_uniform_initializer())


def dense_layer(x, name, width, activation=None):
    made = tf.matmul(x, variable(name + "/kernel", [int(x.shape[-1]), width])) + tf1.get_variable(
        name + "/bias", [width], initializer=tf1.zeros_initializer())
    return activation(made) if activation else made


def save_din(file):
    with tf1.Graph().as_default() as graph:
        tf1.enable_resource_variables()
        history = tf1.placeholder(tf.int64, [None, HISTORY], name="history")
        item = tf1.placeholder(tf.int64, [None, 1], name="item")
        numbers = tf1.placeholder(tf.float32, [None, 1], name="dense")
        city = tf1.placeholder(tf.int64, [None, 1], name="sparse")
        label = tf1.placeholder(tf.float32, [None], name="label")
        table = variable("items", [ITEMS + 1, DIM])
        seen = tf.gather(table, history)
        candidate = tf.gather(table, tf.reshape(item, [-1]) + 1)
        queries = tf.tile(tf.expand_dims(candidate, 1), [1, HISTORY, 1])
        pairs = tf.reshape(tf.concat([seen, queries, seen * queries], 2), [-1, 3 * DIM])
        scores = tf.reshape(dense_layer(dense_layer(pairs, "attention", 32, tf.nn.relu), "score", 1), [-1, 1, HISTORY])
        scores *= tf.cast(tf.expand_dims(tf.not_equal(history, 0), 1), tf.float32)
        interest = tf.squeeze(tf.matmul(scores, seen), [1])
        x = tf.concat([interest, candidate, interest * candidate, numbers,
                       tf.gather(variable("cities", [CITIES, DIM]), tf.reshape(city, [-1]))], 1)
        x = dense_layer(dense_layer(x, "h0", 64, tf.nn.relu), "h1", 32, tf.nn.relu)
        logit = tf.reshape(dense_layer(x, "logit", 1), [-1])
        tf.identity(sigmoid_loss(label, logit), name="loss")
        tf.identity(logit, name="prediction")
    with open(file, "wb") as out:
        out.write(graph.as_graph_def().SerializeToString())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    save_dlrm(os.path.join(sys.argv[1], "dlrm"))
    save_din(os.path.join(sys.argv[1], "din.pb"))


if __name__ == "__main__":
    main()
