"""The programs of oracle.py: TensorFlow 1 graphs with placeholders and optimizers, and Keras models."""

import dataclasses
import pathlib
from typing import Callable

import keras
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

BATCH, STEPS = 32, 20

JOB_OPTIMIZERS = {
    "SGD": "kind: SGD learning_rate: 0.05",
    "MOMENTUM": "kind: MOMENTUM learning_rate: 0.02 momentum: 0.9",
    "ADAGRAD": "kind: ADAGRAD learning_rate: 0.05 initial_accumulator: 0.1",
    "ADAM": "kind: ADAM learning_rate: 0.002 epsilon: 1e-7",
    "FTRL": "kind: FTRL learning_rate: 0.05 initial_accumulator: 0.1",
}


def tf1_optimizer(kind):
    return {
        "SGD": lambda: tf1.train.GradientDescentOptimizer(0.05),
        "MOMENTUM": lambda: tf1.train.MomentumOptimizer(0.02, 0.9),
        "ADAGRAD": lambda: tf1.train.AdagradOptimizer(0.05, initial_accumulator_value=0.1),
        "ADAM": lambda: tf1.train.AdamOptimizer(0.002, epsilon=1e-7),
        "FTRL": lambda: tf1.train.FtrlOptimizer(0.05, initial_accumulator_value=0.1),
    }[kind]()


@dataclasses.dataclass
class Exported:
    job: pathlib.Path
    format: str
    train_op: str
    losses: np.ndarray
    variables: dict


# ------------------------------------------------------------------------------------------------------------ data


def random_data(columns, rng):
    """columns: name -> (shape of a row, "float" | "label" | number of ids)."""
    rows = BATCH * STEPS
    data = {}
    for name, (shape, kind) in columns.items():
        if kind == "float":
            data[name] = rng.standard_normal((rows, *shape)).astype(np.float32)
        elif kind == "label":
            data[name] = rng.integers(0, 2, (rows, *shape)).astype(np.float32)
        else:
            data[name] = rng.integers(0, kind, (rows, *shape)).astype(np.int64)
    return data


def write_csv(folder, data, columns):
    """The rows, and the schema of a job: a field for each number of a row."""
    schema, fields, texts = [], [], []
    for name, (shape, kind) in columns.items():
        flat = data[name].reshape(len(data[name]), -1)
        job_kind = {"float": "NUMERIC", "label": "LABEL"}.get(kind, "CLASS")
        for i in range(flat.shape[1]):
            field = f"{name}_{i}"
            fields.append(field)
            schema.append(f'  columns {{ name: "{field}" kind: {job_kind} output: "{name}" }}')
            texts.append([format(v, ".9g") if kind == "float" else str(int(v)) for v in flat[:, i]])
    with open(folder / "data.csv", "w") as out:
        out.write(",".join(fields) + "\n")
        for row in zip(*texts):
            out.write(",".join(row) + "\n")
    return "\n".join(schema)


def write_job(folder, schema, optimizer, graph):
    job = folder / "job.pbtxt"
    job.write_text(
        f"""seed: 7 steps: {STEPS}
model {{ graph {{
{graph}
}} }}
input {{
  format: CSV train_files: "data.csv" global_batch_size: {BATCH} shuffle: false csv {{ header: true }}
{schema}
}}
optimizer {{ {JOB_OPTIMIZERS[optimizer]} }}
evaluation {{ enabled: false }}
"""
    )
    return job


def batches(data):
    for step in range(STEPS):
        yield {name: values[step * BATCH : (step + 1) * BATCH] for name, values in data.items()}


# ------------------------------------------------------------------------------------------------- TensorFlow 1 graphs


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


# ------------------------------------------------------------------------------------------------------- Keras models


def handle_graph(function, names):
    """The GraphDef of a traced function: captured variables become VarHandleOps, captured tensors constants."""
    graph = function.graph
    graph_def = graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    for captured, placeholder in graph.captures:
        node = nodes[placeholder.op.name]
        node.ClearField("attr")
        if captured.dtype == tf.resource:
            v = names[id(captured)]
            node.op = "VarHandleOp"
            node.attr["dtype"].type = v[1].dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(v[1].shape.as_proto())
            node.attr["shared_name"].s = v[0].encode()
        else:
            node.op = "Const"
            node.attr["dtype"].type = captured.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(captured.numpy()))
    return graph_def


class RawOptimizer:
    """The formulas of TensorFlow's own ops; rows that a batch does not name are left alone."""

    def __init__(self, kind):
        self.kind, self.slots, self.step = kind, {}, 0

    def slot(self, v, name, value):
        return self.slots.setdefault((id(v), name), tf.Variable(tf.fill(v.shape, value)))

    def apply(self, pairs):
        self.step += 1
        for gradient, v in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                self.apply_rows(v, gradient)
            else:
                self.apply_dense(v, gradient)

    def apply_dense(self, v, g):
        raw, h = tf.raw_ops, v.handle
        if self.kind == "SGD":
            raw.ResourceApplyGradientDescent(var=h, alpha=0.05, delta=g)
        elif self.kind == "MOMENTUM":
            raw.ResourceApplyMomentum(var=h, accum=self.slot(v, "m", 0.0).handle, lr=0.02, grad=g, momentum=0.9)
        elif self.kind == "ADAGRAD":
            raw.ResourceApplyAdagrad(var=h, accum=self.slot(v, "a", 0.1).handle, lr=0.05, grad=g)
        elif self.kind == "FTRL":
            raw.ResourceApplyFtrl(var=h, accum=self.slot(v, "a", 0.1).handle, linear=self.slot(v, "l", 0.0).handle, grad=g,
                                  lr=0.05, l1=0.0, l2=0.0, lr_power=-0.5)
        else:
            raw.ResourceApplyAdam(var=h, m=self.slot(v, "m", 0.0).handle, v=self.slot(v, "v", 0.0).handle,
                                  beta1_power=0.9**self.step, beta2_power=0.999**self.step, lr=0.002, beta1=0.9, beta2=0.999,
                                  epsilon=1e-7, grad=g)

    def apply_rows(self, v, g):
        indices, places = tf.unique(tf.reshape(g.indices, [-1]))
        width = int(np.prod(v.shape[1:]))
        values = tf.math.unsorted_segment_sum(tf.reshape(g.values, [-1, width]), places, tf.shape(indices)[0])
        raw, h = tf.raw_ops, v.handle
        if self.kind == "SGD":
            raw.ResourceScatterSub(resource=h, indices=indices, updates=0.05 * values)
        elif self.kind == "MOMENTUM":
            raw.ResourceSparseApplyMomentum(var=h, accum=self.slot(v, "m", 0.0).handle, lr=0.02, grad=values, indices=indices, momentum=0.9)
        elif self.kind == "ADAGRAD":
            raw.ResourceSparseApplyAdagrad(var=h, accum=self.slot(v, "a", 0.1).handle, lr=0.05, grad=values, indices=indices)
        elif self.kind == "FTRL":
            raw.ResourceSparseApplyFtrl(var=h, accum=self.slot(v, "a", 0.1).handle, linear=self.slot(v, "l", 0.0).handle, grad=values,
                                        indices=indices, lr=0.05, l1=0.0, l2=0.0, lr_power=-0.5)
        else:
            raise ValueError("Adam of rows differs: TensorFlow decays the moments of all")


@dataclasses.dataclass
class KerasProgram:
    """model() gives a model of the columns but the label; loss(label, output) a scalar."""

    name: str
    optimizer: str
    columns: dict
    model: Callable
    loss: Callable
    parallel: bool = True
    saved_model: bool = False

    def export(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        keras.utils.set_random_seed(11)
        data = random_data(self.columns, np.random.default_rng(len(self.name)))
        model = self.model()
        inputs = [name for name in self.columns if name != "label"]
        specs = [
            tf.TensorSpec([None, *shape], tf.float32 if kind in ("float", "label") else tf.int64, name=name)
            for name, (shape, kind) in self.columns.items()
        ]

        def loss_of(*values):
            fed = dict(zip(self.columns, values))
            output = model([fed[name] for name in inputs] if len(inputs) > 1 else fed[inputs[0]], training=True)
            return tf.identity(self.loss(fed["label"], output), name="loss")

        def prediction_of(*values):
            fed = dict(zip(self.columns, values))
            output = model([fed[name] for name in inputs] if len(inputs) > 1 else fed[inputs[0]], training=False)
            return tf.identity(output, name="prediction")

        traced = tf.function(loss_of).get_concrete_function(*specs)
        predicts = tf.function(prediction_of).get_concrete_function(*specs)
        seeds = [v for layer in model._flatten_layers() for v in getattr(layer, "seed_generator", None) and [layer.seed_generator.state] or []]
        variables = {}
        for v in [*model.variables, *seeds]:
            variables.setdefault(v.path, v.value)
        ids = {id(v.handle): (path, v) for path, v in variables.items()}
        (folder / "graph.pb").write_bytes(handle_graph(traced, ids).SerializeToString())
        (folder / "predict.pb").write_bytes(handle_graph(predicts, ids).SerializeToString())
        np.savez(folder / "first.npz", **{path: v.numpy() for path, v in variables.items()})
        graph_fields = f'  file: "{folder}/graph.pb" inference_file: "{folder}/predict.pb" loss: "loss" prediction: "prediction" initial_file: "{folder}/first.npz"'
        form = "GraphDef of Keras"
        trained = [v.value for v in model.trainable_variables]
        names = "|".join(v.path for v in model.trainable_variables)
        if self.saved_model:
            module = tf.Module()
            module.kept = [v.value for v in model.variables]
            train = tf.function(lambda *values: {"loss": loss_of(*values), "prediction": prediction_of(*values)}, input_signature=specs)
            tf.saved_model.save(module, str(folder / "saved"), signatures={"train": train})
            graph_fields = f'  file: "{folder}/saved" loss: "loss" prediction: "prediction"'
            form, names = "SavedModel", ""
        if names:
            graph_fields += f' trainable: "{names}"'
        optimizer, losses = RawOptimizer(self.optimizer), []
        for batch in batches(data):
            with tf.GradientTape() as tape:
                loss = traced(*[tf.constant(batch[name]) for name in self.columns])
            optimizer.apply(zip(tape.gradient(loss, trained), trained))
            losses.append(float(loss))
        kept = {v.path: v.numpy() for v in model.variables if "seed" not in v.path}
        job = write_job(folder, write_csv(folder, data, self.columns), self.optimizer, graph_fields)
        return Exported(job, form, "", np.array(losses), kept)


layers = keras.layers


def binary(label, output):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=tf.reshape(output, [-1])))


def classes(label, output):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=output))


def squares(label, output):
    return tf.reduce_mean(tf.square(output - label))


def keras_dlrm(rate=0.0):
    numbers, ids = keras.Input((6,)), keras.Input((4,), dtype="int64")
    bottom = layers.Dense(8, activation="relu")(layers.Dense(16, activation="relu")(numbers))
    rows = [layers.Embedding(40, 8)(ids[:, i]) for i in range(4)]
    stacked = keras.ops.stack([bottom, *rows], axis=1)
    dots = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
    x = layers.Concatenate()([bottom, layers.Flatten()(dots)])
    x = layers.Dense(16, activation="relu")(x)
    if rate:
        x = layers.Dropout(rate, seed=5)(x)
    return keras.Model([numbers, ids], layers.Dense(1)(x))


def keras_cnn():
    x = image = keras.Input((8, 8, 1))
    for width in (4, 8):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        x = layers.MaxPooling2D()(x)
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def keras_gru():
    tokens = keras.Input((6,), dtype="int64")
    x = layers.GRU(8, unroll=True)(layers.Embedding(30, 6)(tokens))
    return keras.Model(tokens, layers.Dense(1)(x))


def keras_lstm_loop():
    tokens = keras.Input((6,), dtype="int64")
    return keras.Model(tokens, layers.Dense(1)(layers.LSTM(8)(layers.Embedding(30, 6)(tokens))))


def keras_recurrent(layer):
    """A layer of its own loop over the steps."""

    def build():
        tokens = keras.Input((6,), dtype="int64")
        return keras.Model(tokens, layers.Dense(1)(layer()(layers.Embedding(30, 6)(tokens))))

    return build


def keras_masked():
    tokens = keras.Input((6,), dtype="int64")
    return keras.Model(tokens, layers.Dense(1)(layers.GRU(8)(layers.Embedding(30, 6, mask_zero=True)(tokens))))


def keras_noise():
    x = numbers = keras.Input((6,))
    x = layers.GaussianNoise(0.1, seed=3)(layers.Dense(16, activation="tanh")(x))
    return keras.Model(numbers, layers.Dense(2)(layers.AlphaDropout(0.1, seed=4)(x)))


def keras_autoencoder():
    x = numbers = keras.Input((6,))
    for width in (8, 3, 8):
        x = layers.Dense(width, activation="elu", kernel_regularizer="l2")(x)
    return keras.Model(numbers, layers.Dense(2)(x))


def keras_separable():
    x = image = keras.Input((8, 8, 1))
    for width in (4, 8):
        x = layers.SeparableConv2D(width, 3, padding="same", strides=2, activation="relu")(x)
    return keras.Model(image, layers.Dense(3)(layers.Flatten()(x)))


def keras_two_towers():
    user, item = keras.Input((3,), dtype="int64"), keras.Input((4,), dtype="int64")
    ends = []
    for ids in (user, item):
        x = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(ids))
        ends.append(layers.Dense(8)(layers.Dense(16, activation="relu")(x)))
    return keras.Model([user, item], layers.Dot(axes=1, normalize=True)(ends))


def keras_transformer(rate=0.0):
    tokens = keras.Input((6,), dtype="int64")
    x = layers.Embedding(30, 8)(tokens)
    for _ in range(2):
        attended = layers.MultiHeadAttention(2, 4)(x, x)
        if rate:
            attended = layers.Dropout(rate)(attended)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def keras_text_cnn():
    tokens = keras.Input((10,), dtype="int64")
    x = layers.Embedding(30, 8)(tokens)
    pooled = [layers.GlobalMaxPooling1D()(layers.Conv1D(6, k, activation="relu")(x)) for k in (2, 3)]
    return keras.Model(tokens, layers.Dense(1)(layers.Concatenate()(pooled)))


def keras_mlp(rate=0.0):
    x = numbers = keras.Input((6,))
    for width in (16, 16):
        x = layers.LayerNormalization()(layers.Dense(width, activation="swish")(x))
        if rate:
            x = layers.Dropout(rate)(x)
    return keras.Model(numbers, layers.Dense(2)(x))


IDS = {"dense": ((6,), "float"), "ids": ((4,), 100), "label": ((), "label")}
DIN = {"item": ((), 60), "history": ((5,), 60), "label": ((), "label")}
TOWERS = {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")}
NUMBERS = {"dense": ((6,), "float"), "label": ((), 4)}
IMAGE = {"image": ((64,), "float"), "label": ((), 3)}
KERAS_IDS = {"dense": ((6,), "float"), "ids": ((4,), 40), "label": ((), "label")}
KERAS_IMAGE = {"image": ((8, 8, 1), "float"), "label": ((), 3)}
TOKENS = {"tokens": ((6,), 30), "label": ((), "label")}
TOKEN_CLASSES = {"tokens": ((6,), 30), "label": ((), 3)}
LONG = {"tokens": ((10,), 30), "label": ((), "label")}
VALUES = {"dense": ((6,), "float"), "label": ((2,), "float")}

ALL = [
    *[Tf1Program(f"wide_deep_{kind.lower()}", kind, IDS, wide_deep) for kind in ("SGD", "MOMENTUM", "ADAGRAD", "FTRL")],
    *[Tf1Program(f"din_{kind.lower()}", kind, DIN, din) for kind in ("SGD", "ADAGRAD")],
    Tf1Program("din_clipped", "SGD", DIN, din, clip=0.05, parallel=False),
    *[Tf1Program(f"two_towers_{kind.lower()}", kind, TOWERS, two_towers, meta=True) for kind in ("ADAGRAD", "FTRL")],
    *[Tf1Program(f"classifier_{kind.lower()}", kind, NUMBERS, classifier) for kind in JOB_OPTIMIZERS],
    *[Tf1Program(f"convolutions_{kind.lower()}", kind, IMAGE, convolutions, meta=True, parallel=False) for kind in ("MOMENTUM", "ADAM")],
    *[KerasProgram(f"keras_dlrm_{kind.lower()}", kind, KERAS_IDS, keras_dlrm, binary) for kind in ("SGD", "ADAGRAD", "FTRL")],
    KerasProgram("keras_dlrm_dropout", "ADAGRAD", KERAS_IDS, lambda: keras_dlrm(0.2), binary, parallel=False),
    *[KerasProgram(f"keras_cnn_{kind.lower()}", kind, KERAS_IMAGE, keras_cnn, classes, parallel=False) for kind in ("SGD", "ADAM")],
    *[KerasProgram(f"keras_gru_{kind.lower()}", kind, TOKENS, keras_gru, binary) for kind in ("MOMENTUM", "ADAGRAD")],
    *[KerasProgram(f"keras_transformer_{kind.lower()}", kind, TOKEN_CLASSES, keras_transformer, classes) for kind in ("SGD", "ADAGRAD")],
    KerasProgram("keras_transformer_dropout", "SGD", TOKEN_CLASSES, lambda: keras_transformer(0.1), classes, parallel=False),
    KerasProgram("keras_text_cnn", "ADAGRAD", LONG, keras_text_cnn, binary),
    *[KerasProgram(f"keras_mlp_{kind.lower()}", kind, VALUES, keras_mlp, squares) for kind in ("ADAM", "MOMENTUM")],
    KerasProgram("keras_saved_model", "ADAM", VALUES, keras_mlp, squares, saved_model=True),
    KerasProgram("keras_saved_dropout", "ADAGRAD", VALUES, lambda: keras_mlp(0.2), squares, parallel=False, saved_model=True),
    KerasProgram("keras_lstm_loop", "ADAGRAD", TOKENS, keras_lstm_loop, binary),
    KerasProgram("keras_gru_loop", "SGD", TOKENS, keras_recurrent(lambda: layers.GRU(8)), binary),
    KerasProgram("keras_rnn_loop", "FTRL", TOKENS, keras_recurrent(lambda: layers.SimpleRNN(8)), binary, parallel=False),
    KerasProgram("keras_bilstm_loop", "MOMENTUM", TOKENS, keras_recurrent(lambda: layers.Bidirectional(layers.LSTM(4))), binary),
    KerasProgram("keras_masked_gru", "SGD", TOKENS, keras_masked, binary, parallel=False),
    KerasProgram("keras_noise", "ADAM", VALUES, keras_noise, squares, parallel=False),
    KerasProgram("keras_autoencoder", "MOMENTUM", VALUES, keras_autoencoder, squares),
    KerasProgram("keras_separable", "ADAGRAD", KERAS_IMAGE, keras_separable, classes),
    KerasProgram("keras_two_towers", "FTRL", TOWERS, keras_two_towers, binary),
]


# --------------------------------------------------------------------------------------------- what cannot be trained


@dataclasses.dataclass
class RefusedProgram:
    """build() makes a graph with the node "loss"; `says` is what `braid graph check --train` answers."""

    name: str
    says: str
    build: Callable
    flags: tuple = ()

    def export(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        graph = tf1.Graph()
        with graph.as_default():
            tf1.enable_resource_variables()
            tf.identity(self.build(), name="loss")
        (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        return folder / "graph.pb"


def safe_lookup():
    ids = tf1.sparse_placeholder(tf.int64, name="ids")
    return tf.reduce_mean(tf.nn.safe_embedding_lookup_sparse([variable("table", [10, 4])], ids))


def own_gradient():
    @tf.custom_gradient
    def act(x):
        return tf.square(x), lambda dy: 7.0 * dy

    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    return tf.reduce_mean(act(tf.matmul(x, variable("w", [3, 1]))))


def data_decides():
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    w = variable("w", [3, 3])
    return tf.reduce_mean(tf.while_loop(lambda v: tf.reduce_sum(v) < 10.0, lambda v: tf.matmul(v, w), [x])[0])


def word2vec():
    ids, labels = tf1.placeholder(tf.int64, [None], name="ids"), tf1.placeholder(tf.int64, [None, 1], name="labels")
    rows = tf.nn.embedding_lookup(variable("table", [50, 8]), ids)
    sampled = tf.random.learned_unigram_candidate_sampler(labels, 1, 4, True, 50)
    return tf.reduce_mean(tf.nn.nce_loss(variable("nce", [50, 8]), variable("nce_bias", [50]), labels, rows, 4, 50, sampled_values=sampled))


def adam_of_tables():
    ids = tf1.placeholder(tf.int64, [None], name="ids")
    loss = tf.reduce_mean(tf.nn.embedding_lookup(variable("table", [50, 8]), ids))
    tf1.train.AdamOptimizer().minimize(loss, name="train")
    return loss


def strings():
    words = tf1.placeholder(tf.string, [None], name="words")
    ids = tf.strings.to_hash_bucket_fast(words, 50)
    return tf.reduce_mean(tf.nn.embedding_lookup(variable("table", [50, 8]), ids))


REFUSED = [
    RefusedProgram("safe_embedding_lookup_sparse", "[SparseReshape]", safe_lookup),
    RefusedProgram("custom_gradient", "has a gradient of its own", own_gradient),
    RefusedProgram("while_of_data", "how often the loop turns does not follow from the graph", data_decides),
    RefusedProgram("word2vec_nce", "[LearnedUnigramCandidateSampler]", word2vec),
    RefusedProgram("keep_adam_of_tables", "it changes 'table'", adam_of_tables, ("--train-op", "train")),
    RefusedProgram("strings", "'words' takes strings", strings),
]
