"""tf.data in programs of TensorFlow 1: elements by numbers, and a program trained beside TensorFlow where it is installed."""

import gzip
import importlib.util
import os

import numpy as np
import pytest

import braid as bd
import braid.compat.v1 as tf

D = tf.data.Dataset


@pytest.fixture(autouse=True)
def graph():
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def elements(dataset, most=50):
    """What an iterator gives until its end."""
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with tf.Session() as session:
        try:
            while len(found) < most:
                found.append(session.run(following))
        except tf.errors.OutOfRangeError:
            pass
    return found


def numbers(dataset):
    return [np.asarray(each).tolist() for each in elements(dataset)]


def test_rows_of_arrays_keep_their_structure():
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([5, 6, 7])
    found = elements(D.from_tensor_slices(({"b": y, "a": x}, y)))
    assert len(found) == 3 and set(found[1][0]) == {"a", "b"}
    assert found[1][0]["a"].tolist() == [2, 3] and found[1][0]["b"] == 6 and found[1][1] == 6
    with pytest.raises(bd.InvalidArgument, match=r"the tensors have \[2, 3\] rows"):
        D.from_tensor_slices((x, y[:2]))


@pytest.mark.parametrize("make, expected", [
    (lambda: D.range(7).batch(3), [[0, 1, 2], [3, 4, 5], [6]]),
    (lambda: D.range(7).batch(3, drop_remainder=True), [[0, 1, 2], [3, 4, 5]]),
    (lambda: D.range(3).repeat(2), [0, 1, 2, 0, 1, 2]),
    (lambda: D.range(3).repeat().take(5), [0, 1, 2, 0, 1]),
    (lambda: D.range(6).skip(4).concatenate(D.range(1)), [4, 5, 0]),
    (lambda: D.range(7).shard(3, 1), [1, 4]),
    (lambda: D.range(5).map(lambda x: x * x + 1), [1, 2, 5, 10, 17]),
    (lambda: D.range(6).filter(lambda x: tf.less(x, 4)).prefetch(2), [0, 1, 2, 3]),
    (lambda: D.range(4).batch(2).unbatch().cache(), [0, 1, 2, 3]),
    (lambda: D.range(3).flat_map(lambda i: D.range(i)), [0, 0, 1]),
    (lambda: D.from_tensor_slices([4, 2]).interleave(lambda i: D.from_tensors(i).repeat(i), cycle_length=2), [4, 2, 4, 2, 4, 4]),
    (lambda: D.from_generator(lambda: iter([1, 2]), tf.int32, []), [1, 2]),
    (lambda: D.range(4).apply(lambda each: each.batch(2)).map(lambda x: tf.reduce_sum(x)), [1, 5]),
])
def test_elements(make, expected):
    assert numbers(make()) == expected


def test_pairs_and_numbered_elements():
    found = elements(D.zip((D.range(3), D.range(5, 8))).map(lambda a, b: {"sum": a + b, "a": a}).enumerate(10))
    assert [(int(at), int(each["sum"]), int(each["a"])) for at, each in found] == [(10, 5, 0), (11, 7, 1), (12, 9, 2)]


def test_shuffles_are_of_all_elements_and_others_each_time():
    found = numbers(D.range(20).shuffle(7, seed=3).repeat(2))
    assert sorted(found[:20]) == sorted(found[20:]) == list(range(20)) and found[:20] != found[20:]
    again = numbers(D.range(20).shuffle(7, seed=3, reshuffle_each_iteration=False).repeat(2))
    assert again[:20] == again[20:] != list(range(20))


def test_padded_batches():
    rows = D.from_generator(lambda: iter([[1], [2, 3], [4, 5, 6]]), tf.int64, [None])
    assert numbers(rows.padded_batch(2)) == [[[1, 0], [2, 3]], [[4, 5, 6]]]
    rows = D.from_generator(lambda: iter([[1], [2, 3]]), tf.int64, [None])
    assert numbers(rows.padded_batch(2, padded_shapes=[4], padding_values=np.int64(-1))) == [[[1, -1, -1, -1], [2, 3, -1, -1]]]
    with pytest.raises(bd.InvalidArgument, match="a part of 2 elements, and its padded shape has 1"):
        numbers(rows.padded_batch(2, padded_shapes=[1]))


def test_lines_of_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"0.5,1\n1.5,0\r\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"2.5,1\n"))
    files = D.list_files(str(tmp_path / "*"), shuffle=False)
    lines = files.interleave(tf.data.TextLineDataset, cycle_length=1)
    rows = lines.map(lambda line: tf.decode_csv(line, [[0.0], [0]])).batch(3)
    (x, y), = elements(rows)
    assert x.tolist() == [0.5, 1.5, 2.5] and y.tolist() == [1, 0, 1]
    assert elements(tf.data.TextLineDataset([str(tmp_path / "a.txt")]).skip(1)) == [b"1.5,0"]
    with pytest.raises(bd.InvalidArgument, match="no file is called"):
        D.list_files(str(tmp_path / "none*"))


def test_iterators_are_initialised_with_what_is_fed():
    x = tf.placeholder(tf.float32, [None, 2])
    iterator = tf.data.make_initializable_iterator(D.from_tensor_slices(x).batch(2))
    following = iterator.get_next()
    total = tf.reduce_sum(following)
    with tf.Session() as session:
        with pytest.raises(bd.InvalidArgument, match="run iterator.initializer, fed with it"):
            session.run(total)
        for scale in (1, 10):
            session.run(iterator.initializer, {x: np.full((3, 2), scale)})
            assert [float(session.run(total)) for _ in range(2)] == [4 * scale, 2 * scale]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(total)
    with pytest.raises(bd.InvalidArgument, match="get_next\\(\\) was called before"):
        iterator.get_next()


def test_one_iterator_of_two_datasets():
    iterator = tf.data.Iterator.from_structure(tf.int64, [])
    train, test = iterator.make_initializer(D.range(2)), iterator.make_initializer(D.range(5, 7))
    following = iterator.get_next()
    with tf.Session() as session, tf.Session() as other:
        with pytest.raises(bd.InvalidArgument, match="run what make_initializer"):
            session.run(following)
        session.run(train)
        other.run(test)
        assert (session.run(following), other.run(following), session.run(following)) == (0, 5, 1)
        session.run(test)
        assert session.run(following) == 5


def test_an_initializer_needs_the_tensors_of_its_dataset_alone():
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    first, second = (tf.data.make_initializable_iterator(D.from_tensor_slices(each * 2.0).repeat()) for each in (x, y))
    following = first.get_next()
    with tf.Session() as session:
        session.run(first.initializer, {x: [1, 2]})
        assert [float(session.run(following)) for _ in range(3)] == [2, 4, 2]


def test_a_cache_ends_where_the_iterator_is_initialised_again():
    x, read = tf.placeholder(tf.float32, [None]), []
    data = D.from_tensor_slices(x).cache().repeat(2)
    iterator = tf.data.make_initializable_iterator(data)
    following = iterator.get_next()
    with tf.Session() as session:
        for values in ([1, 2], [7, 8]):
            session.run(iterator.initializer, {x: values})
            assert [float(session.run(following)) for _ in range(4)] == values * 2
    endless = D.from_generator(lambda: iter(lambda: read.append(1) or len(read), None), tf.int64, [])
    assert numbers(endless.cache().take(2)) == [1, 2] and len(read) <= 3
    assert numbers(D.from_generator(lambda: iter([read.clear() or 1, 2]), tf.int64, []).cache().repeat(2)) == [1, 2, 1, 2]


def test_functions_read_constants_of_the_graph_around_them_alone():
    five = tf.constant(5, tf.int64)
    assert numbers(D.range(3).map(lambda each: each + five)) == [5, 6, 7]
    assert numbers(D.range(3).map(lambda each: tf.maximum(five - each, 4))) == [5, 4, 4]
    assert [int(a) for a, _ in elements(D.from_tensor_slices((tf.constant([1, 2]), tf.constant(["a", "b"]))))] == [1, 2]
    fed = tf.placeholder(tf.int64, [], name="outer")
    with pytest.raises(bd.InvalidArgument, match="'outer:0' is of another graph"):
        D.range(3).map(lambda each: each * fed)


def test_what_would_be_read_otherwise_is_refused(tmp_path):
    assert elements(D.range(2, output_type=tf.int32))[1].dtype == np.int32
    with pytest.raises(bd.InvalidArgument, match=r"a part of shape \[1\], and its output_shapes are \[2\]"):
        elements(D.from_generator(lambda: iter([[1, 2], [3]]), tf.int64, [2]))
    with pytest.raises(bd.InvalidArgument, match="an element has 2 parts, and there are 1 types"):
        elements(D.from_generator(lambda: iter([(1, 2)]), (tf.int64,)))
    with pytest.raises(bd.InvalidArgument, match="the index must be from 0 to 1"):
        D.range(6).shard(2, 2)
    with pytest.raises(bd.InvalidArgument, match="compression_type='ZLIB'"):
        tf.data.TextLineDataset(str(tmp_path / "a"), compression_type="ZLIB")
    with pytest.raises(TypeError, match="drop_remaindr"):
        D.range(2).batch(2, drop_remaindr=True)
    assert tf.data.experimental.AUTOTUNE == -1
    with pytest.raises(AttributeError, match="has no 'make_csv_dataset'"):
        tf.data.experimental.make_csv_dataset


PROGRAM = """
def program(tf, x, y):
    data = tf.data.Dataset.from_tensor_slices({"x": x, "label": y}).map(lambda each: (each["x"] * 2.0, each["label"]))
    features, label = tf.data.make_one_shot_iterator(data.repeat().batch(8).prefetch(1)).get_next()
    w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
    logit = tf.squeeze(tf.matmul(tf.reshape(features, [8, 3]), w), [1])
    loss = tf.reduce_mean(tf.square(logit - tf.reshape(label, [8])))
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [float(session.run([loss, train])[0]) for _ in range(20)], session.run(w)
"""


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_a_program_trains_as_in_tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow
    scope, rng = {}, np.random.default_rng(4)
    exec(PROGRAM, scope)
    x, y = rng.standard_normal((32, 3)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    mine, w = scope["program"](tf, x, y)
    with tensorflow.Graph().as_default():
        theirs, expected = scope["program"](tensorflow.compat.v1, x, y)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    np.testing.assert_allclose(w, expected, atol=1e-5)
