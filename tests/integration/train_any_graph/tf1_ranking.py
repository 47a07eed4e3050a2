"""Recommenders and losses of ranking as TensorFlow 1 programs write them; tf1_programs.py has the first of them."""

import numpy as np
import tensorflow as tf
from tf1_programs import DIN, IDS, Tf1Program, dense, sigmoid_loss, variable

tf1 = tf.compat.v1


def fields(inputs, width=8):
    return tf.nn.embedding_lookup(variable("table", [100, width], 0.4), inputs["ids"])


def sampled_softmax(inputs):
    """Two towers, the other items of the batch as negatives, corrected by how often an item is drawn (log Q)."""
    user = tf.reduce_mean(tf.gather(variable("user_table", [50, 8], 0.5), inputs["user"]), 1)
    item = tf.gather(variable("item_table", [60, 8], 0.5), inputs["item"])
    user = tf.math.l2_normalize(dense(user, "user_head", 8, tf.nn.relu), -1)
    item = tf.math.l2_normalize(dense(item, "item_head", 8, tf.nn.relu), -1)
    scores = tf.matmul(user, item, transpose_b=True) / 0.2
    counts = tf.constant(np.random.default_rng(0).integers(1, 50, 60), tf.float32)
    log_q = tf.math.log(tf.gather(counts / tf.reduce_sum(counts), inputs["item"]))
    scores = scores - log_q[tf.newaxis, :]
    same = tf.equal(inputs["item"][:, tf.newaxis], inputs["item"][tf.newaxis, :])
    rows = tf.shape(scores)[0]
    hidden = tf.logical_and(same, tf.logical_not(tf.eye(rows, dtype=tf.bool)))
    scores = tf.where(hidden, tf.fill(tf.shape(scores), -1e9), scores)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)
    return tf.reduce_mean(losses), tf.linalg.diag_part(scores)


def xdeepfm(inputs):
    """A compressed interaction network: outer products of fields by einsum, compressed by a filter of width 1."""
    rows = fields(inputs)
    x, pooled = rows, []
    for i, width in enumerate((6, 5)):
        outer = tf.einsum("bhd,bmd->bdhm", x, rows)
        outer = tf.reshape(outer, [-1, 8, int(x.shape[1]) * 4])
        w = variable(f"cin{i}", [1, int(outer.shape[-1]), width], 0.3)
        x = tf.transpose(tf.nn.relu(tf.nn.conv1d(outer, w, stride=1, padding="VALID")), [0, 2, 1])
        pooled.append(tf.reduce_sum(x, -1))
    logit = tf.squeeze(dense(tf.concat([*pooled, inputs["dense"]], 1), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def fibinet(inputs):
    """Squeeze and excitation of fields, then bilinear products of pairs of them."""
    rows = fields(inputs)
    weights = dense(dense(tf.reduce_mean(rows, -1), "squeeze", 2, tf.nn.relu), "excite", 4, tf.nn.relu)
    rows = rows * weights[..., tf.newaxis]
    w = variable("bilinear", [6, 8, 8], 0.4)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    left, right = tf.gather(rows, [i for i, _ in pairs], axis=1), tf.gather(rows, [j for _, j in pairs], axis=1)
    x = tf.einsum("bpd,pde->bpe", left, w) * right
    logit = tf.squeeze(dense(tf.concat([tf.reshape(x, [-1, 48]), inputs["dense"]], 1), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def autoint(inputs):
    """Attention among fields, with heads as an axis of einsum, and a residual."""
    x = fields(inputs)
    for i in range(2):
        q, k, v = (tf.einsum("bfd,dhe->bhfe", x, variable(f"{n}{i}", [int(x.shape[-1]), 2, 4], 0.4)) for n in "qkv")
        a = tf.nn.softmax(tf.einsum("bhfe,bhge->bhfg", q, k), axis=-1)
        mixed = tf.reshape(tf.transpose(tf.einsum("bhfg,bhge->bhfe", a, v), [0, 2, 1, 3]), [-1, 4, 8])
        x = tf.nn.relu(mixed + tf.tensordot(x, variable(f"residual{i}", [int(x.shape[-1]), 8], 0.4), axes=1))
    logit = tf.squeeze(dense(tf.reshape(x, [-1, 32]), "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def bst(inputs):
    """A transformer over behaviours and the candidate, padded places hidden by a mask, with places' own vectors."""
    table = variable("items", [60, 8], 0.4)
    ids = tf.concat([inputs["history"], inputs["item"][:, None]], 1)
    x = tf.gather(table, ids) + variable("places", [1, 6, 8], 0.2)
    there = tf.cast(tf.not_equal(ids, 0), tf.float32)
    q, k, v = tf.split(tf.reshape(dense(tf.reshape(x, [-1, 8]), "qkv", 24), [-1, 6, 24]), 3, axis=-1)
    q, k, v = (tf.transpose(tf.reshape(t, [-1, 6, 2, 4]), [0, 2, 1, 3]) for t in (q, k, v))
    scores = tf.matmul(q, k, transpose_b=True) * 0.5 + (1.0 - there[:, None, None, :]) * -1e9
    mixed = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3]), [-1, 6, 8])
    mean, variance = tf.nn.moments(x + mixed, axes=[-1], keepdims=True)
    x = tf.nn.batch_normalization(x + mixed, mean, variance, variable("shift", [8]), 1.0 + variable("scale", [8]), 1e-6)
    pooled = tf.math.divide_no_nan(tf.reduce_sum(x * there[..., None], 1), tf.reduce_sum(there, 1, keepdims=True))
    h = tf.nn.leaky_relu(dense(tf.concat([pooled, x[:, -1]], 1), "h", 16), alpha=0.1)
    logit = tf.squeeze(dense(h, "out", 1), [1])
    return sigmoid_loss(logit, inputs["label"]), logit


def ple(inputs):
    """Two tasks (ESMM: click, and conversion through click) over shared and own experts with gates."""
    x = tf.concat([tf.reshape(fields(inputs), [-1, 32]), inputs["dense"]], 1)
    experts = {n: tf.stack([dense(x, f"{n}{i}", 8, tf.nn.relu) for i in range(2)], axis=1) for n in ("ctr", "cvr", "shared")}
    logits = []
    for task in ("ctr", "cvr"):
        mine = tf.concat([experts[task], experts["shared"]], axis=1)
        gate = tf.nn.softmax(dense(x, task + "_gate", 4))
        mixed = tf.squeeze(tf.matmul(gate[:, tf.newaxis, :], mine), axis=1)
        logits.append(tf.squeeze(dense(dense(mixed, task + "_tower", 4, tf.nn.selu), task + "_out", 1), [1]))
    ctr, cvr = tf.sigmoid(logits[0]), tf.sigmoid(logits[1])
    bought = inputs["label"] * tf.cast(inputs["ids"][:, 0] % 2 == 0, tf.float32)
    both = tf1.losses.log_loss(bought, ctr * cvr)
    return tf1.losses.sigmoid_cross_entropy(inputs["label"], logits[0]) + 0.5 * both, logits[0]


def factorization_machine(inputs):
    """The batch as a sparse matrix of indicators, times the dense factors."""
    rows = tf.shape(inputs["ids"])[0]
    where = tf.stack([tf.repeat(tf.range(rows), 4), tf.cast(tf.reshape(inputs["ids"], [-1]), tf.int32)], axis=1)
    x = tf.SparseTensor(tf.cast(where, tf.int64), tf.ones([rows * 4]), tf.cast(tf.stack([rows, 100]), tf.int64))
    factors = variable("factors", [100, 8], 0.3)
    total = tf.sparse.sparse_dense_matmul(x, factors)
    squares = tf.sparse.sparse_dense_matmul(x, factors**2)
    first = tf.sparse.sparse_dense_matmul(x, variable("weights", [100, 1], 0.3))
    logit = tf1.get_variable("bias", [], initializer=tf1.zeros_initializer()) + tf.squeeze(first, 1)
    logit += 0.5 * tf.reduce_sum(total**2 - squares, 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def ranknet(inputs):
    """Pairs of the batch of which one is clicked."""
    score = tf.squeeze(tf.matmul(dense(inputs["dense"], "h0", 16, tf.nn.tanh), variable("out", [16, 1], 0.3)), [1])
    differences = score[:, None] - score[None, :]
    wins = inputs["label"][:, None] - inputs["label"][None, :]
    weights = tf.cast(wins > 0, tf.float32)
    losses = tf.nn.softplus(-differences) * weights
    return tf.reduce_sum(losses) / tf.maximum(tf.reduce_sum(weights), 1.0), score


def listmle(inputs):
    """Lists of eight: the likelihood of the order by relevance, by sorting and a reversed cumulative log-sum."""
    score = tf.reshape(dense(dense(inputs["dense"], "h0", 16, tf.nn.tanh), "out", 1), [-1, 8])
    relevance = tf.reshape(tf.cast(inputs["grade"], tf.float32), [-1, 8])
    order = tf.argsort(relevance, axis=1, direction="DESCENDING", stable=True)
    ordered = tf.gather(score, order, batch_dims=1)
    largest = tf.reduce_max(ordered, axis=1, keepdims=True)
    sums = tf.cumsum(tf.exp(ordered - tf.stop_gradient(largest)), axis=1, reverse=True)
    losses = tf.reduce_sum(tf.math.log(sums + 1e-10) + largest - ordered, axis=1)
    return tf.reduce_mean(losses), tf.reshape(score, [-1])


def lambda_gain(inputs):
    """An approximate NDCG over lists of eight, with ranks from sigmoids of differences."""
    score = tf.reshape(dense(dense(inputs["dense"], "h0", 16, tf.nn.swish), "out", 1), [-1, 8])
    gain = tf.pow(2.0, tf.reshape(tf.cast(inputs["grade"], tf.float32), [-1, 8])) - 1.0
    beats = tf.sigmoid((score[:, None, :] - score[:, :, None]) / 0.5)
    ranks = tf.reduce_sum(beats, -1) + 0.5
    found = tf.reduce_sum(gain / tf.math.log1p(ranks), -1)
    best = tf.reduce_sum(tf.sort(gain, direction="DESCENDING") / tf.math.log1p(tf.range(1.0, 9.0)), -1)
    return -tf.reduce_mean(found / tf.maximum(best, 1e-6)), tf.reshape(score, [-1])


def triplet(inputs):
    """The hardest positive and the three hardest negatives of each row."""
    x = tf.math.l2_normalize(dense(dense(inputs["dense"], "h0", 16, tf.nn.relu), "out", 8), axis=1)
    squares = tf.reduce_sum(tf.square(x[:, None] - x[None, :]), -1)
    same = tf.equal(inputs["label"][:, None], inputs["label"][None, :])
    far = tf.reduce_max(tf.where(same, squares, tf.zeros_like(squares)), axis=1)
    near = -tf.math.top_k(-tf.where(same, tf.ones_like(squares) * 10.0, squares), k=3)[0]
    return tf.reduce_mean(tf.nn.relu(far[:, None] - near + 0.2)), far


def margin_softmax(inputs):
    """Contrastive: InfoNCE of two views by dropped columns, with a temperature that is learned."""
    views = [inputs["dense"] * tf.constant(mask, tf.float32) for mask in ([1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1])]
    a, b = (tf.math.l2_normalize(dense(v, f"view{i}", 8), 1, epsilon=1e-6) for i, v in enumerate(views))
    temperature = tf.exp(tf1.get_variable("temperature", [], initializer=tf1.constant_initializer(1.0)))
    scores = tf.clip_by_value(temperature, 0.01, 100.0) * tf.matmul(a, tf.transpose(b))
    rows = tf.shape(scores)[0]
    labels = tf.one_hot(tf.range(rows), rows)
    loss = tf1.losses.softmax_cross_entropy(labels, scores, label_smoothing=0.1)
    loss += tf1.losses.softmax_cross_entropy(labels, tf.transpose(scores))
    return 0.5 * loss, tf.linalg.tensor_diag_part(tf.matmul(a, b, transpose_b=True))


FIELDS = {"ids": ((4,), 100), "label": ((), "label")}
LISTS = {"dense": ((6,), "float"), "grade": ((), 5)}
CLICKS = {"dense": ((6,), "float"), "label": ((), "label")}
VIEWS = {"dense": ((6,), "float")}
USERS = {"user": ((3,), 50), "item": ((), 60)}

PROGRAMS = [
    Tf1Program("sampled_softmax", USERS, sampled_softmax, parallel=False),
    Tf1Program("xdeepfm", IDS, xdeepfm),
    Tf1Program("fibinet", IDS, fibinet),
    Tf1Program("autoint", FIELDS, autoint),
    Tf1Program("bst", DIN, bst),
    Tf1Program("ple", IDS, ple),
    Tf1Program("factorization_machine", FIELDS, factorization_machine),
    Tf1Program("ranknet", CLICKS, ranknet, parallel=False),
    Tf1Program("listmle", LISTS, listmle),
    Tf1Program("lambda_gain", LISTS, lambda_gain),
    Tf1Program("triplet", CLICKS, triplet, parallel=False),
    Tf1Program("margin_softmax", VIEWS, margin_softmax, parallel=False),
]
