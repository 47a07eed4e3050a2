"""Keras models: trained here as Keras trains them, and written back."""

import importlib.util
import os
import sys

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import braid as bd  # before TensorFlow, and so beside it
import keras

sys.path.insert(0, os.path.dirname(__file__))


def model(dropout=0.0):
    keras.utils.set_random_seed(3)
    dense, ids = keras.Input([4], name="dense"), keras.Input([3], dtype="int64", name="ids")
    deep = keras.layers.Flatten()(keras.layers.Embedding(50, 4)(ids))
    x = keras.layers.Dense(8, "relu", name="first")(keras.layers.Concatenate()([dense, deep]))
    x = keras.layers.Dropout(dropout)(x) if dropout else x
    return keras.Model([dense, ids], keras.layers.Dense(1, name="last")(x))


def arrays(rows=256):
    import programs
    return programs.click_arrays(rows)


def test_trains_as_keras_does_and_writes_back():
    m, loss, data = model(), keras.losses.BinaryCrossentropy(from_logits=True), arrays()
    begin = m.get_weights()
    source = bd.io.keras(m, loss=loss)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(64, shuffle=False), bd.optim.SGD(0.1))
    losses = t.fit(epochs=5)["loss"]
    m.set_weights(begin)
    m.compile(keras.optimizers.SGD(0.1), loss)
    expected = []
    for step in range(20):
        at = slice(64 * (step % 4), 64 * (step % 4 + 1))
        expected.append(_step(m, loss, data, at))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    trained = m.get_weights()
    m.set_weights(begin)
    source.write_back()
    for mine, theirs in zip(m.get_weights(), trained):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
    predicted = m.predict([data["dense"], data["ids"]], verbose=0)
    np.testing.assert_allclose(t.predict(data, "logit").reshape(-1, 1), predicted, atol=1e-5)


def _step(m, loss, data, at):
    value = float(loss(data["label"][at, None], m([data["dense"][at], data["ids"][at]], training=True)))
    m.train_on_batch([data["dense"][at], data["ids"][at]], data["label"][at, None])
    return value


def test_dropout_is_off_in_predictions():
    m = model(dropout=0.5)
    source = bd.io.keras(m, loss=keras.losses.BinaryCrossentropy(from_logits=True))
    t = bd.Trainer(source, bd.data.arrays(**arrays()).batch(64), bd.optim.Adam(0.01))
    t.fit(steps=10)
    source.write_back()
    data = arrays()
    np.testing.assert_allclose(t.predict(data, "logit").reshape(-1, 1),
                               m.predict([data["dense"], data["ids"]], verbose=0), atol=1e-5)
