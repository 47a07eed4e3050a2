"""braid.compat.v1: tf.losses and functions of several ops, beside NumPy's formulas."""

import numpy as np
import pytest

import braid.compat.v1 as tf

RNG = np.random.default_rng(4)
P, Y = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 3))
ANSWERS, CLASSES = RNG.integers(0, 2, (6, 3)), RNG.integers(0, 3, 6)
WEIGHTS = np.array([0, 2, 0.5, 1, 0, 3.0]).reshape(6, 1)


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def run(value, feeds=None):
    with tf.Session() as session:
        return session.run(value, feeds)


def constant(values):
    return tf.constant(values.astype(np.float32))


def soft(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def huber(difference, delta):
    size = np.abs(difference)
    return np.where(size <= delta, size * size / 2, delta * size - delta * delta / 2)


SHARE = 1 / (1 + np.exp(-P))
SMOOTH = np.eye(3)[CLASSES] * 0.9 + 0.1 / 3
PAIRS = {
    "mean_squared_error": (lambda **k: tf.losses.mean_squared_error(constant(Y), constant(P), **k), (P - Y) ** 2),
    "absolute_difference": (lambda **k: tf.losses.absolute_difference(constant(Y), constant(P), **k), np.abs(P - Y)),
    "huber_loss": (lambda **k: tf.losses.huber_loss(constant(Y), constant(P), delta=0.5, **k), huber(P - Y, 0.5)),
    "log_loss": (lambda **k: tf.losses.log_loss(constant(ANSWERS), constant(SHARE), **k),
                 -ANSWERS * np.log(SHARE + 1e-7) - (1 - ANSWERS) * np.log(1 - SHARE + 1e-7)),
    "cosine_distance": (lambda **k: tf.losses.cosine_distance(constant(Y), constant(P), axis=1, **k),
                        1 - (P * Y).sum(1, keepdims=True)),
    "hinge_loss": (lambda **k: tf.losses.hinge_loss(constant(ANSWERS), constant(P), **k),
                   np.maximum(0, 1 - (2 * ANSWERS - 1) * P)),
    "sigmoid_cross_entropy": (lambda **k: tf.losses.sigmoid_cross_entropy(ANSWERS, constant(P), label_smoothing=0.2, **k),
                              np.log1p(np.exp(P)) - P * (ANSWERS * 0.8 + 0.1)),
    "softmax_cross_entropy": (lambda **k: tf.losses.softmax_cross_entropy(
        tf.one_hot(tf.constant(CLASSES), 3), constant(P), label_smoothing=0.1, **k), -(SMOOTH * soft(P)).sum(1)),
    "sparse_softmax_cross_entropy": (lambda **k: tf.losses.sparse_softmax_cross_entropy(
        tf.constant(CLASSES[:, None]), constant(P), **k), -soft(P)[np.arange(6), CLASSES]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_losses_are_weighted_and_counted(name):
    make, each = PAIRS[name]
    weights = WEIGHTS.reshape([6] + [1] * (each.ndim - 1)).astype(np.float32)
    of_each = weights * np.ones_like(each)
    kinds = tf.losses.Reduction
    made = [make(), make(weights=weights), make(weights=weights, reduction=kinds.SUM),
            make(weights=weights, reduction=kinds.MEAN), make(weights=weights, reduction=kinds.SUM_OVER_BATCH_SIZE)]
    total = (each * of_each).sum()
    expected = [each.mean(), total / np.count_nonzero(of_each), total, total / of_each.sum(), total / each.size]
    np.testing.assert_allclose(run(made), expected, rtol=1e-5)
    np.testing.assert_allclose(run(make(weights=weights, reduction=kinds.NONE)), each * of_each, rtol=1e-4, atol=1e-6)
    assert len(tf.get_collection(tf.GraphKeys.LOSSES)) == 6


def test_settings_have_the_places_that_they_have_in_tensorflow():
    made = [tf.losses.huber_loss(constant(Y), constant(P), 2.0, 0.5), tf.losses.cosine_distance(constant(Y), constant(P), 1, 2.0),
            tf.losses.log_loss(constant(ANSWERS), constant(SHARE), 2.0, 0.5)]
    logs = -ANSWERS * np.log(SHARE + 0.5) - (1 - ANSWERS) * np.log(1 - SHARE + 0.5)
    expected = [2 * each.mean() for each in (huber(P - Y, 0.5), 1 - (P * Y).sum(1), logs)]
    np.testing.assert_allclose(run(made), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="needs an axis"):
        tf.losses.cosine_distance(constant(Y), constant(P))


def test_no_weights_above_zero_are_a_loss_of_zero():
    assert run(tf.losses.mean_squared_error(constant(Y), constant(P), weights=0.0)) == 0.0


def test_the_total_has_what_regularizers_add():
    tf.losses.mean_squared_error(constant(Y), constant(P))
    tf.losses.add_loss(tf.constant(2.0))
    tf.get_variable("w", [3], initializer=tf.ones_initializer(), regularizer=lambda w: 0.5 * tf.reduce_sum(w))
    mean = np.mean((P - Y) ** 2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run([tf.losses.get_total_loss(), tf.losses.get_total_loss(add_regularization_losses=False),
                             tf.losses.get_regularization_loss()])
    np.testing.assert_allclose(found, [mean + 3.5, mean + 2.0, 1.5], rtol=1e-6)


def test_labels_of_another_rank_are_refused():
    with pytest.raises(ValueError, match=r"labels are \[6\], predictions \[6, 3\]"):
        tf.losses.mean_squared_error(constant(Y[:, 0]), constant(P))
    with pytest.raises(ValueError, match=r"sigmoid_cross_entropy: labels are \[6\], logits \[6, 1\]: they need one shape"):
        tf.losses.sigmoid_cross_entropy(constant(ANSWERS[:, 0]), constant(P[:, :1]))
    with pytest.raises(ValueError, match=r"hinge_loss: labels are \[6, 1\], logits \[6, 3\]"):
        tf.losses.hinge_loss(constant(ANSWERS[:, :1]), constant(P))
    with pytest.raises(ValueError, match="they need as many axes, or none"):
        tf.losses.mean_squared_error(constant(Y), constant(P), weights=WEIGHTS[:, 0].astype(np.float32))


def test_functions_of_several_ops():
    x, cube = constant(P), RNG.standard_normal((3, 6, 2))
    made = [tf.tensordot(x, constant(cube), 1), tf.tensordot(x, constant(cube), [[0, 1], [1, 0]]),
            tf.tensordot(x, x, axes=[0, 0]), tf.reduce_logsumexp(x * 100.0, 1), tf.reduce_logsumexp(x),
            tf.reduce_logsumexp(x, [0], keepdims=True), tf.norm(x), tf.norm(x, axis=1, keepdims=True), tf.norm(x, ord=1, axis=0),
            tf.norm(x, ord=np.inf, axis=0)]
    expected = [np.tensordot(P, cube, 1), np.tensordot(P, cube, [[0, 1], [1, 0]]), P.T @ P,
                np.max(P * 100, 1) + np.log(np.exp(P * 100 - np.max(P * 100, 1, keepdims=True)).sum(1)), np.log(np.exp(P).sum()),
                np.log(np.exp(P).sum(0, keepdims=True)), np.linalg.norm(P), np.linalg.norm(P, axis=1, keepdims=True),
                np.abs(P).sum(0), np.abs(P).max(0)]
    for found, value in zip(run(made), expected):
        assert found.shape == np.shape(value)
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=1e-6)


def test_a_placeholder_with_a_default_is_fed_or_not():
    training = tf.placeholder_with_default(True, [], name="training")
    x = tf.placeholder_with_default(tf.constant([1.0, 2.0]), [None])
    y = tf.where(training, x * 2.0, x)
    np.testing.assert_array_equal(run(y), [2, 4])
    np.testing.assert_array_equal(run(y, {training: False}), [1, 2])
    np.testing.assert_array_equal(run(y, {training: False, x: [3, 4]}), [3, 4])


def test_a_variable_is_read_in_a_session():
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        w.load(np.float32([3, 4]), session)
        np.testing.assert_array_equal(w.eval(session), [3, 4])
        np.testing.assert_array_equal(w.eval(), [3, 4])


def test_what_only_tensorflow_builds_is_refused_with_the_way():
    with pytest.raises(AttributeError, match="no 'while_loop': build the graph with TensorFlow, write it"):
        tf.while_loop
    with pytest.raises(AttributeError, match="no 'lgamma': docs/user/python.md lists what runs; bd.ops.lgamma is one of Braid's"):
        tf.lgamma
    with pytest.raises(AttributeError, match="no 'lgama': docs/user/python.md lists what runs$"):
        tf.lgama
    with pytest.raises(AttributeError, match=r"no 'keras': train the model by bd.io.keras\(model\)"):
        tf.keras
