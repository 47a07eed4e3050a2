"""TensorFlow 1 graphs with placeholders and optimizers, which oracle.py trains."""

import dataclasses
from typing import Callable

import numpy as np
import tensorflow as tf
from jobs import Exported, batches, has_ids, random_data, write_csv, write_job

tf1 = tf.compat.v1


def tf1_optimizer(kind):
    return {
        "SGD": lambda: tf1.train.GradientDescentOptimizer(0.05),
        "MOMENTUM": lambda: tf1.train.MomentumOptimizer(0.02, 0.9),
        "ADAGRAD": lambda: tf1.train.AdagradOptimizer(0.05, initial_accumulator_value=0.1),
        "ADAM": lambda: tf1.train.AdamOptimizer(0.002, epsilon=1e-5),
        "FTRL": lambda: tf1.train.FtrlOptimizer(0.05, initial_accumulator_value=0.1),
    }[kind]()


@dataclasses.dataclass
class Tf1Program:
    """build(placeholders) gives the loss and the prediction."""

    name: str
    columns: dict
    build: Callable
    parallel: bool = True
    no_keep: str = ""  # why its own gradients cannot be kept
    meta: bool = False  # a .meta file instead of a GraphDef
    # Of losses, where TensorFlow's own float32 is further than the usual from its float64.
    loss_limit: float = 1e-5
    clip: float = 0  # by tf.clip_by_global_norm, in whose norm each use of a row counts: KEEP alone is the same

    @property
    def form(self):
        return ".meta" if self.meta else ".pb"

    @property
    def ways(self):
        return [*([] if self.clip else ["REDO"]), *([] if self.no_keep else ["KEEP"])]

    @property
    def tables(self):
        return has_ids(self.columns)

    def refuses(self, optimizer):
        return "TensorFlow 1's Adam moves rows that no batch names" if optimizer == "ADAM" and self.tables else ""

    def export(self, folder, kind):
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
            optimizer = tf1_optimizer(kind)
            pairs = [(g, v) for g, v in optimizer.compute_gradients(loss) if g is not None]
            if self.clip:
                clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], self.clip)
                pairs = list(zip(clipped, [v for _, v in pairs]))
            with tf1.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
                train = optimizer.apply_gradients(pairs, name="train")
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
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
        job = write_job(folder, schema, kind, graph_fields)
        return Exported(job, "" if self.no_keep else "train", np.array(losses), variables)


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


def safe_lookup(inputs):
    """Bags of ids, of which 0 is left out as no id and -1 pruned; a row of the batch may have none at all."""
    ids = tf.sparse.from_dense(inputs["history"] - 1)
    table, weighted = variable("table", [60, 8], 0.5), variable("sqrtn", [60, 4], 0.5)
    bags = [tf.nn.safe_embedding_lookup_sparse(table, ids, combiner="mean"),
            tf.nn.safe_embedding_lookup_sparse(weighted, ids, combiner="sqrtn")]
    bags.append(tf.gather(variable("item", [60, 4]), inputs["item"]))
    logit = tf.squeeze(dense(dense(tf.concat(bags, 1), "h0", 8, tf.nn.relu), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def partitions(inputs):
    """A table in three parts, by id modulo 3 and by ranges of ids; also under safe lookups."""
    parts = [variable(f"part_{i}", [20, 8], 0.5) for i in range(3)]
    ranges = [variable(f"range_{i}", [20, 4], 0.5) for i in range(3)]
    by_number = tf.reduce_mean(tf1.nn.embedding_lookup(parts, inputs["history"], partition_strategy="mod"), 1)
    by_range = tf1.nn.embedding_lookup(ranges, inputs["item"], partition_strategy="div")
    safe = tf1.nn.safe_embedding_lookup_sparse(parts, tf.sparse.from_dense(inputs["history"]), partition_strategy="mod")
    logit = tf.squeeze(dense(tf.concat([by_number, by_range, safe], 1), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def feature_columns(inputs):
    """Wide & Deep as tf.feature_column builds it: bags of ids, indicators, buckets, numbers."""
    fc = tf.feature_column
    features = {"age": inputs["age"], "city": inputs["item"] % 7, "shown": inputs["history"]}
    age, city = fc.numeric_column("age"), fc.categorical_column_with_identity("city", 7)
    shown, ages = fc.categorical_column_with_identity("shown", 60), fc.bucketized_column(age, [-1.0, 0.0, 1.0])
    deep = tf1.feature_column.input_layer(features, [age, ages, fc.indicator_column(city), fc.embedding_column(shown, 8)])
    wide = tf1.feature_column.linear_model(features, [age, city, shown, ages], sparse_combiner="mean")
    logit = tf.squeeze(wide + dense(dense(deep, "h0", 16, tf.nn.relu), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def deepfm(inputs):
    table, wide = variable("factors", [100, 8], 0.3), variable("weights", [100, 1], 0.3)
    rows = tf.nn.embedding_lookup(table, inputs["ids"])
    total, squares = tf.reduce_sum(rows, 1), tf.reduce_sum(tf.square(rows), 1)
    second = 0.5 * tf.reduce_sum(tf.square(total) - squares, 1)
    first = tf.reduce_sum(tf.nn.embedding_lookup(wide, inputs["ids"]), [1, 2])
    x = tf.concat([tf.reshape(rows, [-1, 32]), inputs["dense"]], 1)
    logit = first + second + tf.squeeze(dense(dense(x, "h0", 16, tf.nn.relu), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def cross_network(inputs):
    """Deep & Cross."""
    rows = tf.reshape(tf.nn.embedding_lookup(variable("table", [100, 4], 0.3), inputs["ids"]), [-1, 16])
    x = first = tf.concat([rows, inputs["dense"]], 1)
    for i in range(3):
        w, b = variable(f"cross{i}/w", [22, 1], 0.3), variable(f"cross{i}/b", [22], 0.1)
        x = first * tf.matmul(x, w) + b + x
    logit = tf.squeeze(dense(tf.concat([x, dense(first, "h0", 16, tf.nn.relu)], 1), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def dien(inputs):
    """A GRU over a history by a loop with a TensorArray, and attention of the item over its states."""
    table = variable("item_emb", [60, 8], 0.5)
    item, history = tf.gather(table, inputs["item"]), tf.gather(table, inputs["history"])
    gates, candidate = variable("gates", [16, 16], 0.4), variable("candidate", [16, 8], 0.4)
    there = tf.transpose(tf.not_equal(inputs["history"], 0))
    steps = tf.TensorArray(tf.float32, 5).unstack(tf.transpose(history, [1, 0, 2]))

    def body(t, state, states):
        x = steps.read(t)
        reset, update = tf.split(tf.sigmoid(tf.matmul(tf.concat([x, state], 1), gates)), 2, axis=1)
        new = update * state + (1 - update) * tf.tanh(tf.matmul(tf.concat([x, reset * state], 1), candidate))
        state = tf.where(tf.expand_dims(tf.gather(there, t), 1), new, state)
        return t + 1, state, states.write(t, state)

    first = (tf.constant(0), tf.zeros_like(item), tf.TensorArray(tf.float32, 5, element_shape=[None, 8]))
    states = tf.transpose(tf.while_loop(lambda t, *_: t < 5, body, first)[2].stack(), [1, 0, 2])
    weights = tf.nn.softmax(tf.squeeze(tf.matmul(states, tf.expand_dims(item, 2)), [2]))
    pooled = tf.reduce_sum(states * tf.expand_dims(weights, 2), 1)
    logit = tf.squeeze(dense(tf.concat([pooled, item], 1), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


IDS = {"dense": ((6,), "float"), "ids": ((4,), 100), "label": ((), "label")}
DIN = {"item": ((), 60), "history": ((5,), 60), "label": ((), "label")}
TOWERS = {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")}
NUMBERS = {"dense": ((6,), "float"), "label": ((), 4)}
IMAGE = {"image": ((64,), "float"), "label": ((), 3)}

AGES = {"age": ((), "float"), **DIN}

PROGRAMS = [
    Tf1Program("wide_deep", IDS, wide_deep),
    Tf1Program("din", DIN, din),
    Tf1Program("din_clipped", DIN, din, clip=0.05, parallel=False),
    # With SGD TensorFlow's losses are 1.9e-5 from those of float64, and Braid's 2.4e-6.
    Tf1Program("two_towers", TOWERS, two_towers, meta=True, loss_limit=2e-5),
    Tf1Program("classifier", NUMBERS, classifier),
    Tf1Program("convolutions", IMAGE, convolutions, meta=True, parallel=False),
    Tf1Program("safe_lookup", DIN, safe_lookup),
    Tf1Program("partitions", DIN, partitions),
    Tf1Program("feature_columns", AGES, feature_columns),
    Tf1Program("deepfm", IDS, deepfm),
    Tf1Program("cross_network", IDS, cross_network),
    Tf1Program("dien", DIN, dien, no_keep="gradients of a loop"),
]
