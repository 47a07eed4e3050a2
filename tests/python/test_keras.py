"""Keras models: trained here as Keras trains them, and written back."""

import csv
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


# ------------------------------------------------------------------------------------------------ models of any kind
def trained_beside_keras(m, data, loss=None, label=None, inputs=None, steps=6, rows=16):
    """The Trainer behind `steps` steps, whose losses are those of Keras' own training with the same batches."""
    source = bd.io.keras(m, loss=loss, label=label, inputs=inputs)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(rows, shuffle=False), bd.optim.SGD(0.1))
    begin = m.get_weights()
    losses = t.fit(steps=steps)["loss"]
    m.set_weights(begin)
    if loss is None:
        m.compile(keras.optimizers.SGD(0.1), m.loss, loss_weights=m._compile_loss._user_loss_weights)
    else:
        m.compile(keras.optimizers.SGD(0.1), loss)
    labels = label if isinstance(label, list) else ["label"]
    expected = []
    for step in range(steps):
        at = slice(rows * step, rows * (step + 1))
        x, y = [value[at] for name, value in data.items() if name not in labels], [data[each][at] for each in labels]
        m.reset_metrics()
        value = m.train_on_batch(x[0] if len(x) == 1 else x, y if len(y) > 1 else y[0])
        expected.append(np.ravel(value)[0])
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    return t


RNG = np.random.default_rng(5)
X = RNG.standard_normal((96, 6)).astype(np.float32)
Y = RNG.integers(0, 2, 96).astype(np.float32)


def dense_model(width=1, activation=None, **of_kernel):
    keras.utils.set_random_seed(3)
    x = keras.Input([6], name="x")
    hidden = keras.layers.Dense(8, "tanh", **of_kernel)(x)
    return keras.Model(x, keras.layers.Dense(width, activation, name="last")(hidden))


def test_what_layers_add_to_the_loss_counts():
    m = dense_model(kernel_regularizer="l2", activity_regularizer=keras.regularizers.L1(0.01))
    trained_beside_keras(m, {"x": X, "label": Y}, keras.losses.BinaryCrossentropy(from_logits=True))


def test_constraints_are_refused():
    m = dense_model(kernel_constraint=keras.constraints.MaxNorm(0.3))
    with pytest.raises(bd.InvalidArgument, match="has a constraint, which Keras' optimizers apply"):
        bd.io.keras(m, loss="mse")


@pytest.mark.parametrize("loss", ["binary_crossentropy", keras.losses.BinaryCrossentropy(), keras.losses.binary_crossentropy])
def test_a_loss_is_a_function_or_a_name(loss):
    m = dense_model(activation="sigmoid")
    m.compile("sgd", loss)
    trained_beside_keras(m, {"x": X, "label": Y})


def test_a_model_without_a_loss_is_refused():
    with pytest.raises(bd.InvalidArgument, match="the model has no loss"):
        bd.Trainer(bd.io.keras(dense_model()), bd.data.arrays(x=X, label=Y).batch(16), bd.optim.SGD(0.1))


def test_shares_of_classes_are_measured_as_classes():
    classes = RNG.integers(0, 3, 96)
    data = {"x": X, "label": np.eye(3, dtype=np.float32)[classes]}
    m = dense_model(3, "softmax")
    t = trained_beside_keras(m, data, "categorical_crossentropy")
    t.source.write_back()
    found = t.predict({"x": X})
    np.testing.assert_allclose(found, m.predict(X, verbose=0), atol=1e-5)
    accuracy = t.evaluate(bd.data.arrays(**data).batch(16))["accuracy"]
    assert accuracy == pytest.approx(np.mean(found.argmax(1) == classes))


def test_several_labels_a_row_are_probabilities():
    labels = RNG.integers(0, 2, (96, 4)).astype(np.float32)
    m = dense_model(4, "sigmoid")
    t = trained_beside_keras(m, {"x": X, "label": labels}, "binary_crossentropy")
    t.source.write_back()
    found = t.predict({"x": X[:37]})
    np.testing.assert_allclose(found, m.predict(X[:37], verbose=0), atol=1e-5)
    assert "auc" in t.evaluate(bd.data.arrays(x=X, label=labels).batch(16))


def test_a_class_for_each_place_of_a_sequence():
    keras.utils.set_random_seed(3)
    tokens = keras.Input([5], dtype="int64", name="tokens")
    x = keras.layers.SimpleRNN(6, return_sequences=True)(keras.layers.Embedding(20, 4)(tokens))
    m = keras.Model(tokens, keras.layers.Dense(7, "softmax")(x))
    data = {"tokens": RNG.integers(0, 20, (96, 5)), "label": RNG.integers(0, 7, (96, 5))}
    t = trained_beside_keras(m, data, "sparse_categorical_crossentropy")
    assert t.predict({"tokens": data["tokens"]}, "class").shape == (96, 5)


def test_two_outputs_have_their_losses_weights_and_labels():
    x = keras.Input([6], name="x")
    hidden = keras.layers.Dense(8, "relu")(x)
    m = keras.Model(x, [keras.layers.Dense(1, name=name)(hidden) for name in ("click", "price")])
    m.compile("sgd", {"click": keras.losses.BinaryCrossentropy(from_logits=True), "price": "mse"},
              loss_weights={"click": 1.0, "price": 0.25})
    price = RNG.standard_normal(96).astype(np.float32)
    t = trained_beside_keras(m, {"x": X, "label": Y, "price_paid": price}, label=["label", "price_paid"])
    assert t.predict({"x": X[:20]}).shape == (20,), "no label is needed"
    with pytest.raises(bd.InvalidArgument, match="2 outputs of .* have losses: label="):
        bd.Trainer(bd.io.keras(m), bd.data.arrays(x=X, label=Y).batch(16), bd.optim.SGD(0.1))


class OfItsOwn(keras.Model):
    def __init__(self):
        super().__init__()
        self.last = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.last(x["a"] * 2.0 if isinstance(x, dict) else x)


def test_a_class_of_its_own_is_called_with_columns():
    with pytest.raises(bd.InvalidArgument, match="inputs=\\[\"column\", ...\\] names the columns"):
        bd.Trainer(bd.io.keras(OfItsOwn(), loss="mse"), bd.data.arrays(x=X, label=Y).batch(16), bd.optim.SGD(0.1))
    for inputs in (["x"], {"a": "x"}):
        t = bd.Trainer(bd.io.keras(OfItsOwn(), loss="mse", inputs=inputs), bd.data.arrays(x=X, label=Y).batch(16),
                       bd.optim.SGD(0.1))
        assert t.fit(epochs=4)["loss"][-1] < 1.0


def test_integers_are_looked_up_and_hashed_as_keras_does():
    keras.utils.set_random_seed(3)
    ids = keras.Input([3], dtype="int64", name="ids")
    known = keras.layers.IntegerLookup(vocabulary=[3, 5, 8, 13, 21])(ids)
    hashed = keras.layers.Hashing(20)(ids)
    rows = [keras.layers.Flatten()(keras.layers.Embedding(count, 4)(each)) for count, each in ((6, known), (20, hashed))]
    m = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))
    data = {"ids": RNG.integers(0, 25, (96, 3)), "label": Y}
    trained_beside_keras(m, data, keras.losses.BinaryCrossentropy(from_logits=True))


# --------------------------------------------------------------------------------------------------------------- text
def words(rows, width, rng):
    names = np.array(["red", "green", "blue", "Black!", "white", "grey"])
    return names[rng.integers(0, len(names), (rows, width))]


def text_model():
    keras.utils.set_random_seed(4)
    inputs = {"city": keras.Input([], dtype="string", name="city"), "tags": keras.Input([3], dtype="string", name="tags"),
              "line": keras.Input([], dtype="string", name="line"), "day": keras.Input([], dtype="int64", name="day"),
              "numbers": keras.Input([2], name="numbers")}
    lookup = keras.layers.StringLookup(vocabulary=["red", "green", "blue"], num_oov_indices=2)
    hot = keras.layers.StringLookup(vocabulary=["red", "green"], output_mode="multi_hot")
    lines = keras.layers.TextVectorization(max_tokens=8, output_sequence_length=4)
    lines.adapt(["red green", "blue red black", "white red"])
    crossed = keras.layers.HashedCrossing(7)((inputs["day"], lookup(inputs["city"])))
    x = keras.layers.Concatenate()([
        keras.layers.Embedding(5, 3)(lookup(inputs["city"])), hot(inputs["tags"]), inputs["numbers"],
        keras.layers.Flatten()(keras.layers.Embedding(6, 2)(keras.layers.Hashing(6)(inputs["tags"]))),
        keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(8, 3, mask_zero=True)(lines(inputs["line"]))),
        keras.layers.Embedding(7, 2)(crossed)])
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(6, "tanh")(x)))


def text_arrays(rows=96):
    rng = np.random.default_rng(5)
    return {"city": words(rows, 1, rng)[:, 0], "tags": words(rows, 3, rng),
            "line": np.array([" ".join(words(1, n, rng)[0]) for n in rng.integers(1, 6, rows)], dtype=object),
            "day": rng.integers(0, 7, rows), "numbers": rng.standard_normal((rows, 2)).astype(np.float32),
            "label": rng.integers(0, 2, rows).astype(np.float32)}


def test_text_trains_as_in_keras():
    m, data, loss = text_model(), text_arrays(), keras.losses.BinaryCrossentropy(from_logits=True)
    inputs = {name: data[name] for name in m.input_names} if hasattr(m, "input_names") else {
        name: value for name, value in data.items() if name != "label"}
    begin = m.get_weights()
    source = bd.io.keras(m, loss=loss)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(16, shuffle=False), bd.optim.SGD(0.1))
    losses = t.fit(steps=6)["loss"]
    m.set_weights(begin)
    m.compile(keras.optimizers.SGD(0.1), loss)
    expected = []
    for step in range(6):
        fed = {name: value[16 * step:16 * step + 16] for name, value in inputs.items()}
        fed = {name: keras.ops.convert_to_tensor(value.tolist() if value.dtype.kind in "UO" else value)
               for name, value in fed.items()}
        label = data["label"][16 * step:16 * step + 16, None]
        expected.append(float(loss(label, m(fed, training=True))))
        m.train_on_batch(fed, label)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    few = {name: value[:8] for name, value in data.items() if name != "label"}
    fed = {name: keras.ops.convert_to_tensor(value.tolist() if value.dtype.kind in "UO" else value)
           for name, value in few.items()}
    np.testing.assert_allclose(t.predict(few, "logit").reshape(-1, 1), np.asarray(m(fed, training=False)), atol=1e-5)
    result = t.step({name: value[:16] for name, value in data.items()})
    assert np.isfinite(result.loss)


def test_texts_job_has_their_numbers(tmp_path):
    t = bd.Trainer(bd.io.keras(text_model(), loss="binary_crossentropy"), bd.data.arrays(**text_arrays()).batch(16),
                   bd.optim.SGD(0.1))
    t.save_job(tmp_path, steps=2)
    made = {each.name for each in tmp_path.iterdir()}
    assert "day.npy" in made and "city.npy" not in made
    texts = [each for each in made if each.startswith("text_")]
    assert len(texts) >= 5
    for name in texts:
        assert np.load(tmp_path / name).dtype.kind in "bif" and len(np.load(tmp_path / name)) == 96


def test_text_that_is_missing_or_of_no_model_is_refused():
    data = text_arrays()
    t = bd.Trainer(bd.io.keras(text_model(), loss="binary_crossentropy"), bd.data.arrays(**data).batch(16), bd.optim.SGD(0.1))
    with pytest.raises(bd.InvalidArgument, match="no column 'city'"):
        t.predict({name: value for name, value in data.items() if name != "city"})
    with pytest.raises(bd.InvalidArgument, match="array 'city'"):
        bd.Trainer(lambda x, training: None, bd.data.arrays(**data).batch(16), bd.optim.SGD(0.1))
    lines = keras.Input([], dtype="string", name="line")
    ragged = keras.layers.TextVectorization(max_tokens=8, output_sequence_length=None, output_mode="int")
    ragged.adapt(["red green"])
    m = keras.Model(lines, keras.layers.Dense(1)(keras.layers.GlobalMaxPooling1D()(keras.layers.Embedding(8, 2)(ragged(lines)))))
    rng = np.random.default_rng(3)
    long = {"line": np.array(["red"] * 4096 + ["red green red"] * 4), "label": rng.random(4100).astype(np.float32)}
    with pytest.raises(bd.InvalidArgument, match="output_sequence_length"):
        bd.Trainer(bd.io.keras(m, loss="mean_squared_error"), bd.data.arrays(**long).batch(4), bd.optim.SGD(0.1))


class Summed(keras.layers.Layer):
    """Its recursion asks by tf.cond whether a size is even, and only one branch has fitting shapes."""

    def call(self, x):
        return keras.ops.reshape(keras.ops.associative_scan(keras.ops.add, x, axis=1), (-1, 5))

    def compute_output_shape(self, shape):
        return shape


def test_a_condition_that_is_known_takes_its_branch():
    keras.utils.set_random_seed(4)
    x = keras.Input([5], name="numbers")
    m = keras.Model(x, keras.layers.Dense(1)(Summed()(x)))
    rng = np.random.default_rng(4)
    data = {"numbers": rng.standard_normal((96, 5)).astype(np.float32), "label": rng.standard_normal(96).astype(np.float32)}
    trained_beside_keras(m, data, loss="mean_squared_error")


# -------------------------------------------------------------------------------------------------- losses as Keras has them
def padded_words(rows=96, length=7):
    rng = np.random.default_rng(8)
    words = rng.integers(1, 20, (rows, length))
    words[np.arange(length) >= rng.integers(2, length + 1, (rows, 1))] = 0
    return words


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy,
                                  keras.losses.SparseCategoricalCrossentropy()])
def test_places_that_a_mask_leaves_out_have_no_loss(loss):
    keras.utils.set_random_seed(3)
    words = keras.Input([7], dtype="int64", name="words")
    hidden = keras.layers.LSTM(6, return_sequences=True)(keras.layers.Embedding(20, 8, mask_zero=True)(words))
    m = keras.Model(words, keras.layers.Dense(4, "softmax")(hidden))
    m.compile("sgd", loss)
    trained_beside_keras(m, {"words": padded_words(), "label": RNG.integers(0, 4, (96, 7))}, loss)


def test_a_masking_layer_and_a_loss_by_its_name():
    keras.utils.set_random_seed(3)
    x = keras.Input([6, 3], name="x")
    m = keras.Model(x, keras.layers.Dense(1)(keras.layers.SimpleRNN(5, return_sequences=True)(keras.layers.Masking()(x))))
    values = RNG.standard_normal((96, 6, 3)).astype(np.float32)
    values[np.arange(6) >= RNG.integers(2, 7, (96, 1))] = 0
    trained_beside_keras(m, {"x": values, "label": RNG.standard_normal((96, 6, 1)).astype(np.float32)}, "mae")


class OfTwoLayers(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = keras.layers.Dense(8, "relu"), keras.layers.Dense(1)

    def call(self, x):
        return self.last(self.first(x))


class WithItsLoss(OfTwoLayers):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return 3.0 * keras.ops.mean(keras.ops.abs(keras.ops.reshape(y, [-1, 1]) - y_pred))


class WithItsStep(OfTwoLayers):
    def train_step(self, data):
        raise AssertionError("no test runs it")


def test_compute_loss_of_a_models_class_counts():
    m = WithItsLoss()
    m(X[:1])
    m.compile(keras.optimizers.SGD(0.1), "mse")
    data = {"x": X, "label": RNG.standard_normal(96).astype(np.float32)}
    t = bd.Trainer(bd.io.keras(m, inputs=["x"]), bd.data.arrays(**data).batch(16, shuffle=False), bd.optim.SGD(0.1))
    begin = m.get_weights()
    losses = t.fit(steps=6)["loss"]
    m.set_weights(begin)
    for step, loss in enumerate(losses):
        m.reset_metrics()
        at = slice(16 * step, 16 * step + 16)
        assert loss == pytest.approx(float(m.train_on_batch(X[at], data["label"][at])), rel=2e-5)


def test_a_train_step_of_a_models_class_is_refused_without_a_loss():
    m = WithItsStep()
    m(X[:1])
    m.compile("sgd", "mse")
    data = bd.data.arrays(x=X, label=Y).batch(16)
    with pytest.raises(bd.InvalidArgument, match="WithItsStep has a train_step of its own.*bd.io.keras\\(model, loss="):
        bd.Trainer(bd.io.keras(m, inputs=["x"]), data, bd.optim.SGD(0.1))
    bd.Trainer(bd.io.keras(m, inputs=["x"], loss="mse"), data, bd.optim.SGD(0.1)).fit(steps=1)


def test_a_loss_that_keras_does_not_have_is_told():
    with pytest.raises(bd.InvalidArgument, match="the loss of output 'last' is 'squares', which is no loss of Keras"):
        bd.Trainer(bd.io.keras(dense_model(), loss="squares"), bd.data.arrays(x=X, label=Y).batch(16), bd.optim.SGD(0.1))


class OfTwoOutputs(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = keras.layers.Dense(8, "relu"), keras.layers.Dense(1)

    def call(self, x):
        hidden = self.first(x)
        return {"score": self.last(hidden), "hidden": hidden}


def test_outputs_of_a_models_class_have_names():
    m = OfTwoOutputs()
    m(X[:1])
    m.compile(keras.optimizers.SGD(0.1), {"score": keras.losses.BinaryCrossentropy(from_logits=True), "hidden": None})
    begin = m.get_weights()
    t = bd.Trainer(bd.io.keras(m, inputs=["x"], label={"score": "clicked"}),
                   bd.data.arrays(x=X, clicked=Y).batch(16, shuffle=False), bd.optim.SGD(0.1))
    losses = t.fit(steps=6)["loss"]
    m.set_weights(begin)
    for step, loss in enumerate(losses):
        m.reset_metrics()
        at = slice(16 * step, 16 * step + 16)
        assert loss == pytest.approx(float(m.train_on_batch(X[at], {"score": Y[at, None]})), rel=2e-5)
    t.source.write_back()
    np.testing.assert_allclose(t.predict({"x": X}, "logit").reshape(-1, 1), m(X)["score"], atol=1e-5)


def test_labels_by_name_are_in_any_order():
    m = OfTwoOutputs()
    m(X[:1])
    m.compile(keras.optimizers.SGD(0.1), {"score": "mse", "hidden": "mae"})
    values = {"ys": np.full([96, 1], 1, np.float32), "yh": np.full([96, 8], 50, np.float32)}
    data = bd.data.arrays(x=X, **values).batch(16, shuffle=False)
    t = bd.Trainer(bd.io.keras(m, inputs=["x"], label={"score": "ys", "hidden": "yh"}), data, bd.optim.SGD(0.1))
    expected = m.test_on_batch(X[:16], {"score": values["ys"][:16], "hidden": values["yh"][:16]})[0]
    assert t.fit(steps=1)["loss"][0] == pytest.approx(float(expected), rel=2e-5)
    with pytest.raises(bd.InvalidArgument, match="label: the model has no output 'scores': it has \\['hidden', 'score'\\]"):
        bd.Trainer(bd.io.keras(m, inputs=["x"], label={"scores": "ys", "hidden": "yh"}), data, bd.optim.SGD(0.1))


@pytest.mark.parametrize("loss, activation", [("log_cosh", None), (keras.losses.LogCosh(), None), ("poisson", "exponential"),
                                              (keras.losses.Poisson(), "softplus"), ("msle", "softplus")])
def test_losses_of_values_take_any_label(loss, activation):
    labels = np.random.default_rng(2).poisson(2.0, 96).astype(np.float32)
    t = trained_beside_keras(dense_model(1, activation), {"x": X, "label": labels}, loss)
    t.source.write_back()
    expected = t.source.model.predict(X, verbose=0)
    np.testing.assert_allclose(t.predict({"x": X}).reshape(-1, 1), expected, atol=1e-5)
    assert t.evaluate(bd.data.arrays(x=X, label=labels).batch(16))["rmse"] == pytest.approx(
        float(np.sqrt(np.mean((expected[:, 0] - labels) ** 2))), rel=1e-4)


@pytest.mark.parametrize("loss", ["squared_hinge", keras.losses.Hinge()])
def test_labels_of_minus_one_are_values(loss):
    t = trained_beside_keras(dense_model(1, "tanh"), {"x": X, "label": Y * 2 - 1}, loss)
    assert "rmse" in t.evaluate(bd.data.arrays(x=X, label=Y * 2 - 1).batch(16))


def test_a_loss_that_is_not_reduced_is_refused():
    with pytest.raises(bd.InvalidArgument, match="reduction=None, of which Keras trains the sum"):
        bd.Trainer(bd.io.keras(dense_model(), loss=keras.losses.MeanSquaredError(reduction=None)),
                   bd.data.arrays(x=X, label=Y).batch(16), bd.optim.SGD(0.1))


def test_rows_have_weights():
    weights = np.random.default_rng(3).random(96).astype(np.float32) * 2
    m = dense_model()
    data = bd.data.arrays(x=X, label=Y, weight=weights).batch(16, shuffle=False)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    t = bd.Trainer(bd.io.keras(m, loss=loss, weight="weight"), data, bd.optim.SGD(0.1))
    losses = t.fit(steps=6)["loss"]
    m.compile(keras.optimizers.SGD(0.1), loss)
    for step, mine in enumerate(losses):
        at = slice(16 * step, 16 * step + 16)
        m.reset_metrics()
        assert mine == pytest.approx(float(m.train_on_batch(X[at], Y[at], sample_weight=weights[at])), rel=1e-5)
    with pytest.raises(bd.InvalidArgument, match="a column 'weight', which the model does not read: .*weight=\"weight\""):
        bd.Trainer(bd.io.keras(m, loss=loss), data, bd.optim.SGD(0.1))
    with pytest.raises(bd.InvalidArgument, match="weight: the data has no column 'w'"):
        bd.Trainer(bd.io.keras(m, loss=loss, weight="w"), data, bd.optim.SGD(0.1))


def test_texts_of_files_are_columns(tmp_path):
    rng = np.random.default_rng(5)
    city = np.array(["red", "green", "bl\"ue", "dark, grey", ""])[rng.integers(0, 5, 64)]
    tags = ["|".join(words(1, n, rng)[0]) for n in rng.integers(1, 5, 64)]
    age, label = rng.standard_normal(64).astype(np.float32), rng.integers(0, 2, 64)
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["label", "city", "tags", "age"])
        lines.writerows([y, c, t, repr(float(a))] for y, c, t, a in zip(label, city, tags, age))
    keras.utils.set_random_seed(4)
    inputs = [keras.Input([], dtype="string", name="city"), keras.Input([3], dtype="string", name="tags"),
              keras.Input([1], name="age")]
    lookup = keras.layers.StringLookup(vocabulary=["red", "green", "dark, grey", "blue"])
    x = keras.layers.Concatenate()([keras.layers.Embedding(5, 3)(lookup(inputs[0])), inputs[2],
                                    keras.layers.Flatten()(keras.layers.Embedding(5, 2)(lookup(inputs[1])))])
    m, col = keras.Model(inputs, keras.layers.Dense(1)(x)), bd.data.col
    files = bd.data.csv(tmp_path / "rows.csv", [col.label("label"), col.text("city"), col.text("tags", length=3),
                                                col.numeric("age", output="age")])
    listed = np.array([(each.split("|") + ["", ""])[:3] for each in tags], dtype=object)
    arrays = bd.data.arrays(city=city.astype(object), tags=listed, age=age[:, None], label=label.astype(np.float32))
    made = [bd.Trainer(bd.io.keras(m, loss="mse"), data.batch(16, shuffle=False), bd.optim.SGD(0.1)) for data in (files, arrays)]
    assert made[0].fit(steps=4)["loss"] == made[1].fit(steps=4)["loss"]
    np.testing.assert_array_equal(made[0].predict(files), made[1].predict(arrays))
    with pytest.raises(bd.InvalidArgument, match="column 'city' is text, which models of bd.io take"):
        bd.Trainer(lambda x, training: None, files.batch(16), bd.optim.SGD(0.1))


def test_a_single_input_has_the_column_that_is_no_label():
    keras.utils.set_random_seed(3)
    m = keras.Sequential([keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    m.build((None, 6))
    data = {"clicks": np.random.default_rng(0).standard_normal((64, 6)).astype(np.float32), "label": np.zeros((64, 1), np.float32)}
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    expected = float(loss(data["label"], m(data["clicks"])))
    t = bd.Trainer(bd.io.keras(m, loss=loss), bd.data.arrays(**data).batch(64), bd.optim.SGD(0.1))
    assert t.fit(steps=1)["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_columns_that_are_missing_are_told_with_what_names_them():
    data = arrays()
    data["target"] = data.pop("label")
    with pytest.raises(bd.InvalidArgument, match=r"no column 'label': it has .*bd.io.keras\(model, ...\): label= names"):
        bd.Trainer(bd.io.keras(model(), loss="mse"), bd.data.arrays(**data).batch(64), bd.optim.SGD(0.1))
    data["clicks"] = data.pop("dense")
    with pytest.raises(bd.InvalidArgument, match=r"no column 'dense': it has .*bd.io.keras\(model, ...\): inputs=\[...\] names"):
        bd.Trainer(bd.io.keras(model(), loss="mse", label="target"), bd.data.arrays(**data).batch(64), bd.optim.SGD(0.1))
