"""Programs with control flow: of TensorFlow 2, and Switch and Merge and frames with TensorArrays of TensorFlow 1; and ids
that are looked up."""

import tensorflow as tf
from tf1_programs import Tf1Program, dense, sigmoid_loss, variable

tf1 = tf.compat.v1


class FirstControlFlow(Tf1Program):
    """Conditionals and loops as TensorFlow 1 builds them, and their gradients."""

    def export(self, folder, kind):
        tf1.disable_control_flow_v2()
        try:
            return super().export(folder, kind)
        finally:
            tf1.enable_control_flow_v2()


def conditionals(inputs):
    """A branch by a placeholder with a default, one by the batch, and a loss with weights, which asserts their shape."""
    training = tf1.placeholder_with_default(True, [], name="is_training")
    h = dense(inputs["dense"], "h", 8)
    h = tf.cond(training, lambda: h * 0.5, lambda: h)
    h = tf.cond(tf.reduce_mean(inputs["dense"]) > 0, lambda: tf.tanh(h), lambda: tf.cond(training, lambda: h, lambda: -h))
    logit = tf.squeeze(dense(h, "out", 1), 1)
    return tf1.losses.sigmoid_cross_entropy(inputs["label"], logit, weights=tf.abs(inputs["dense"][:, 0])), logit


def chosen(inputs):
    """Conditionals of TensorFlow 2, among them a mean over the rows that count, of which a batch may have none, a case by
    number, a loop that ends early, and turns that follow from one dimension."""
    h = tf.tanh(dense(inputs["dense"], "h", 6))
    mixed = variable("m", [6, 6], 0.4)
    chosen = tf.switch_case(tf.cast(tf.reduce_sum(inputs["label"]), tf.int32) % 3,
                            [lambda: h, lambda: tf.matmul(h, mixed), lambda: tf.sin(h)])
    turned = tf.while_loop(lambda i, x: i < tf.shape(inputs["dense"])[1] - 3, lambda i, x: [i + 1, tf.tanh(tf.matmul(x, mixed))],
                           [0, chosen])[1]
    logit = tf.squeeze(dense(tf.concat([chosen, turned], 1), "out", 1), 1)
    each = tf.nn.sigmoid_cross_entropy_with_logits(labels=inputs["label"], logits=logit)
    counts = tf.cast(inputs["dense"][:, 0] > 1.9, tf.float32)
    number = tf.reduce_sum(counts)
    some = tf.cond(number > 0.0, lambda: tf.reduce_sum(each * counts) / number, lambda: 0.0)
    return tf.reduce_mean(each) + 0.1 * some, logit


def masked(inputs):
    """Losses of the places that count: labels below 0 are none, rows by a condition, means by a number that data decide."""
    h = tf.tanh(dense(tf.reshape(inputs["dense"], [-1, 3]), "h", 5))
    logits, labels = dense(h, "out", 3), tf.reshape(inputs["label"], [-1]) - 1
    counts = labels >= 0
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.boolean_mask(labels, counts),
                                                          logits=tf.boolean_mask(logits, counts))
    some = tf.gather(h[:, 0], tf.where(h[:, 0] > 0)[:, 0])
    number = tf.cast(tf.shape(some)[0], tf.float32)
    loss = tf.reduce_mean(each) - 0.1 * tf.reduce_sum(tf.math.log(some + 0.1)) / number
    return loss + 0.1 * tf.reduce_mean(tf.reduce_max(tf.boolean_mask(h, counts), 0)), tf.reshape(logits, [-1, 2, 3])


def sampled(inputs):
    """A sampled softmax that takes sampled classes away which are true ones of the row."""
    rows = tf.nn.embedding_lookup(variable("in_rows", [40, 6], 0.3), inputs["ids"])
    labels = tf.cast(inputs["label"], tf.int64)[:, None]
    known = (tf.constant([1, 0, 9, 11, 20], tf.int64), tf.fill([tf.shape(rows)[0], 1], 0.2), tf.fill([5], 0.2))
    loss = tf.nn.sampled_softmax_loss(variable("out_rows", [40, 6], 0.3), variable("out_bias", [40], 0.3), labels, rows, 5, 40,
                                      sampled_values=known)
    return tf.reduce_mean(loss), tf.reduce_sum(rows, 1)


def frames(inputs):
    """A recurrent layer over an array of the steps, as dynamic_rnn writes it, and a scan."""
    x = tf.transpose(tf.reshape(inputs["steps"], [-1, 5, 3]), [1, 0, 2])
    steps = tf.TensorArray(tf.float32, 5).unstack(x)
    w = variable("w", [7, 4], 0.4)
    zero = tf.zeros([tf.shape(x)[1], 4])
    last, _, seen = tf.while_loop(
        lambda h, i, seen: i < 5,
        lambda h, i, seen: ((new := tf.tanh(tf.matmul(tf.concat([steps.read(i), h], 1), w))), i + 1, seen.write(i, new)),
        (zero, 0, tf.TensorArray(tf.float32, 5)))
    mixed = variable("s", [3, 3], 0.4)
    scanned = tf.scan(lambda s, row: tf.tanh(tf.matmul(s, mixed) + row), x)
    logit = tf.squeeze(dense(tf.concat([last, tf.reduce_mean(seen.stack(), 0), scanned[-1]], 1), "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def lengths(inputs):
    """A recurrent layer that turns as often as the batch's longest row has steps, and a loop until a sum is reached."""
    x = tf.transpose(tf.reshape(inputs["steps"], [-1, 5, 3]), [1, 0, 2])
    steps = tf.TensorArray(tf.float32, 5).unstack(x)
    count = tf.cast(inputs["length"], tf.int32) + 1
    w, zero = variable("w", [7, 4], 0.4), tf.zeros([tf.shape(x)[1], 4])

    def step(i, h, seen):
        new = tf.tanh(tf.matmul(tf.concat([steps.read(i), h], 1), w))
        taken = (i < count)[:, None]
        return i + 1, tf.where(taken, new, h), seen.write(i, tf.where(taken, new, zero))

    last, seen = tf.while_loop(lambda i, *_: i < tf.minimum(5, tf.maximum(1, tf.reduce_max(count))), step,
                               (0, zero, tf.TensorArray(tf.float32, 5)))[1:]
    until = tf.while_loop(lambda v: tf.reduce_sum(v) < 90.0, lambda v: [v * 1.5 + 0.1], [tf.abs(last)], maximum_iterations=6)[0]
    ends = tf.concat([last, tf.reduce_sum(seen.stack(), 0), until], 1)
    logit = tf.squeeze(dense(ends, "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def looked_up(inputs):
    """Ids by a table, by a hash of their digits and by their remainder."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant([2, 4, 6, 8], tf.int64), tf.constant([0, 1, 2, 3], tf.int64)), 4)
    ids = inputs["ids"]
    rows = [tf.nn.embedding_lookup(variable(name, [count, 4]), each) for name, count, each in (
        ("by_table", 5, table.lookup(ids)), ("by_hash", 20, tf.strings.to_hash_bucket_fast(tf.strings.as_string(ids), 20)),
        ("by_rest", 7, tf.math.floormod(ids * 31 + 3, 7)))]
    logit = tf.squeeze(dense(tf.reshape(tf.concat(rows, -1), [-1, 24]), "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def partitioner(inputs):
    """Variables in parts, which the saver writes as whole ones: rows by their remainder and in runs, and a matrix."""
    with tf1.variable_scope("parts", partitioner=tf1.fixed_size_partitioner(3)):
        tables, w = [variable(name, [31, 4]) for name in ("modulo", "runs")], variable("w", [8, 1], 0.3)
    rows = [tf1.nn.embedding_lookup(table, inputs["ids"], partition_strategy=way) for table, way in zip(tables, ("mod", "div"))]
    logit = tf.squeeze(tf.matmul(tf.reduce_mean(tf.concat(rows, -1), 1), w), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


def vocabularies(inputs):
    """Feature columns of integers: hashed, by a vocabulary with buckets for the rest, an indicator of one."""
    fc, kind = tf.feature_column, tf.int64
    columns = [
        fc.embedding_column(fc.categorical_column_with_hash_bucket("ids", 20, dtype=kind), 4, combiner="sqrtn"),
        fc.embedding_column(fc.categorical_column_with_vocabulary_list("known", [1, 3, 5, 7], dtype=kind, num_oov_buckets=2), 4),
        fc.indicator_column(fc.categorical_column_with_vocabulary_list("one", [2, 4, 6], dtype=kind, default_value=0))]
    rows = tf1.feature_column.input_layer({"ids": inputs["ids"], "known": inputs["ids"], "one": inputs["ids"][:, :1]}, columns)
    logit = tf.squeeze(dense(rows, "out", 1), 1)
    return sigmoid_loss(logit, inputs["label"]), logit


CLICK = {"dense": ((6,), "float"), "label": ((), "label")}
PROGRAMS = [
    FirstControlFlow("conditionals", CLICK, conditionals, parallel=False),
    Tf1Program("chosen", CLICK, chosen, parallel=False),
    FirstControlFlow("chosen_first", CLICK, chosen, parallel=False, no_keep="gradients of a loop"),
    Tf1Program("masked", {"dense": ((6,), "float"), "label": ((2,), 4)}, masked, parallel=False, no_keep="sizes that follow from data"),
    Tf1Program("sampled_hits", {"ids": ((), 40), "label": ((), "label")}, sampled),
    FirstControlFlow("frames", {"steps": ((15,), "float"), "label": ((), "label")}, frames, no_keep="gradients of a loop"),
    FirstControlFlow("lengths", {"steps": ((15,), "float"), "length": ((), 5), "label": ((), "label")}, lengths,
                     parallel=False, no_keep="gradients of a loop"),
    Tf1Program("partitioner", {"ids": ((4,), 31), "label": ((), "label")}, partitioner),
    Tf1Program("vocabularies", {"ids": ((4,), 31), "label": ((), "label")}, vocabularies),
    Tf1Program("looked_up", {"ids": ((2,), 10), "label": ((), "label")}, looked_up),
]
