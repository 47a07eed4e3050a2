"""The zoo (models/) as TensorFlow functions of their variables, for cpu_models.py.

A model is loss(p, batch): p maps Braid's names of variables to tf.Variables, batch maps columns to tensors. A training
step is one tf.function. Layers are what a TensorFlow user would write: NHWC convolutions, fused batch normalisation, one
embedding a column with gradients by rows, and the optimizers of tf.compat.v1.train, which apply each variable with one
fused op, rows of tables included.
"""
import tensorflow as tf

VERSION = tf.__version__


def set_threads(count):
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def dense(p, name, x):
    return tf.nn.bias_add(tf.matmul(x, p[name + "/kernel"]), p[name + "/bias"])


def layers(p, name, x):
    i = 0
    while f"{name}/layer{i}/kernel" in p:
        x = tf.nn.relu(dense(p, f"{name}/layer{i}", x))
        i += 1
    return x


def rows(p, name, ids):
    return tf.gather(p[name + "/table"], ids)


def columns(p, prefix, ids):
    return [rows(p, f"{prefix}c{c}", column) for c, column in enumerate(tf.unstack(ids, axis=1))]


def sigmoid_loss(logits, labels):
    logits = tf.reshape(logits, [-1])
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def class_loss(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def flat(x):
    return tf.reshape(x, [x.shape[0], -1])


def linear_regression(p, batch):
    z = tf.nn.bias_add(tf.matmul(batch["x"], p["weight_x"]), p["bias"]) + tf.matmul(batch["y"], p["weight_y"])
    return tf.reduce_mean(tf.math.squared_difference(z, batch["z"]))


def mlp(p, batch):
    return class_loss(dense(p, "logits", layers(p, "mlp", flat(batch["image"]))), batch["label"])


def cnn(p, batch):
    x = batch["image"]
    for name in ("conv0", "conv1"):
        x = tf.nn.bias_add(tf.nn.conv2d(x, p[name + "/kernel"], 1, "SAME"), p[name + "/bias"])
        x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
    return class_loss(dense(p, "logits", tf.nn.relu(dense(p, "hidden", flat(x)))), batch["label"])


def wide_deep(p, batch):
    wide = dense(p, "wide/dense", batch["dense"]) + tf.add_n(columns(p, "wide/", batch["sparse"]))
    deep = layers(p, "deep/mlp", tf.concat([batch["dense"]] + columns(p, "deep/", batch["sparse"]), 1))
    return sigmoid_loss(wide + dense(p, "deep/logit", deep), batch["label"])


def dlrm(p, batch):
    bottom = layers(p, "bottom", batch["dense"])
    tables = [rows(p, f"table{c}", ids) for c, ids in enumerate(tf.unstack(batch["sparse"], axis=1))]
    vectors = tf.stack([bottom] + tables, 1)
    n = vectors.shape[1]
    below_diagonal = [i * n + j for i in range(n) for j in range(i)]
    pairs = tf.gather(flat(tf.matmul(vectors, vectors, transpose_b=True)), below_diagonal, axis=1)
    return sigmoid_loss(dense(p, "logit", layers(p, "top", tf.concat([bottom, pairs], 1))), batch["label"])


def deepfm(p, batch):
    both = tf.stack(columns(p, "", batch["sparse"]), 1)  # [B, C, 1 + dim]
    weights, vectors = both[:, :, 0], both[:, :, 1:]
    twice = tf.square(tf.reduce_sum(vectors, 1)) - tf.reduce_sum(tf.square(vectors), 1)
    machine = (tf.squeeze(dense(p, "machine/dense", batch["dense"]), 1) + tf.reduce_sum(weights, 1) +
               0.5 * tf.reduce_sum(twice, 1))
    deep = layers(p, "deep/mlp", tf.concat([batch["dense"], flat(vectors)], 1))
    return sigmoid_loss(machine + tf.squeeze(dense(p, "deep/logit", deep), 1), batch["label"])


def dcn_v2(p, batch):
    x0 = tf.concat([batch["dense"]] + columns(p, "", batch["sparse"]), 1)
    cross = x0
    for i in range(3):
        cross = x0 * dense(p, f"cross{i}", cross) + cross
    return sigmoid_loss(dense(p, "logit", tf.concat([cross, layers(p, "deep", x0)], 1)), batch["label"])


def mmoe(p, batch):
    x = tf.concat([batch["dense"]] + columns(p, "", batch["sparse"]), 1)
    experts = []
    while f"expert{len(experts)}/layer0/kernel" in p:
        experts.append(layers(p, f"expert{len(experts)}", x))
    experts = tf.stack(experts, 1)
    losses = []
    for task in ("click", "purchase"):
        gate = tf.nn.softmax(dense(p, f"{task}_task/gate", x))
        mixed = tf.squeeze(tf.matmul(gate[:, tf.newaxis], experts), 1)
        tower = tf.nn.relu(dense(p, f"{task}_task/tower", mixed))
        losses.append(sigmoid_loss(dense(p, f"{task}_task/logit", tower), batch[task]))
    return tf.add_n(losses)


def din(p, batch):
    ids = batch["history"]
    both = rows(p, "items", tf.concat([ids, batch["item"] + 1], 1))
    history, item = both[:, :-1], both[:, -1]
    dim = item.shape[1]
    pairs = tf.concat([history, history * item[:, tf.newaxis]], 2)
    from_pairs = tf.reshape(dense(p, "attention/history", tf.reshape(pairs, [-1, 2 * dim])), [*ids.shape, -1])
    hidden = tf.nn.relu(from_pairs + dense(p, "attention/item", item)[:, tf.newaxis])
    scores = tf.reshape(dense(p, "attention/score", tf.reshape(hidden, [-1, hidden.shape[2]])), ids.shape)
    scores *= tf.cast(ids != 0, tf.float32)
    interest = tf.squeeze(tf.matmul(scores[:, tf.newaxis], history), 1)
    features = [interest, item, interest * item, batch["dense"]] + columns(p, "", batch["sparse"])
    return sigmoid_loss(dense(p, "logit", layers(p, "top", tf.concat(features, 1))), batch["label"])


def transformer(p, batch):
    def norm(name, x):
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, p[name + "/shift"], p[name + "/scale"], 1e-5)

    count, length = batch["tokens"].shape
    x = rows(p, "tokens_table", batch["tokens"]) + p["places"]
    dim = x.shape[2]
    x = tf.reshape(x, [-1, dim])
    heads, layer = 4, 0
    while f"layer{layer}/inner/kernel" in p:
        name = f"layer{layer}/"
        normal = norm(name + "norm0", x)
        query, key, value = (
            tf.transpose(tf.reshape(dense(p, f"{name}attention/{part}", normal), [count, length, heads, -1]), [0, 2, 1, 3])
            for part in ("query", "key", "value"))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / (dim // heads) ** 0.5)
        mixed = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [-1, dim])
        x += dense(p, name + "attention/output", mixed)
        x += dense(p, name + "outer", tf.nn.relu(dense(p, name + "inner", norm(name + "norm1", x))))
        layer += 1
    pooled = tf.reduce_mean(tf.reshape(norm("norm", x), [count, length, dim]), 1)
    return class_loss(dense(p, "logits", pooled), batch["label"])


def resnet18(p, batch):
    def conv(name, x, stride=1):
        x = tf.nn.conv2d(x, p[name + "/kernel"], stride, "SAME")
        mean, variance = p[name + "/mean"], p[name + "/variance"]
        x, new_mean, new_variance = tf.compat.v1.nn.fused_batch_norm(
            x, p[name + "/scale"], p[name + "/offset"], mean, variance, epsilon=1e-5, is_training=True,
            exponential_avg_factor=0.1)
        mean.assign(new_mean)
        variance.assign(new_variance)
        return x

    x = tf.nn.relu(conv("stem/conv", batch["image"]))
    for stage in range(4):
        for block in range(2):
            name, stride = f"stage{stage}_block{block}/", 2 if stage and not block else 1
            y = conv(name + "conv1", tf.nn.relu(conv(name + "conv0", x, stride)))
            x = tf.nn.relu(y + (conv(name + "project", x, stride) if name + "project/kernel" in p else x))
    return class_loss(dense(p, "logits", tf.reduce_mean(x, [1, 2])), batch["label"])


MODELS = {f.__name__: f for f in (cnn, dcn_v2, deepfm, din, dlrm, linear_regression, mlp, mmoe, resnet18,
                                  transformer, wide_deep)}


def optimizer(settings):
    train, rate, kind = tf.compat.v1.train, settings["learning_rate"], settings["kind"]
    if kind == "SGD":
        return train.GradientDescentOptimizer(rate)
    if kind == "MOMENTUM":
        return train.MomentumOptimizer(rate, 0.9)
    if kind == "ADAGRAD":
        return train.AdagradOptimizer(rate, settings.get("initial_accumulator", 0.1))
    return train.AdamOptimizer(rate)


class Model:
    def __init__(self, name, settings, values):
        self.p = {label: tf.Variable(value, trainable=label in settings["trainable"])
                  for label, value in values.items()}
        self.trained = [v for v in self.p.values() if v.trainable]
        made, loss_of = optimizer(settings["optimizer"]), MODELS[name]

        def step(batch):
            with tf.GradientTape() as tape:
                loss = loss_of(self.p, batch)
            made.apply_gradients(zip(tape.gradient(loss, self.trained), self.trained))
            return loss

        self.step = tf.function(step)
        self.forward = tf.function(lambda batch: loss_of(self.p, batch))

    def batch(self, columns):
        return {column: tf.constant(values) for column, values in columns.items()}

    def parameters(self):
        return sum(v.shape.num_elements() for v in self.trained)

    def loss(self, batch):
        return float(self.forward(batch))

    def train_step(self, batch):
        return float(self.step(batch))
