"""Programs of TensorFlow 1 with what recommenders seldom have: images, densities, penalties, types and shapes off the path."""

import numpy as np
import tensorflow as tf
from tf1_programs import Tf1Program, dense, sigmoid_loss, variable

tf1 = tf.compat.v1


def flat(x):
    return tf.reshape(x, [-1, int(np.prod(x.shape[1:]))])


def unet(inputs):
    """Strided and transposed convolutions, resizing both ways, a skip, a mask of pixels as the target."""
    x = tf.reshape(inputs["image"], [-1, 8, 8, 1])
    a = tf.nn.relu(tf.nn.conv2d(x, variable("a", [3, 3, 1, 4], 0.4), 1, "SAME"))
    b = tf.nn.relu(tf.nn.conv2d(a, variable("b", [3, 3, 4, 6], 0.4), 2, "SAME"))
    c = tf.nn.conv2d_transpose(b, variable("c", [3, 3, 4, 6], 0.4), tf.shape(a), 2, "SAME")
    d = tf.image.resize(b, [8, 8], "nearest")
    e = tf1.image.resize_bilinear(tf.nn.avg_pool2d(a, 2, 2, "VALID"), [8, 8], half_pixel_centers=True)
    f = tf.concat([a, c, d, e], -1)
    logits = tf.nn.conv2d(f, variable("f", [1, 1, 18, 1], 0.3), 1, "VALID")
    target = tf.cast(x > 0.3, tf.float32)
    losses = tf.nn.weighted_cross_entropy_with_logits(labels=target, logits=logits, pos_weight=1.5)
    dice = 1.0 - (2.0 * tf.reduce_sum(tf.sigmoid(logits) * target, [1, 2, 3]) + 1.0) / (
        tf.reduce_sum(tf.sigmoid(logits) + target, [1, 2, 3]) + 1.0)
    return tf.reduce_mean(losses) + tf.reduce_mean(dice), tf.reduce_mean(logits, [1, 2, 3])


def group_norm(inputs):
    """Depthwise and separable convolutions, groups' norms, global pooling of two kinds, focal loss."""
    x = tf.reshape(inputs["image"], [-1, 8, 8, 1])
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")
    x = tf.nn.conv2d(x, variable("stem", [3, 3, 1, 8], 0.5), 1, "VALID")
    groups = tf.reshape(x, [-1, 8, 8, 4, 2])
    mean, var = tf.nn.moments(groups, [1, 2, 4], keepdims=True)
    x = tf.reshape((groups - mean) * tf.math.rsqrt(var + 1e-3), [-1, 8, 8, 8]) * (1.0 + variable("gamma", [8]))
    x = tf.nn.silu(tf.nn.depthwise_conv2d(x, variable("dw", [3, 3, 8, 1], 0.5), [1, 2, 2, 1], "SAME"))
    x = tf.nn.separable_conv2d(x, variable("sd", [3, 3, 8, 2], 0.4), variable("sp", [1, 1, 16, 8], 0.4), [1, 1, 1, 1], "SAME")
    x = x * tf.tanh(tf.nn.softplus(x))
    pooled = tf.concat([tf.reduce_mean(x, [1, 2]), tf.reduce_max(x, [1, 2])], 1)
    logits = dense(pooled, "out", 3)
    p = tf.nn.softmax(logits)
    hot = tf.one_hot(inputs["label"], 3)
    focal = -tf.reduce_sum(hot * (1.0 - p) ** 2.0 * tf.math.log(tf.clip_by_value(p, 1e-7, 1.0)), -1)
    return tf.reduce_mean(focal), logits


def mixture_density(inputs):
    """Three gaussians for each row."""
    h = dense(inputs["dense"], "h", 16, tf.nn.tanh)
    pi, mu, log_sigma = tf.split(dense(h, "out", 9), 3, axis=1)
    log_sigma = tf.clip_by_value(log_sigma, -3.0, 3.0)
    z = (inputs["value"][:, None] - mu) / tf.exp(log_sigma)
    log_p = tf.nn.log_softmax(pi) - 0.5 * tf.square(z) - log_sigma - 0.5 * np.log(2 * np.pi)
    loss = -tf.reduce_mean(tf.reduce_logsumexp(log_p, axis=1))
    return loss, tf.reduce_sum(tf.nn.softmax(pi) * mu, 1)


def ordinal(inputs):
    """Cumulative links: ordered thresholds by a cumulative sum of softplus, likelihood by differences of sigmoids."""
    score = dense(inputs["dense"], "h", 1)
    steps = tf.concat([variable("first", [1]), tf.nn.softplus(variable("steps", [3], 0.5))], 0)
    cuts = tf.cumsum(steps) - 1.0
    below = tf.sigmoid(cuts[None, :] - score)
    edges = tf.pad(below, [[0, 0], [1, 0]]), tf.pad(below, [[0, 0], [0, 1]], constant_values=1.0)
    p = edges[1] - edges[0]
    index = tf.stack([tf.range(tf.shape(score)[0]), tf.cast(inputs["grade"], tf.int32)], 1)
    return -tf.reduce_mean(tf.math.log(tf.gather_nd(p, index) + 1e-7)), tf.squeeze(score, 1)


def huber_quantile(inputs):
    """Robust losses of values: Huber, log-cosh, pinball of three quantiles; per-row weights."""
    y = dense(dense(inputs["dense"], "h", 16, tf.nn.gelu), "out", 5)
    target = inputs["value"]
    huber = tf1.losses.huber_loss(target, y[:, 0], weights=tf.abs(inputs["dense"][:, 0]), delta=0.7)
    error = y[:, 1] - target
    log_cosh = tf.reduce_mean(error + tf.nn.softplus(-2.0 * error) - np.log(2.0))
    q = tf.constant([0.1, 0.5, 0.9])
    over = target[:, tf.newaxis] - y[..., 2:]
    return huber + log_cosh + tf.reduce_mean(tf.maximum(q * over, (q - 1.0) * over)), y[:, 0]


def variational(inputs):
    """An autoencoder with a divergence; its noise is a column, so that both sides see the same."""
    h = dense(inputs["dense"], "h", 16, tf.nn.elu)
    mean, log_var = dense(h, "mean", 4), dense(h, "log_var", 4)
    z = mean + tf.exp(0.5 * log_var) * inputs["noise"]
    again = dense(dense(z, "back", 16, tf.nn.elu), "out", 6)
    kl = -0.5 * tf.reduce_sum(1 + log_var - tf.square(mean) - tf.exp(log_var), 1)
    return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(again, inputs["dense"]), 1) + 0.1 * kl), again[:, 0]


def gradient_penalty(inputs):
    """A critic whose gradient by its input should have length 1."""
    def critic(x):
        return tf.squeeze(dense(dense(x, "h", 16, tf.nn.tanh), "out", 1), 1)

    x = inputs["dense"]
    with tf1.variable_scope("critic", reuse=tf1.AUTO_REUSE):
        real, fake = critic(x), critic(tf.reverse(x, [1]) * 0.5)
        between = x * 0.3 + tf.reverse(x, [1]) * 0.35
        slope = tf.gradients(critic(between), between)[0]
        for act in (tf.sigmoid, tf.nn.relu, tf.nn.elu, tf.nn.softplus, tf.nn.leaky_relu, lambda v: tf.sqrt(v * v + 1.0),
                    lambda v: tf.math.rsqrt(v * v + 0.5), lambda v: tf.math.reciprocal(v * v + 1.0), tf.nn.selu):
            slope += 0.1 * tf.gradients(act(dense(between, "more", 6)), between)[0]
    length = tf.sqrt(tf.reduce_sum(tf.square(slope), 1) + 1e-12)
    return tf.reduce_mean(tf.nn.softplus(fake - real)) + 10.0 * tf.reduce_mean(tf.square(length - 1.0)), real


def spectral_norm(inputs):
    """A weight divided by its largest singular value, by a step of power iteration on a vector that is kept."""
    w = variable("w", [6, 8], 0.5)
    u = tf1.get_variable("u", [1, 8], initializer=tf1.ones_initializer(), trainable=False)
    tf1.add_to_collection("statistics", u)
    v_hat = tf.stop_gradient(tf.math.l2_normalize(tf.matmul(u, w, transpose_b=True)))
    u_hat = tf.stop_gradient(tf.math.l2_normalize(tf.matmul(v_hat, w)))
    sigma = tf.matmul(tf.matmul(v_hat, w), u_hat, transpose_b=True)
    tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, u.assign(u_hat).op)
    h = tf.nn.relu(tf.matmul(inputs["dense"], w / sigma))
    logit = tf.squeeze(dense(h, "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def weight_decay_schedule(inputs):
    """A regularisation whose weight follows a step counter of the graph; centers that are moved by hand."""
    step = tf1.get_variable("count", [], tf.int64, initializer=tf1.zeros_initializer(), trainable=False)
    centers = tf1.get_variable("centers", [2, 8], initializer=tf1.zeros_initializer(), trainable=False)
    tf1.add_to_collection("statistics", centers)
    h = dense(inputs["dense"], "h", 8, tf.nn.tanh)
    logit = tf.squeeze(dense(h, "out", 1), 1)
    mine = tf.cast(inputs["label"], tf.int32)
    away = h - tf.gather(centers, mine)
    mean = tf.math.unsorted_segment_mean(tf.stop_gradient(away), mine, 2)
    weight = 0.01 * tf.pow(0.9, tf.cast(step, tf.float32))
    loss = sigmoid_loss(logit, inputs["label"]) + weight * tf.reduce_mean(tf.reduce_sum(away**2, 1))
    with tf1.control_dependencies([loss, mean]):  # TensorFlow may else change what the loss is still to read
        updates = [centers.assign_add(0.3 * mean).op, tf1.assign_add(step, 1).op]
    for update in updates:
        tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update)
    return loss, logit


def doubles(inputs):
    """A float64 island, integers of several widths, steps and new axes of slices, ranks from 0 to 5."""
    x = tf.cast(inputs["dense"], tf.float64)
    wide = tf.cast(tf.math.cumsum(tf.math.log1p(tf.abs(x)), axis=1, exclusive=True), tf.float32)
    h = dense(tf.concat([wide, inputs["dense"][:, ::-1]], 1), "h", 12, tf.nn.softsign)
    five = tf.reshape(h, [-1, 1, 2, 3, 2])
    five = five * variable("a", [2, 1, 1], 0.5) + variable("b", [], 0.5) - variable("c", [1, 4, 1, 1, 2], 0.3)
    cut = five[:, ::2, 0:1, ..., 1, tf.newaxis]
    rest = tf.reduce_prod(1.0 + 0.1 * five[:, 1:4:2, -1], axis=[1, 2])
    joined = tf.concat([flat(cut), rest, tf.transpose(five, [0, 4, 3, 2, 1])[:, 0, 1, 1]], -1)
    logit = tf.squeeze(dense(joined, "out", 1), [-1])
    return tf.cast(tf.reduce_mean(tf.cast(tf.nn.sigmoid_cross_entropy_with_logits(labels=inputs["label"], logits=logit), tf.float64)), tf.float32), logit


def segments(inputs):
    """Sums, means, maxima by segment; one_hot by axis 0; scatter_nd; gather by batch; einsum with an ellipsis and a trace."""
    rows = tf.gather(variable("table", [60, 6], 0.5), inputs["history"])
    count = tf.shape(rows)[0]
    owner = tf.repeat(tf.range(count), 5)
    long = tf.reshape(rows, [-1, 6])
    sums, means, tops = (f(long, owner) for f in (tf.math.segment_sum, tf.math.segment_mean, tf.math.segment_max))
    sums, means, tops = (tf.ensure_shape(t, [None, 6]) for t in (sums, means, tops))
    pick = tf.gather(rows, tf.cast(inputs["item"] % 5, tf.int32)[:, None], axis=1, batch_dims=1)[:, 0]
    hot = tf.transpose(tf.one_hot(inputs["item"] % 3, 3, axis=0, on_value=0.5, off_value=-0.5))
    spread = tf.scatter_nd(tf.stack([tf.range(count), tf.cast(inputs["item"] % 4, tf.int32)], 1), means[:, 0], [count, 4])
    square = tf.einsum("...ij,...kj->...ik", rows, rows)
    trace = tf.einsum("bii->b", square)[:, None]
    minimum = tf.math.unsorted_segment_min(long, owner, count)
    x = tf.concat([sums, means, tops, tf.ensure_shape(minimum, [None, 6]), pick, hot, spread, trace], 1)
    logit = tf.squeeze(dense(x, "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def text_cnn(inputs):
    """Kernels of three widths, one of them dilated; the largest of each and the mean of the two largest."""
    x = tf.gather(variable("words", [60, 8], 0.5), inputs["words"])
    pooled = []
    for width, rate in ((2, 1), (3, 1), (3, 2)):
        w = variable(f"w{width}{rate}", [width, 8, 5], 0.4)
        y = tf.nn.relu(tf.nn.conv1d(x, w, 1, "VALID", dilations=rate) + variable(f"b{width}{rate}", [5], 0.2))
        pooled += [tf.reduce_max(y, 1), tf.reduce_mean(tf.math.top_k(tf.transpose(y, [0, 2, 1]), 2)[0], -1)]
    logits = dense(tf.concat(pooled, 1), "out", 3)
    loss = tf1.losses.sparse_softmax_cross_entropy(inputs["label"], logits)
    return loss + 0.01 * tf.add_n([tf.reduce_sum(tf.abs(v)) for v in tf1.trainable_variables() if v.op.name.startswith("w")]), logits


def masked_lm(inputs):
    """Words at hidden places are guessed with the table that is read: tied weights, a loss over chosen places."""
    table = variable("words", [60, 8], 0.4)
    hidden = tf.equal(inputs["words"] % 4, 0)
    seen = tf.where(hidden, tf.zeros_like(inputs["words"]), inputs["words"])
    x = tf.nn.embedding_lookup(table, seen) + variable("places", [7, 8], 0.2)
    a = tf.nn.softmax(tf.matmul(x, x, transpose_b=True) / np.sqrt(8.0).astype(np.float32))
    x = dense(tf.reshape(x + tf.matmul(a, x), [-1, 8]), "h", 8, tf.nn.gelu)
    logits = tf.matmul(x, table, transpose_b=True) + tf1.get_variable("bias", [60], initializer=tf1.zeros_initializer())
    losses = tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(tf.reshape(inputs["words"], [-1]), 60), logits=logits)
    weights = tf.cast(tf.reshape(hidden, [-1]), tf.float32)
    return tf.reduce_sum(losses * weights) / (tf.reduce_sum(weights) + 1e-5), tf.reduce_mean(tf.reshape(logits, [-1, 7, 60]), [1, 2])


def bytes_of_images(inputs):
    """Bytes, scaled in the graph; local response, max pooling with odd sizes, dropped borders, instances' norms."""
    x = tf.image.convert_image_dtype(tf.cast(tf.reshape(inputs["pixels"], [-1, 7, 9, 1]), tf.uint8), tf.float32)
    x = tf.image.per_image_standardization(x)
    x = tf.nn.relu6(tf.nn.conv2d(x, variable("a", [3, 3, 1, 6], 0.4), 1, [[0, 0], [1, 0], [0, 1], [0, 0]]))
    x = tf.nn.lrn(x, depth_radius=2)
    x = tf.nn.max_pool2d(x, [3, 2], [2, 1], "SAME")
    x = tf.nn.space_to_depth(x[:, :2, :8], 2)
    logits = dense(flat(x), "out", 3)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=inputs["label"], logits=logits)), logits


IMAGE = {"image": ((64,), "float"), "label": ((), 3)}
SCENE = {"image": ((64,), "float")}
VALUE = {"dense": ((6,), "float"), "value": ((), "float")}
CLICK = {"dense": ((6,), "float"), "label": ((), "label")}
WORDS = {"words": ((7,), 60), "label": ((), 3)}
DIN = {"item": ((), 60), "history": ((5,), 60), "label": ((), "label")}

PROGRAMS = [
    Tf1Program("unet", SCENE, unet),
    Tf1Program("group_norm", IMAGE, group_norm),
    Tf1Program("mixture_density", VALUE, mixture_density),
    Tf1Program("ordinal", {"dense": ((6,), "float"), "grade": ((), 5)}, ordinal),
    Tf1Program("huber_quantile", VALUE, huber_quantile, parallel=False),
    Tf1Program("variational", {"dense": ((6,), "float"), "noise": ((4,), "float")}, variational),
    Tf1Program("gradient_penalty", {"dense": ((6,), "float")}, gradient_penalty),
    Tf1Program("spectral_norm", CLICK, spectral_norm, meta=True),
    Tf1Program("weight_decay_schedule", CLICK, weight_decay_schedule, meta=True, parallel=False),
    Tf1Program("doubles", CLICK, doubles),
    Tf1Program("segments", DIN, segments, no_keep="a gradient onto a diagonal"),
    Tf1Program("text_cnn", WORDS, text_cnn),
    Tf1Program("masked_lm", {"words": ((7,), 60)}, masked_lm, parallel=False),
    Tf1Program("bytes_of_images", {"pixels": ((63,), 256), "label": ((), 3)}, bytes_of_images),
]
