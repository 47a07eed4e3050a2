"""Keras' optimizers, schedules and callbacks with a Trainer, beside Keras' own training."""

import csv
import importlib.util
import os
import warnings

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import braid as bd
import keras

ROWS, STEPS = 16, 20
RNG = np.random.default_rng(7)
X = RNG.standard_normal((ROWS * STEPS, 8)).astype(np.float32)
Y = (X[:, 0] + 0.5 * RNG.standard_normal(ROWS * STEPS) > 0).astype(np.float32)
V = RNG.standard_normal((90, 8)).astype(np.float32)
VY = (V[:, 0] > 0).astype(np.float32)
LOSS = keras.losses.BinaryCrossentropy(from_logits=True)
O, S, K = keras.optimizers, keras.optimizers.schedules, keras.callbacks


def model(optimizer=None, metrics=None):
    keras.utils.set_random_seed(3)
    x = keras.Input([8], name="x")
    made = keras.Model(x, keras.layers.Dense(1, name="last")(keras.layers.Dense(8, "tanh", name="first")(x)))
    if optimizer is not None:
        made.compile(optimizer, LOSS, metrics=metrics)
    return made


def trainer(made, optimizer=None, **settings):
    return bd.Trainer(bd.io.keras(made, loss=None if optimizer is None else LOSS),
                      bd.data.arrays(x=X, label=Y).batch(ROWS, shuffle=False), optimizer,
                      eval_data=bd.data.arrays(x=V, label=VY).batch(ROWS), **settings)


# --------------------------------------------------------------------------------------------- optimizers, schedules
class Halves(S.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (1.0 + keras.ops.cast(step, "float32"))

    def get_config(self):
        return {}


def without_decay_of_biases():
    made = O.AdamW(0.01, weight_decay=0.2)
    made.exclude_from_weight_decay(var_names=["bias"])
    return made


OPTIMIZERS = {
    "sgd with decay": lambda: O.SGD(0.05, weight_decay=0.1),
    "nesterov": lambda: O.SGD(0.05, momentum=0.9, nesterov=True),
    "adam, clipped": lambda: O.Adam(0.01, beta_1=0.8, global_clipnorm=0.05),
    "adamw without decay of biases": without_decay_of_biases,
    "adagrad": lambda: O.Adagrad(0.05, epsilon=1e-3),
    "centered": lambda: O.RMSprop(0.01, centered=True, momentum=0.5, clipvalue=0.02),
    "ftrl": lambda: O.Ftrl(0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.01, beta=0.1),
    "loss scale": lambda: O.LossScaleOptimizer(O.SGD(0.1)),
    "exponential": lambda: O.SGD(S.ExponentialDecay(0.1, 7, 0.5)),
    "exponential in stairs": lambda: O.Adam(S.ExponentialDecay(0.05, 7, 0.5, staircase=True)),
    "cosine": lambda: O.Adam(S.CosineDecay(0.05, 15, alpha=0.1)),
    "cosine behind a warm-up": lambda: O.Adam(S.CosineDecay(0.0, 10, warmup_target=0.05, warmup_steps=5)),
    "polynomial": lambda: O.SGD(S.PolynomialDecay(0.1, 6, 0.01, power=2.0, cycle=True)),
    "piecewise": lambda: O.RMSprop(S.PiecewiseConstantDecay([4, 9], [0.01, 0.005, 0.001])),
    "of its own": lambda: O.SGD(Halves()),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_of_keras_trains_as_in_keras(name):
    made = model(OPTIMIZERS[name]())
    begin = made.get_weights()
    t = trainer(made)
    losses = t.fit(steps=STEPS)["loss"]
    made.set_weights(begin)
    expected = []
    for step in range(STEPS):
        made.reset_metrics()
        at = slice(step * ROWS, (step + 1) * ROWS)
        expected.append(float(made.train_on_batch(X[at], Y[at])))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    trained = made.get_weights()
    t.source.write_back()
    for mine, theirs in zip(made.get_weights(), trained):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_single_steps_and_two_runs_have_the_rates_of_one():
    made = model(O.SGD(S.InverseTimeDecay(0.1, 5, 0.5)))
    losses = trainer(made).fit(steps=STEPS)["loss"]
    t = trainer(made)
    assert t.fit(steps=7)["loss"] + t.fit(steps=13)["loss"] == losses
    t = trainer(made)
    parts = [dict(x=X[i:i + ROWS], label=Y[i:i + ROWS]) for i in range(0, ROWS * STEPS, ROWS)]
    first = [t.step(part).loss for part in parts[:9]]
    t._rates_known = 9  # as behind a thousand steps
    assert first + [t.step(part).loss for part in parts[9:]] == losses


def test_a_schedule_is_a_function():
    t = trainer(model(), bd.optim.SGD(0.1), schedule=bd.optim.schedule(lambda number: 0.5 ** number, every="epoch"))
    losses = t.fit(epochs=2)["loss"]
    steps = trainer(model(), bd.optim.SGD(0.1), schedule={"kind": "STEP_DECAY", "factor": 0.5, "every": STEPS})
    assert steps.fit(epochs=2)["loss"] == losses
    with pytest.raises(bd.InvalidArgument, match="the schedule is a function, .* which no job can say"):
        t.save_job("nowhere", steps=1)
    with pytest.raises(bd.InvalidArgument, match="CosineDecay says rates, not factors"):
        trainer(model(), bd.optim.SGD(0.1), schedule=S.CosineDecay(0.1, 9))
    for every in (0, 1.5, "epochs"):
        with pytest.raises(bd.InvalidArgument, match="a number of steps of at least 1"):
            bd.optim.schedule(lambda number: 1.0, every)
    with pytest.raises(bd.InvalidArgument, match="every=2 is of functions and schedulers, not of dict"):
        bd.optim.schedule({"kind": "COSINE_DECAY"}, every=2)


@pytest.mark.parametrize("optimizer, what", [
    (lambda: O.Nadam(0.1), "Nadam has no counterpart: one of SGD, Adam"),
    (lambda: O.Adam(0.1, amsgrad=True), r"Adam\(amsgrad=True\) is not taken"),
    (lambda: O.Adam(0.1, clipnorm=0.1), "clipnorm=0.1.*global_clipnorm"),
    (lambda: O.SGD(0.1, use_ema=True), "use_ema=True"),
    (lambda: O.SGD(0.1, gradient_accumulation_steps=2), "accumulate_steps"),
    (lambda: O.SGD(Halves(), momentum=0.9), "keeps a momentum of steps that are multiplied by their rates"),
    (lambda: O.Ftrl(Halves(), beta=0.1), "does not go with a schedule"),
    (lambda: "adam", "the optimizer is 'adam'"),
])
def test_optimizers_without_a_counterpart_are_refused(optimizer, what):
    with pytest.raises(bd.InvalidArgument, match=what):
        trainer(model(), optimizer())
    with pytest.raises(bd.InvalidArgument, match="there is no optimizer"):
        bd.Trainer(bd.io.keras(model(), loss=LOSS), bd.data.arrays(x=X, label=Y).batch(ROWS))


def test_tables_are_told_whose_other_rows_keras_moves():
    ids = keras.Input([3], dtype="int64", name="ids")
    made = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(9, 2, name="table")(ids))))
    data = bd.data.arrays(ids=RNG.integers(0, 9, (32, 3)), label=Y[:32]).batch(ROWS)
    with pytest.warns(UserWarning, match="'table/embeddings' is a table, .* Keras' Adam moves also the rows"):
        bd.Trainer(bd.io.keras(made, loss=LOSS), data, O.Adam(0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bd.Trainer(bd.io.keras(made, loss=LOSS), data, O.SGD(0.1))


# --------------------------------------------------------------------------------------------------------- callbacks
def both(callbacks, optimizer, epochs=4, metrics=lambda: None):
    """What fit() of a Trainer and of Keras say of each epoch, beside each other, and the models."""
    told, models = [], []
    for is_mine in (True, False):
        made = model(optimizer(), metrics())
        if is_mine:
            t = trainer(made)
            told.append(t.fit(epochs=epochs, callbacks=callbacks(0)).epochs)
            t.source.write_back()
        else:
            told.append(made.fit(X, Y, batch_size=ROWS, shuffle=False, epochs=epochs, callbacks=callbacks(1), verbose=0,
                                 validation_data=(V, VY), validation_batch_size=ROWS).history)
        models.append(made)
    for name in set(told[0]) & set(told[1]):
        np.testing.assert_allclose(told[0][name], told[1][name], rtol=2e-5, err_msg=name)
    for mine, theirs in zip(models[0].get_weights(), models[1].get_weights()):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
    return told[0]


def test_early_stopping_restores_the_best_weights():
    told = both(lambda _: [K.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True, min_delta=0.02)],
                lambda: O.Adam(0.2), epochs=8)
    assert 1 < len(told["val_loss"]) < 8


@pytest.mark.parametrize("optimizer", [lambda: O.Adam(0.05), lambda: O.SGD(0.1, momentum=0.9),
                                       lambda: O.SGD(0.1, momentum=0.8, nesterov=True)])
def test_callbacks_set_the_learning_rate(optimizer):
    told = both(lambda _: [K.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate * 2)], optimizer)
    assert told["learning_rate"][-1] == pytest.approx(told["learning_rate"][0] / 8)


def test_plateaus_lower_the_rate_and_metrics_are_those_of_compile():
    told = both(lambda _: [K.ReduceLROnPlateau(monitor="val_acc", mode="max", factor=0.3, patience=1, min_delta=0.1)],
                lambda: O.RMSprop(0.05), metrics=lambda: [keras.metrics.BinaryAccuracy(name="acc", threshold=0.0)])
    assert told["learning_rate"][-1] < 0.05


def test_checkpoints_logs_and_functions(tmp_path):
    seen = {0: [], 1: []}

    def callbacks(who):
        say = seen[who].append
        return [K.ModelCheckpoint(str(tmp_path / f"{who}.weights.h5"), monitor="val_loss", save_best_only=True,
                                  save_weights_only=True), K.CSVLogger(str(tmp_path / f"{who}.csv")),
                K.LambdaCallback(on_epoch_begin=lambda epoch, logs: say(("begin", epoch)),
                                 on_train_batch_end=lambda batch, logs: say((batch, round(float(logs["loss"]), 4))),
                                 on_train_end=lambda logs: say("end"))]

    both(callbacks, lambda: O.SGD(0.1), epochs=2)
    assert len(seen[0]) == len(seen[1]) == 2 * (STEPS + 1) + 1
    for mine, theirs in zip(seen[0], seen[1]):
        assert mine == theirs if isinstance(mine, str) else mine[0] == theirs[0] and mine[1] == pytest.approx(theirs[1], abs=2e-4)
    lines = [list(csv.DictReader(open(tmp_path / f"{who}.csv"))) for who in (0, 1)]
    assert [float(each["val_loss"]) for each in lines[0]] == pytest.approx([float(each["val_loss"]) for each in lines[1]])
    best = [model(), model()]
    for who, each in enumerate(best):
        each.load_weights(str(tmp_path / f"{who}.weights.h5"))
    for mine, theirs in zip(best[0].get_weights(), best[1].get_weights()):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_without_compile_validation_has_the_trainers_metrics(tmp_path):
    t = trainer(model(), bd.optim.Adam(0.05))
    history = t.fit(epochs=3, callbacks=[K.EarlyStopping(monitor="val_auc", mode="max"), bd.callbacks.CSVLog(tmp_path / "log.csv")])
    assert {"loss", "val_loss", "val_auc"} <= set(history.epochs) and len(history["loss"]) == 3 * STEPS
    assert history.epochs["val_loss"] == pytest.approx(history.epochs["val_log_loss"], rel=1e-5)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3 * STEPS + 1


def test_callbacks_set_the_rate_that_is_trained_with_and_not_the_models():
    t = trainer(model(O.Adam(0.5)), bd.optim.Adam(0.001))
    told = []
    t.fit(epochs=2, callbacks=[K.LearningRateScheduler(lambda epoch, rate: told.append(rate) or rate * 0.5)])
    assert told == pytest.approx([0.001, 0.0005]) and t.optimizer.learning_rate == pytest.approx(0.00025)


@pytest.mark.parametrize("done", [STEPS + 5, 2 * STEPS])
def test_epochs_that_a_checkpoint_has_are_not_trained_again(tmp_path, done):
    def fresh():
        return trainer(model(), bd.optim.SGD(0.1), checkpoint=tmp_path)

    fresh().fit(steps=done)
    t, told = fresh(), []
    history = t.fit(epochs=3, resume=True, callbacks=[K.LambdaCallback(on_epoch_end=lambda epoch, logs: told.append(epoch))])
    assert told == list(range(done // STEPS, 3)) and len(history["loss"]) == 3 * STEPS - done
    assert history["loss"] == trainer(model(), bd.optim.SGD(0.1)).fit(epochs=3)["loss"][done:]


def test_callbacks_of_keras_are_refused_where_they_cannot_be_called():
    with pytest.raises(bd.InvalidArgument, match="count epochs"):
        trainer(model(), bd.optim.SGD(0.1)).fit(steps=3, callbacks=[K.History()])
    with pytest.raises(bd.InvalidArgument, match="count epochs"):
        trainer(model(), bd.optim.SGD(0.1)).fit(epochs=-1, callbacks=[K.History()])
    with pytest.raises(bd.InvalidArgument, match="has set the learning rate, and the Trainer has a schedule"):
        trainer(model(), bd.optim.SGD(0.1), schedule={"kind": "COSINE_DECAY"}).fit(
            epochs=2, callbacks=[K.LearningRateScheduler(lambda epoch: 0.5)])

    def net(x, training):
        return bd.Outputs(bd.losses.sigmoid(bd.ops.squeeze(bd.nn.dense(x["x"], 1), [-1]), x["label"]))

    with pytest.raises(bd.InvalidArgument, match="for models of bd.io.keras"):
        bd.Trainer(net, bd.data.arrays(x=X, label=Y).batch(ROWS), bd.optim.SGD(0.1)).fit(epochs=1, callbacks=[K.History()])
