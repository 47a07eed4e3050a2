"""Ragged inputs of Keras models, trained and predicted as Keras does it; what is refused of them."""

import importlib.util
import os

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import braid as bd
import keras
import tensorflow as tf
from keras import layers

BATCH, STEPS = 16, 5
LOSS = keras.losses.BinaryCrossentropy(from_logits=True)


def lists(rng, longest=6, shortest=0):
    """Rows of ids, the first of the full length."""
    sizes = rng.integers(shortest, longest + 1, BATCH * STEPS)
    sizes[0] = longest
    return [rng.integers(0, 20, size).tolist() for size in sizes]


def pooled(function, width=4):
    """A table, a function of its ragged rows, and a dense layer."""
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    rows = layers.Embedding(20, 4)(ids)
    return keras.Model(ids, layers.Dense(1)(layers.Lambda(function, output_shape=(width,))(rows)))


def mean(rows):
    count = tf.maximum(tf.cast(rows.row_lengths(), tf.float32), 1.0)
    return tf.reduce_sum(tf.math.tanh(rows), 1) / count[:, None]


MODELS = {
    "sum": (lambda: pooled(lambda rows: tf.reduce_sum(rows * rows, 1)), 0),
    "mean": (lambda: pooled(mean), 0),
    "means of TensorFlow": (lambda: pooled(lambda rows: tf.reduce_mean(rows, 1)), 1),
    "largest": (lambda: pooled(lambda rows: tf.reduce_max(rows, 1) + tf.reduce_min(rows, axis=1)), 1),
    "filled": (lambda: pooled(lambda rows: tf.reduce_mean(rows.to_tensor(0.5, shape=[None, 6, None]), 1)), 0),
    "filled further": (lambda: pooled(lambda rows: tf.reduce_mean(rows.to_tensor(shape=[None, 8, 4]) ** 2, 1)), 0),
    "cut": (lambda: pooled(lambda rows: tf.reduce_max(rows.to_tensor(shape=[None, 3, 4]), 1)), 0),
}


def trained_by_keras(model, inputs, label):
    optimizer, losses = keras.optimizers.SGD(0.1), []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        with tf.GradientTape() as tape:
            loss = LOSS(label[part, None], model(inputs(part), training=True))
        variables = [each.value for each in model.trainable_variables]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), model.trainable_variables))
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_ragged_rows_train_as_in_keras(name):
    keras.utils.set_random_seed(1)
    make, shortest = MODELS[name]
    model, rng = make(), np.random.default_rng(3)
    ids, label = lists(rng, shortest=shortest), rng.integers(0, 2, BATCH * STEPS).astype(np.float32)
    source = bd.io.keras(model, loss=LOSS)
    data = bd.data.arrays(ids=bd.data.ragged(ids), label=label).batch(BATCH, shuffle=False)
    t = bd.Trainer(source, data, bd.optim.SGD(0.1))
    losses = t.fit(steps=STEPS)["loss"]
    predicted = t.predict(dict(ids=tf.ragged.constant(ids, dtype=tf.int64)))
    np.testing.assert_allclose(
        losses, trained_by_keras(model, lambda part: tf.ragged.constant(ids[part], dtype=tf.int64), label), rtol=1e-5)
    expected = model(tf.ragged.constant(ids, dtype=tf.int64)).numpy()[:, 0]
    np.testing.assert_allclose(predicted, 1 / (1 + np.exp(-expected)), atol=1e-5)
    before = [each.numpy() for each in model.trainable_variables]
    source.write_back()
    for was, each in zip(before, model.trainable_variables):
        np.testing.assert_allclose(each.numpy(), was, atol=2e-6, err_msg=each.path)


def test_ragged_beside_plain_columns_in_steps_and_saved_jobs(tmp_path):
    keras.utils.set_random_seed(1)
    ids, dense = keras.Input((None,), dtype="int64", ragged=True, name="ids"), keras.Input((3,), name="dense")
    rows = layers.Lambda(lambda rows: tf.reduce_sum(rows, 1), output_shape=(4,))(layers.Embedding(20, 4)(ids))
    model, rng = keras.Model([dense, ids], layers.Dense(1)(layers.Concatenate()([rows, dense]))), np.random.default_rng(3)
    arrays = dict(dense=rng.normal(size=(BATCH * STEPS, 3)).astype(np.float32), ids=bd.data.ragged(lists(rng), length=9),
                  label=rng.integers(0, 2, BATCH * STEPS).astype(np.float32))
    made = [bd.Trainer(bd.io.keras(model, loss=LOSS), bd.data.arrays(**arrays).batch(BATCH, shuffle=False),
                       bd.optim.Adagrad(0.1)) for _ in range(2)]
    losses = made[0].fit(steps=3)["loss"]
    parts = [{name: value[step * BATCH:(step + 1) * BATCH] for name, value in {
        **arrays, "ids": tf.ragged.constant(arrays["ids"].rows, dtype=tf.int64)}.items()} for step in range(3)]
    assert [made[1].step(part).loss for part in parts] == losses
    made[0].save_job(tmp_path, steps=2)
    assert (tmp_path / "ids.npy").exists() and (tmp_path / "ids_lengths.npy").exists()
    with pytest.raises(bd.InvalidArgument, match="a row of 11 elements, and the model was made for 9"):
        made[0].predict({**arrays, "ids": [list(range(11))] * (BATCH * STEPS)})


def test_what_is_refused_of_ragged_rows():
    label = np.zeros(BATCH, np.float32)

    def trainer(model, ids):
        return bd.Trainer(bd.io.keras(model, loss=LOSS), bd.data.arrays(ids=ids, label=label).batch(BATCH), bd.optim.SGD(0.1))

    rows = [[1, 2], [3]] * (BATCH // 2)
    with pytest.raises(bd.InvalidArgument, match=r"to_tensor\(shape=\[None, length\]\)"):
        trainer(pooled(lambda each: tf.reduce_mean(each.to_tensor(), 1)), bd.data.ragged(rows))
    with pytest.raises(bd.InvalidArgument, match=r"input 'ids' is ragged: bd.data.ragged\(rows\)"):
        trainer(pooled(mean), np.zeros((BATCH, 3), np.int64))
    with pytest.raises(bd.InvalidArgument, match="follows from the data"):
        trainer(pooled(lambda each: tf.reduce_sum(tf.sort(each.to_sparse().values, 0)) + tf.zeros([1, 4])),
                bd.data.ragged(rows)).fit(steps=1)
    with pytest.raises(bd.InvalidArgument, match=r"column 'ids' is ragged.*bd.data.padded"):
        bd.Trainer(lambda x, training: None, bd.data.arrays(ids=bd.data.ragged(rows), label=label).batch(4), bd.optim.SGD(0.1))
    with pytest.raises(bd.InvalidArgument, match="length is 1"):
        bd.data.ragged(rows, length=1)
    with pytest.raises(bd.InvalidArgument, match="bd.data.ragged"):
        bd.data.arrays(ids=rows)
