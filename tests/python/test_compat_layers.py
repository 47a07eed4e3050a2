"""tf.layers, clipping, flags and other names that programs of TensorFlow 1 use."""

import os
import subprocess
import sys

import numpy as np
import pytest

import braid.compat.v1 as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def run(*values, feeds=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(list(values), feeds)


def test_layers_name_their_variables_as_tensorflow_does():
    image = tf.placeholder(tf.float32, [None, 8, 8, 1])
    x = tf.layers.conv2d(image, 4, 3, padding="same", activation=tf.nn.relu)
    x = tf.layers.max_pooling2d(x, 2, 2)
    x = tf.layers.flatten(x)
    with tf.variable_scope("head"):
        x = tf.layers.dense(x, 5, tf.tanh)
        y = tf.layers.dense(x, 2, name="logits")
    assert [each.name for each in tf.trainable_variables()] == [
        "conv2d/kernel:0", "conv2d/bias:0", "head/dense/kernel:0", "head/dense/bias:0", "head/logits/kernel:0",
        "head/logits/bias:0"]
    assert tf.layers.dense(x, 3).op.name != tf.layers.dense(x, 3).op.name
    assert [each.name for each in tf.trainable_variables()][-2:] == ["dense_1/kernel:0", "dense_1/bias:0"]
    (found,) = run(y, feeds={image: np.ones((3, 8, 8, 1))})
    assert found.shape == (3, 2)


def test_dense_layers_are_shared_under_reuse():
    x = tf.placeholder(tf.float32, [None, 3])
    one = tf.layers.dense(x, 2, name="shared")
    other = tf.layers.dense(x, 2, name="shared", reuse=True)
    assert len(tf.trainable_variables()) == 2
    a, b = run(one, other, feeds={x: np.eye(3)})
    np.testing.assert_array_equal(a, b)


def test_batch_normalization_keeps_moving_statistics():
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.layers.batch_normalization(x, momentum=0.9, training=True, name="norm")
    later = tf.layers.batch_normalization(x, training=False, name="norm", reuse=True)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    value = np.random.default_rng(0).normal(2.0, 3.0, (64, 4)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(y, {x: value})
        np.testing.assert_allclose(found, (value - value.mean(0)) / np.sqrt(value.var(0) + 1e-3), atol=1e-5)
        session.run(tf.group(*updates), {x: value})
        mean, variance = 0.1 * value.mean(0), 0.9 + 0.1 * value.var(0)
        np.testing.assert_allclose(session.run(later, {x: value}), (value - mean) / np.sqrt(variance + 1e-3), rtol=1e-4, atol=1e-5)


def test_clipping_by_the_global_norm():
    w, table = tf.Variable([3.0, 4.0]), tf.get_variable("table", [5, 2], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(w * [1.0, 2.0]) + tf.reduce_sum(tf.nn.embedding_lookup(table, np.array([1, 1, 3])))
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
    train = optimizer.apply_gradients(zip(clipped, variables))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        expected = np.sqrt(1 + 4 + 6)  # each use of a row counts
        np.testing.assert_allclose(session.run(norm), expected, rtol=1e-6)
        session.run(train)
        np.testing.assert_allclose(session.run(w), [3 - 0.5 / expected, 4 - 1 / expected], rtol=1e-6)
        np.testing.assert_allclose(session.run(table)[1], [1 - 1 / expected] * 2, rtol=1e-6)


def test_values_of_further_functions():
    x = tf.constant([[1.0, 4.0, 2.0], [0.0, -1.0, 5.0]])
    values = run(tf.nn.top_k(x, 2), tf.cumsum(x, 1), tf.einsum("ij,kj->ik", x, x), tf.eye(2), tf.sequence_mask([1, 3], 3),
                 tf.clip_by_norm(x, 1.0), *tf.nn.moments(x, [1]), tf.nn.leaky_relu(x), tf.unsorted_segment_sum(x, [1, 1], 3),
                 tf.gather_nd(x, [[1, 2]]), tf.is_nan(x))
    v = np.array([[1.0, 4.0, 2.0], [0.0, -1.0, 5.0]])
    np.testing.assert_array_equal(values[0][1], [[1, 2], [2, 0]])
    expected = [v.cumsum(1), v @ v.T, np.eye(2), [[1, 0, 0], [1, 1, 1]], v / np.linalg.norm(v), v.mean(1), v.var(1),
                np.where(v > 0, v, 0.2 * v), [[0] * 3, v.sum(0), [0] * 3], [5], np.zeros((2, 3))]
    for found, each in zip(values[1:], expected):
        np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-6)


def test_moving_averages_of_variables():
    w = tf.Variable(2.0, name="w")
    averages = tf.train.ExponentialMovingAverage(0.9)
    update = averages.apply([w])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(w.assign(4.0))
        session.run(update)
        np.testing.assert_allclose(session.run(averages.average(w)), 2.2, rtol=1e-6)


PROGRAM = """
import braid.compat.v1 as tf
tf.app.flags.DEFINE_string("job", "worker", "the job")
tf.flags.DEFINE_integer("steps", 3, "steps")
tf.flags.DEFINE_float("rate", 0.5, "rate")
tf.flags.DEFINE_boolean("sync", True, "synchronous")
tf.flags.DEFINE_enum("mode", "a", ["a", "b"], "mode")
tf.flags.DEFINE_list("hosts", [], "hosts")
FLAGS = tf.app.flags.FLAGS

def main(argv):
    print(FLAGS.job, FLAGS.steps, FLAGS.rate, FLAGS.sync, FLAGS.mode, FLAGS.hosts, argv[1:])
    return 7

if __name__ == "__main__":
    tf.app.run()
"""


@pytest.mark.parametrize("arguments, code, said", [
    ("", 7, "worker 3 0.5 True a [] []"),
    ("--job=ps --steps 8 --nosync x --hosts=a:1,b:2 --mode b", 7, "ps 8 0.5 False b ['a:1', 'b:2'] ['x']"),
    ("--steps=many", 1, "flag --steps=many"),
    ("--mode=c", 1, "one of a, b"),
    ("--stepz=1", 1, "unknown flag --stepz"),
])
def test_flags_of_the_command_line(tmp_path, arguments, code, said):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", *arguments.split()], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120, env={**os.environ})
    assert done.returncode == code and said in done.stdout + done.stderr, done.stderr


def test_a_session_manager_prepares_and_recovers(tmp_path):
    w = tf.Variable(3.0, name="w")
    saver, manager = tf.train.Saver(), tf.train.SessionManager()
    with manager.prepare_session("", init_op=tf.global_variables_initializer()) as session:
        session.run(w.assign(5.0))
        saver.save(session, str(tmp_path / "model"))
    session, was_there = manager.recover_session("", saver=saver, checkpoint_dir=str(tmp_path))
    with session:
        assert was_there and float(session.run(w)) == 5.0
