"""TensorFlow 1 graphs with placeholders and optimizers, which oracle.py trains."""

import dataclasses
from typing import Callable

import numpy as np
import tensorflow as tf
from jobs import JOB_OPTIMIZERS, Exported, batches, random_data, write_csv, write_job

tf1 = tf.compat.v1


def tf1_optimizer(kind):
    return {
        "SGD": lambda: tf1.train.GradientDescentOptimizer(0.05),
        "MOMENTUM": lambda: tf1.train.MomentumOptimizer(0.02, 0.9),
        "ADAGRAD": lambda: tf1.train.AdagradOptimizer(0.05, initial_accumulator_value=0.1),
        "ADAM": lambda: tf1.train.AdamOptimizer(0.002, epsilon=1e-7),
        "FTRL": lambda: tf1.train.FtrlOptimizer(0.05, initial_accumulator_value=0.1),
    }[kind]()


@dataclasses.dataclass
class Tf1Program:
    """build(placeholders) gives the loss and the prediction."""

    name: str
    optimizer: str
    columns: dict
    build: Callable
    parallel: bool = True
    meta: bool = False  # a .meta file instead of a GraphDef
    clip: float = 0  # by tf.clip_by_global_norm, in whose norm each use of a row counts: KEEP alone is the same

    def export(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        data = random_data(self.columns, np.random.default_rng(len(self.name)))
        graph = tf1.Graph()
        with graph.as_default(), tf1.Session(graph=graph) as session:
            tf1.set_random_seed(3)
            tf1.enable_resource_variables()
            inputs = {
                name: tf1.placeholder(tf.float32 if kind in ("float", "label") else tf.int64, [None, *shape], name=name)
                for name, (shape, kind) in self.columns.items()
            }
            loss, prediction = self.build(inputs)
            loss = tf.identity(loss, name="loss")
            tf.identity(prediction, name="prediction")
            optimizer = tf1_optimizer(self.optimizer)
            pairs = [(g, v) for g, v in optimizer.compute_gradients(loss) if g is not None]
            if self.clip:
                clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], self.clip)
                pairs = list(zip(clipped, [v for _, v in pairs]))
            with tf1.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
                train = optimizer.apply_gradients(pairs, name="train")
            session.run(tf1.global_variables_initializer())
            saved = tf1.global_variables()
            saver = tf1.train.Saver(saved)
            saver.save(session, str(folder / "first"), write_meta_graph=False)
            if self.meta:
                tf1.train.export_meta_graph(str(folder / "graph.meta"), graph=graph)
            else:
                (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
            losses = []
            for batch in batches(data):
                value, _ = session.run([loss, train], {inputs[name]: values for name, values in batch.items()})
                losses.append(value)
            trained = [v for _, v in pairs] + tf1.get_collection("statistics")
            variables = dict(zip([v.op.name for v in trained], session.run(trained)))
        file = "graph.meta" if self.meta else "graph.pb"
        schema = write_csv(folder, data, self.columns)
        graph_fields = f'  file: "{folder}/{file}" loss: "loss:0" prediction: "prediction" initial_file: "{folder}/first"'
        job = write_job(folder, schema, self.optimizer, graph_fields)
        return Exported(job, "MetaGraphDef" if self.meta else "GraphDef", "train", np.array(losses), variables)


def variable(name, shape, scale=0.1):
    return tf1.get_variable(name, shape, initializer=tf1.random_uniform_initializer(-scale, scale, seed=len(name)))


def dense(x, name, width, activation=None):
    w = variable(name + "/kernel", [int(x.shape[-1]), width], 0.3)
    b = tf1.get_variable(name + "/bias", [width], initializer=tf1.zeros_initializer())
    y = tf.nn.bias_add(tf.matmul(x, w), b)
    return activation(y) if activation else y


def sigmoid_loss(logit, label):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit))


def wide_deep(inputs):
    wide = tf.reduce_sum(tf.nn.embedding_lookup(variable("wide", [100, 1]), inputs["ids"]), axis=[1, 2])
    deep = tf.reshape(tf.nn.embedding_lookup(variable("deep", [100, 8]), inputs["ids"]), [-1, 4 * 8])
    x = tf.concat([deep, inputs["dense"]], axis=1)
    x = dense(dense(x, "h0", 32, tf.nn.relu), "h1", 16, tf.nn.relu)
    logit = wide + tf.squeeze(dense(x, "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def din(inputs):
    """Attention of an item over a history, as in zhougr1993/DeepInterestNetwork, with an unused user table."""
    table, user = variable("item_emb", [60, 8]), variable("user_emb_w", [10, 8])
    del user
    item, history = tf.gather(table, inputs["item"]), tf.gather(table, inputs["history"])
    queries = tf.tile(tf.expand_dims(item, 1), [1, tf.shape(history)[1], 1])
    features = tf.concat([queries, history, queries - history, queries * history], axis=-1)
    flat = tf.reshape(features, [-1, 32])
    scores = tf.reshape(dense(dense(flat, "att0", 16, tf.sigmoid), "att1", 1), [-1, 1, 5])
    mask = tf.expand_dims(tf.not_equal(inputs["history"], 0), 1)
    scores = tf.where(mask, scores, tf.ones_like(scores) * (-(2.0**31)))
    weights = tf.nn.softmax(scores / (8**0.5))
    x = tf.concat([tf.squeeze(tf.matmul(weights, history), [1]), item], axis=-1)
    logit = tf.squeeze(dense(dense(x, "h0", 16, tf.nn.relu), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def two_towers(inputs):
    def tower(name, ids):
        x = tf.reduce_mean(tf.nn.embedding_lookup(variable(name + "/table", [50, 8], 0.5), ids), axis=1)
        return tf.nn.l2_normalize(dense(dense(x, name + "/h0", 16, tf.tanh), name + "/h1", 8), axis=1)

    logit = 5.0 * tf.reduce_sum(tower("user", inputs["user"]) * tower("item", inputs["item"]), axis=1)
    return sigmoid_loss(logit, inputs["label"]), logit


def classifier(inputs):
    x = dense(dense(inputs["dense"], "h0", 32, tf.nn.elu), "h1", 16, tf.nn.softplus)
    logits = dense(x, "out", 4)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=inputs["label"], logits=logits)
    decay = 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables() if v.op.name.endswith("kernel")])
    return tf.reduce_mean(losses) + decay, tf.nn.softmax(logits)


def convolutions(inputs):
    """Batch normalisation by hand, with its updates in UPDATE_OPS."""
    x = tf.reshape(inputs["image"], [-1, 8, 8, 1])
    for i, width in enumerate((4, 8)):
        x = tf.nn.conv2d(x, variable(f"conv{i}", [3, 3, int(x.shape[-1]), width], 0.4), strides=2, padding="SAME")
        scale = tf1.get_variable(f"bn{i}/gamma", [width], initializer=tf1.ones_initializer())
        shift = tf1.get_variable(f"bn{i}/beta", [width], initializer=tf1.zeros_initializer())
        mean = tf1.get_variable(f"bn{i}/mean", [width], initializer=tf1.zeros_initializer(), trainable=False)
        variance = tf1.get_variable(f"bn{i}/variance", [width], initializer=tf1.ones_initializer(), trainable=False)
        x, batch_mean, batch_variance = tf1.nn.fused_batch_norm(x, scale, shift, is_training=True)
        for stored, seen in ((mean, batch_mean), (variance, batch_variance)):
            tf1.add_to_collection("statistics", stored)
            tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, tf1.assign_sub(stored, (stored - seen) * 0.1).op)
        x = tf.nn.relu(x)
    logits = dense(tf.reshape(x, [-1, 2 * 2 * 8]), "out", 3)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=inputs["label"], logits=logits)
    return tf.reduce_mean(losses), logits


IDS = {"dense": ((6,), "float"), "ids": ((4,), 100), "label": ((), "label")}
DIN = {"item": ((), 60), "history": ((5,), 60), "label": ((), "label")}
TOWERS = {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")}
NUMBERS = {"dense": ((6,), "float"), "label": ((), 4)}
IMAGE = {"image": ((64,), "float"), "label": ((), 3)}

PROGRAMS = [
    *[Tf1Program(f"wide_deep_{kind.lower()}", kind, IDS, wide_deep) for kind in ("SGD", "MOMENTUM", "ADAGRAD", "FTRL")],
    *[Tf1Program(f"din_{kind.lower()}", kind, DIN, din) for kind in ("SGD", "ADAGRAD")],
    Tf1Program("din_clipped", "SGD", DIN, din, clip=0.05, parallel=False),
    *[Tf1Program(f"two_towers_{kind.lower()}", kind, TOWERS, two_towers, meta=True) for kind in ("ADAGRAD", "FTRL")],
    *[Tf1Program(f"classifier_{kind.lower()}", kind, NUMBERS, classifier) for kind in JOB_OPTIMIZERS],
    *[Tf1Program(f"convolutions_{kind.lower()}", kind, IMAGE, convolutions, meta=True, parallel=False) for kind in ("MOMENTUM", "ADAM")],
]
