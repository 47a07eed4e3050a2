"""Optimizers and layers of braid.compat.v1 against TensorFlow 1's formulas; settings that are refused."""

import braid.compat.v1 as tf
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def run(fetches, feeds):
    """The values of each step's fetches; the last is what the steps leave."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for feed in feeds:
            session.run(fetches[0], feed)
        return session.run(fetches[1])


@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_begins_with_ones(centered):
    w = tf.Variable(np.float32([1.0, -2.0]))
    loss = tf.reduce_sum(w * np.float32([3.0, 0.5]))
    step = tf.train.RMSPropOptimizer(0.1, decay=0.8, momentum=0.5, epsilon=1e-3, centered=centered).minimize(loss)
    found = run((step, w), [{}] * 3)
    g, expected = np.array([3.0, 0.5]), np.array([1.0, -2.0])
    square, mean, moved = np.ones(2), np.zeros(2), np.zeros(2)
    for _ in range(3):
        square, mean = 0.8 * square + 0.2 * g * g, 0.8 * mean + 0.2 * g
        moved = 0.5 * moved + 0.1 * g / np.sqrt(square - (mean * mean if centered else 0) + 1e-3)
        expected = expected - moved
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("make", [lambda: tf.train.MomentumOptimizer(0.1, 0.9),
                                  lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
                                  lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.9),
                                  lambda: tf.train.FtrlOptimizer(0.1), lambda: tf.train.AdagradOptimizer(0.1)])
def test_rows_that_a_batch_does_not_name_stay(make):
    first = np.float32(np.arange(8).reshape(4, 2) + 1)
    ids = tf.placeholder(tf.int64, [None])
    table = tf.get_variable("table", initializer=tf.constant(first))
    step = make().minimize(tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids))))
    once = run((step, table), [{ids: [0, 2, 2]}])
    tf.reset_default_graph()
    ids = tf.placeholder(tf.int64, [None])
    table = tf.get_variable("table", initializer=tf.constant(first))
    step = make().minimize(tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids))))
    twice = run((step, table), [{ids: [0, 2, 2]}, {ids: [1]}])
    np.testing.assert_array_equal(once[[1, 3]], first[[1, 3]])
    np.testing.assert_array_equal(twice[[0, 2, 3]], once[[0, 2, 3]])
    assert np.all(once[[0, 2]] != first[[0, 2]]) and np.all(twice[1] != first[1])


def test_a_row_that_is_named_twice_learns_from_the_sum():
    ids = tf.placeholder(tf.int64, [None])
    table = tf.get_variable("table", initializer=tf.ones([3, 1]))
    step = tf.train.MomentumOptimizer(0.1, 0.5).minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, ids)))
    found = run((step, table), [{ids: [1, 1, 0]}, {ids: [1]}])
    np.testing.assert_allclose(found[:, 0], [1 - 0.1, 1 - 0.2 - 0.1 * (0.5 * 2 + 1), 1.0], rtol=1e-6)


def test_regularizers_are_among_the_losses():
    x = tf.placeholder(tf.float32, [None, 2])
    with tf.variable_scope("a", regularizer=lambda w: 0.5 * tf.reduce_sum(tf.square(w))):
        h = tf.layers.dense(x, 1, kernel_initializer=tf.constant_initializer(2.0), activity_regularizer=tf.reduce_sum)
    tf.layers.dense(h, 1, kernel_initializer=tf.constant_initializer(3.0), kernel_regularizer=lambda w: tf.reduce_sum(w))
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = session.run(losses, {x: [[1.0, 1.0]]})
    # the kernel's and the bias's squares, the activity, the second kernel
    assert sorted(float(each) for each in values) == [0.0, 3.0, 4.0, 4.0]


def test_dropout_of_a_shape():
    x = tf.ones([50, 4, 3])
    y = tf.nn.dropout(x, keep_prob=0.5, noise_shape=[50, 1, 3])
    with tf.Session() as session:
        value = session.run(y)
    assert np.all(value == value[:, :1]) and set(np.unique(value)) == {0.0, 2.0}


def test_softmax_along_an_axis():
    x = np.float32(np.random.default_rng(1).standard_normal((2, 3, 4)))
    with tf.Session() as session:
        found = session.run(tf.nn.softmax(tf.constant(x), axis=1))
    np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("what, call", [
    ("RMSPropOptimizer(decai=...)", lambda: tf.train.RMSPropOptimizer(0.1, decai=0.5)),
    ("tf.nn.embedding_lookup(max_norm=...)", lambda: tf.nn.embedding_lookup(tf.ones([3, 2]), [0], max_norm=1.0)),
    ("tf.layers.dense(kernel_constraint=...)", lambda: tf.layers.dense(tf.ones([3, 2]), 1, kernel_constraint=abs)),
    ("tf.get_variable(constraint=...)", lambda: tf.get_variable("v", [2], constraint=abs)),
    ("tf.gradients(stop_gradients=...)", lambda: tf.gradients(tf.ones([]), [], stop_gradients=[1])),
    ("tf.layers.batch_normalization(renorm=...)", lambda: tf.layers.batch_normalization(tf.ones([3, 2]), renorm=True)),
])
def test_settings_that_would_be_lost_are_refused(what, call):
    with pytest.raises(NotImplementedError) as error:
        call()
    assert what in str(error.value)


RATES = {
    "exponential": (lambda s: tf.train.exponential_decay(0.2, s, 4, 0.5, staircase=True), lambda s: 0.2 * 0.5 ** (s // 4)),
    "natural": (lambda s: tf.train.natural_exp_decay(0.2, s, 4, 0.5), lambda s: 0.2 * np.exp(-0.5 * s / 4)),
    "inverse": (lambda s: tf.train.inverse_time_decay(0.2, s, 4, 0.5), lambda s: 0.2 / (1 + 0.5 * s / 4)),
    "polynomial": (lambda s: tf.train.polynomial_decay(0.2, s, 6, 0.05, power=2.0), lambda s: 0.15 * (1 - min(s, 6) / 6) ** 2 + 0.05),
    "cycle": (lambda s: tf.train.polynomial_decay(0.2, s, 4, 0.05, cycle=True),
              lambda s: 0.15 * (1 - s / (4 * max(1, np.ceil(s / 4)))) + 0.05),
    "cosine": (lambda s: tf.train.cosine_decay(0.2, s, 6, alpha=0.1),
               lambda s: 0.2 * (0.9 * 0.5 * (1 + np.cos(np.pi * min(s, 6) / 6)) + 0.1)),
    "steps": (lambda s: tf.train.piecewise_constant(s, [2, 5], [0.3, 0.2, 0.1]), lambda s: 0.3 if s <= 2 else 0.2 if s <= 5 else 0.1),
}


@pytest.mark.parametrize("name", RATES)
def test_rates_follow_the_step(name):
    rate_of, expected_of = RATES[name]
    step, w = tf.train.create_global_step(), tf.Variable(np.float32([1.0]))
    train = tf.train.GradientDescentOptimizer(rate_of(step)).minimize(tf.reduce_sum(w), global_step=step)
    expected = 1.0
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for each in range(9):
            session.run(train)
            expected -= expected_of(each)
            np.testing.assert_allclose(session.run(w), [expected], rtol=2e-6, atol=1e-6)


def test_a_rate_of_pieces_needs_a_value_more_than_boundaries():
    with pytest.raises(ValueError, match="2 boundaries part 3 values, got 2"):
        tf.train.piecewise_constant(tf.train.create_global_step(), [2, 5], [0.3, 0.2])


def test_a_partitioner_makes_a_whole_variable():
    table = tf.get_variable("table", [6, 2], initializer=tf.constant_initializer(np.arange(12).reshape(6, 2)),
                            partitioner=tf.fixed_size_partitioner(3))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(tf.nn.embedding_lookup(table, np.int64([5, 0]), partition_strategy="div"))
    np.testing.assert_array_equal(found, [[10, 11], [0, 1]])


def test_sums_of_gradients_begin_with_zeros_like_the_variable():
    w = tf.Variable(np.float32([1.0, 2.0]))
    total = tf.Variable(tf.zeros_like(w.initialized_value()), trainable=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(total.assign_add(tf.gradients(tf.reduce_sum(w * w), [w])[0])), [2, 4])


def test_in_top_k_and_local_response_normalisation():
    scores = tf.constant(np.float32([[1, 3, 2], [3, 2, 1]]))
    x = np.random.default_rng(0).standard_normal((1, 1, 1, 5)).astype(np.float32)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(tf.nn.in_top_k(scores, np.int32([2, 2]), 2)), [True, False])
        found = session.run(tf.nn.lrn(tf.constant(x), depth_radius=1, bias=2.0, alpha=0.3, beta=0.7))
    squares = np.convolve(x.ravel() ** 2, np.ones(3), "same")
    np.testing.assert_allclose(found.ravel(), x.ravel() / (2 + 0.3 * squares) ** 0.7, rtol=1e-5)


@pytest.mark.parametrize("of, name", [("train", "AdadeltaOptimizer"), ("nn", "ctc_loss"), ("losses", "nothing"), ("layers", "nothing")])
def test_names_that_are_not_here_say_so(of, name):
    with pytest.raises(AttributeError, match=f"braid.compat.v1.{of} has no '{name}'"):
        getattr(getattr(tf, of), name)
