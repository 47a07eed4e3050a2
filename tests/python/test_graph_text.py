"""Graphs from files whose placeholders take strings, fed by arrays of strings: beside TensorFlow 1, which wrote them."""

import importlib.util
import os

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import braid as bd
import tensorflow as tf

tf1 = tf.compat.v1
BATCH, STEPS = 16, 4
ROWS = BATCH * STEPS


def written(folder):
    """A model of a city (hashed), a device (by a vocabulary) and two tags (joined with both), in a .meta file; what
    TensorFlow's losses are, and the data."""
    rng, graph = np.random.default_rng(3), tf.Graph()
    data = dict(city=np.array([f"city {i}" for i in rng.integers(0, 9, ROWS)]),
                device=np.array(["phone", "tv", "desk", "other"])[rng.integers(0, 4, ROWS)].astype(object),
                tags=np.array([f"t{i}" for i in range(5)])[rng.integers(0, 5, (ROWS, 2))],
                dense=rng.normal(size=(ROWS, 3)).astype(np.float32), label=rng.integers(0, 2, ROWS).astype(np.float32))
    with graph.as_default(), tf1.Session(graph=graph) as session:
        tf1.enable_resource_variables()
        tf1.set_random_seed(1)
        given = {name: tf1.placeholder(tf.float32 if value.dtype.kind == "f" else tf.string, [None, *value.shape[1:]], name=name)
                 for name, value in data.items()}
        known = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.constant(["phone", "tv", "desk"]), tf.constant([0, 1, 2], tf.int64)), 3)
        joined = tf.strings.join([given["tags"], tf.stack([given["city"], given["device"]], 1)], "/")
        ids = {"city": tf.strings.to_hash_bucket_fast(given["city"], 20), "device": known.lookup(given["device"]),
               "tags": tf.strings.to_hash_bucket_fast(joined, 40)}
        total = tf.reduce_sum(given["dense"] * tf1.get_variable("w", [3], initializer=tf1.ones_initializer()), 1)
        for name, value in ids.items():
            rows = tf.nn.embedding_lookup(tf1.get_variable(f"{name}_rows", [40, 4], initializer=tf1.random_normal_initializer(
                stddev=0.3, seed=len(name))), value)
            total += tf.reduce_sum(tf.reshape(rows, [-1, value.shape[1] * 4 if len(value.shape) > 1 else 4]) ** 2, 1)
        logit = tf.identity(total, name="logit")
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=given["label"], logits=logit), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        tf1.train.Saver().save(session, str(folder / "first"))
        tf1.train.export_meta_graph(str(folder / "graph.meta"), graph=graph)
        parts = [{given[name]: value[step * BATCH:(step + 1) * BATCH] for name, value in data.items()} for step in range(STEPS)]
        losses = [session.run([loss, train], part)[0] for part in parts]
        return data, losses, session.run(tf.sigmoid(logit), {given[name]: value for name, value in data.items()})


def trainer(folder, data, **settings):
    source = bd.io.graph(folder / "graph.meta", loss="loss:0", prediction="logit", initial_file=str(folder / "first"), **settings)
    return source, bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.1))


def test_strings_train_as_in_tensorflow(tmp_path):
    data, losses, predicted = written(tmp_path)
    source, t = trainer(tmp_path, data)
    np.testing.assert_allclose(t.fit(steps=STEPS)["loss"], losses, rtol=1e-5)
    features = {name: value for name, value in data.items() if name != "label"}
    np.testing.assert_allclose(t.predict(features), predicted, atol=1e-5)
    _, single = trainer(tmp_path, data)
    for step in range(STEPS):
        part = {name: value[step * BATCH:(step + 1) * BATCH] for name, value in data.items()}
        assert single.step(part).loss == pytest.approx(losses[step], rel=1e-5)
    saved = t.save_job(tmp_path / "job", steps=1)
    assert os.path.exists(tmp_path / "job" / "text_0.npy") and "text_0" in open(saved).read()
    with pytest.raises(bd.InvalidArgument, match="the data has no column 'city'"):
        t.predict({name: value for name, value in features.items() if name != "city"})


def test_columns_of_other_names_feed_placeholders_of_strings(tmp_path):
    data, losses, _ = written(tmp_path)
    data["town"] = data.pop("city")
    _, t = trainer(tmp_path, data, feeds={"town": "city"})
    np.testing.assert_allclose(t.fit(steps=STEPS)["loss"], losses, rtol=1e-5)


def test_text_that_is_no_row_of_numbers_is_refused(tmp_path):
    graph = tf.Graph()
    with graph.as_default():
        words = tf1.placeholder(tf.string, [None], name="words")
        w = tf1.get_variable("w", [5], initializer=tf1.ones_initializer())
        tf.reduce_sum(tf.gather(w, tf.strings.to_hash_bucket_fast(words[0], 5)), name="loss")
        tf1.train.export_meta_graph(str(tmp_path / "graph.meta"), graph=graph)
    with pytest.raises(bd.InvalidArgument, match="is no value for each row"):
        source = bd.io.graph(tmp_path / "graph.meta", loss="loss:0")
        bd.Trainer(source, bd.data.arrays(words=np.array(["a", "b"])).batch(1), bd.optim.SGD(0.1))


# ----------------------------------------------------------------------------------------------------- feature columns
def columns_written(folder, data, logit):
    """A graph of feature columns, written, and TensorFlow's losses."""
    graph, features = tf.Graph(), [name for name in data if name != "label"]
    with graph.as_default(), tf1.Session(graph=graph) as session:
        tf1.enable_resource_variables()
        tf1.set_random_seed(1)
        given = {name: tf1.placeholder(tf.string if value.dtype == object else tf.as_dtype(value.dtype), [None, *value.shape[1:]],
                                       name=name) for name, value in data.items()}
        value = tf.identity(tf.reshape(logit({name: given[name] for name in features}), [-1]), name="logit")
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=given["label"], logits=value), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        tf1.train.Saver().save(session, str(folder / "first"))
        tf1.train.export_meta_graph(str(folder / "graph.meta"), graph=graph)
        parts = [{given[name]: each[step * BATCH:(step + 1) * BATCH] for name, each in data.items()} for step in range(STEPS)]
        return [session.run([loss, train], part)[0] for part in parts]


def dense(x):
    return tf.matmul(x, tf1.get_variable("dense", [x.shape[1], 1], initializer=tf1.glorot_uniform_initializer(seed=2)))


def wide_and_deep(x, fc):
    age = fc.bucketized_column(fc.numeric_column("age"), [20.0, 40.0, 60.0])
    city = fc.categorical_column_with_hash_bucket("city", 12)
    crosses = [fc.crossed_column([age, "city"], 30), fc.crossed_column(["city", "device"], 40),
               fc.crossed_column(["city", fc.categorical_column_with_identity("hour", 24), age], 50)]
    deep = tf1.feature_column.input_layer(x, [fc.embedding_column(city, 4), fc.indicator_column(age),
                                              fc.embedding_column(crosses[2], 3)])
    return dense(deep) + tf1.feature_column.linear_model(x, [city, *crosses])


def weighted(x, fc):
    tags = fc.weighted_categorical_column(fc.categorical_column_with_hash_bucket("tags", 20), "weights")
    deep = tf1.feature_column.input_layer(x, [fc.embedding_column(tags, 4, combiner="sqrtn"), fc.indicator_column(tags)])
    return dense(deep) + tf1.feature_column.linear_model(x, [tags])


@pytest.mark.parametrize("logit", [wide_and_deep, weighted])
def test_crossed_and_weighted_columns_train_as_in_tensorflow(tmp_path, logit):
    rng = np.random.default_rng(3)
    text = lambda *shape: np.array(["a", "b", "c", "d", ""], dtype=object)[rng.integers(0, 5, shape)]
    data = dict(age=rng.gamma(2, 20, ROWS).astype(np.float32), city=text(ROWS), device=text(ROWS),
                hour=rng.integers(0, 24, ROWS)) if logit is wide_and_deep else dict(tags=text(ROWS, 3))
    if logit is weighted:  # TensorFlow wants a weight for each id, and none beside an empty text
        data["weights"] = np.where(data["tags"] == "", 0, rng.random((ROWS, 3)) + 0.1).astype(np.float32)
    data["label"] = rng.integers(0, 2, ROWS).astype(np.float32)
    losses = columns_written(tmp_path, data, lambda x: logit(x, tf.feature_column))
    _, t = trainer(tmp_path, data)
    np.testing.assert_allclose(t.fit(steps=STEPS)["loss"], losses, rtol=2e-5)
