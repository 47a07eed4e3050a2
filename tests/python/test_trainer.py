"""Trainer: fit beside `braid train`, resumed runs, single steps, forward passes."""

import filecmp
import json
import os
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import braid as bd
import programs

BRAID = os.environ.get("BRAID_BINARY", "braid")


def braid_train(job, *more):
    folder = os.path.dirname(job)
    done = subprocess.run([BRAID, "train", "--job", job, "--data-dir", folder, *more], capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1].removeprefix("result: "))


def exported(checkpoint, out):
    subprocess.run([BRAID, "ckpt", "export", str(checkpoint), "--out", str(out)], check=True, capture_output=True)
    with np.load(out) as values:
        return {name: values[name] for name in values.files}


def test_fit_learns_and_predicts():
    t = programs.trainer(streams=2, metric="AUC")
    history = t.fit(epochs=20)
    assert len(history["loss"]) == 160 and np.mean(history["loss"][-8:]) < 0.7 * np.mean(history["loss"][:8])
    test = bd.data.arrays(**programs.click_arrays(256, seed=1))
    assert t.evaluate(test)["auc"] > 0.75
    predicted = t.predict(test)
    assert predicted.shape == (256,) and ((predicted > 0) & (predicted < 1)).all()
    features = {name: value for name, value in programs.click_arrays(8).items() if name != "label"}
    assert t.predict(features).shape == (8,)
    assert t.variables["wide/kernel"].shape == (4, 1)


def test_labels_of_integers_and_bools_are_those_of_floats():
    arrays, seen = programs.click_arrays(), []
    for kind in (np.float32, np.int64, bool):
        data = bd.data.arrays(**{**arrays, "label": arrays["label"].astype(kind)})
        t = bd.Trainer(programs.plain_net, data.batch(64), bd.optim.Adam(0.01))
        seen.append((t.fit(steps=8)["loss"], t.evaluate(data), t.predict(data).tolist()))
    assert seen[0] == seen[1] == seen[2] and "auc" in seen[0][1]


def test_a_regression_predicts_values():
    x = np.random.default_rng(0).normal(size=(512, 2)).astype("f4")
    target = 3 * x[:, 0] - 2 * x[:, 1] + 5

    def net(x, training):
        value = bd.ops.squeeze(bd.nn.dense(x["x"], 1), [-1], name="value")
        return bd.Outputs(loss=bd.ops.reduce_mean((value - x["label"]) ** 2), prediction=value)

    data = bd.data.arrays(x=x, label=target)
    t = bd.Trainer(net, data.batch(64), bd.optim.Adam(0.2))
    t.fit(epochs=20)
    assert t.evaluate(data)["rmse"] < 0.1
    np.testing.assert_allclose(t.predict(data), target, atol=0.3)


@pytest.mark.parametrize("metric", ["RMSE", None])
def test_a_metric_of_values_says_what_the_loss_does_not(metric):
    def net(x, training):
        value = bd.ops.squeeze(bd.nn.dense(x["dense"], 1), [-1], name="value")
        return bd.Outputs(loss=bd.ops.reduce_mean(bd.ops.exp(value) - x["label"] * value), prediction=value)

    data = bd.data.arrays(dense=programs.click_arrays()["dense"], label=np.arange(512.0) % 5)
    t = bd.Trainer(net, data.batch(64), bd.optim.SGD(0.01), **({"metric": metric} if metric else {}))
    if metric:
        t.fit(steps=2)
        assert "rmse" in t.evaluate(data)
    else:
        with pytest.raises(bd.InvalidArgument, match="say evaluation.metric RMSE"):
            t.fit(steps=2)


def test_labels_that_are_no_probabilities_are_refused():
    data = bd.data.arrays(**{**programs.click_arrays(), "label": np.full(512, 2.0)})
    with pytest.raises(bd.InvalidArgument, match="column 'label' has the label 2 in row 1, but"):
        bd.Trainer(programs.plain_net, data.batch(64), bd.optim.Adam(0.01)).fit(steps=1)


def test_labels_of_one_column_mean_what_flat_ones_do():
    arrays = programs.click_arrays()

    def net(x, training):
        logit = bd.nn.dense(x["dense"], 1, name="logit")
        return bd.Outputs(loss=bd.losses.sigmoid(logit, x["label"]), prediction=logit)

    seen = []
    for label in (arrays["label"], arrays["label"][:, None]):
        data = bd.data.arrays(dense=arrays["dense"], label=label)
        t = bd.Trainer(net, data.batch(64), bd.optim.Adam(0.1))
        t.fit(steps=8)
        seen.append((t.evaluate(data), np.ravel(t.predict(data)).tolist()))
    assert seen[0] == seen[1] and seen[0][0]["auc"] > 0.5


def test_fit_refuses_less_than_nothing():
    for asked in (dict(steps=-1), dict(epochs=-0.5), dict(epochs=float("nan"))):
        with pytest.raises(bd.InvalidArgument, match="a number of at least 0"):
            programs.trainer().fit(**asked)


def test_a_setting_says_nothing_of_other_fields(capfd):
    t = programs.trainer(set=["optimizer.learning_rate=0.25"])
    assert "learning_rate: 0.25" in t.job
    t.fit(steps=2)
    assert "has no effect" not in capfd.readouterr().err


def test_fit_and_the_job_give_equal_bits(tmp_path):
    t = programs.trainer(streams=2, checkpoint=str(tmp_path / "python"))
    job = t.save_job(tmp_path / "job", steps=40)
    history = t.fit(steps=40)
    result = braid_train(job, "--set", f"checkpoint.directory={tmp_path / 'binary'}")
    assert result["loss"] == history.result["loss"] and result["last_step"] == 40
    mine, theirs = (exported(tmp_path / each, tmp_path / f"{each}.npz") for each in ("python", "binary"))
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
    for name, value in t.variables.items():
        if name in theirs:
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_a_stopped_run_resumes_with_equal_bits(tmp_path):
    whole = programs.trainer().fit(steps=40)

    class StopAt(bd.callbacks.Callback):
        def on_step(self, step, loss, seconds):
            if step == 14:
                raise bd.callbacks.Stop

    first = programs.trainer(checkpoint=str(tmp_path)).fit(steps=40, callbacks=[StopAt()])
    assert 15 <= len(first["loss"]) < 40
    second = programs.trainer(checkpoint=str(tmp_path)).fit(steps=40, resume=True)
    assert first["loss"] + second["loss"] == whole["loss"]


def test_a_run_with_another_seed_resumes_when_that_is_meant(tmp_path):
    programs.trainer(checkpoint=str(tmp_path)).fit(steps=10)
    other = programs.trainer(checkpoint=str(tmp_path), seed=99)
    with pytest.raises(bd.InvalidArgument, match='seed was .* and is 99.*fit\\(resume="changed"\\)'):
        other.fit(steps=20, resume=True)
    history = programs.trainer(checkpoint=str(tmp_path), seed=99).fit(steps=20, resume="changed")
    assert len(history["loss"]) == 10 and history.result["last_step"] == 20


def test_two_fits_are_one():
    whole = programs.trainer().fit(steps=30)
    t = programs.trainer()
    assert t.fit(steps=12)["loss"] + t.fit(steps=18)["loss"] == whole["loss"]


def test_two_fits_with_checkpoints_are_one(tmp_path):
    whole = programs.trainer().fit(steps=20)
    t = programs.trainer(checkpoint=str(tmp_path))
    assert t.fit(steps=8)["loss"] + t.fit(steps=12)["loss"] == whole["loss"]
    with pytest.raises(bd.InvalidArgument):
        programs.trainer(checkpoint=str(tmp_path)).fit(steps=1)  # another run's checkpoints


def test_single_steps_have_the_bits_of_fit():
    arrays = programs.click_arrays(64)
    data = bd.data.arrays(**arrays).batch(64, shuffle=False)
    expected = bd.Trainer(programs.net, data, bd.optim.Adam(0.01)).fit(steps=10)["loss"]
    t = bd.Trainer(programs.net, data, bd.optim.Adam(0.01))
    assert [t.step(arrays).loss for _ in range(10)] == expected
    with pytest.raises(bd.InvalidArgument, match="'dense' must be"):
        t.step({**arrays, "dense": arrays["dense"][:3]})
    assert t.fit(steps=1)["loss"] and t.step(arrays).step == 11


def test_evaluations_and_callbacks(tmp_path):
    arrays = programs.click_arrays()
    data = bd.data.arrays(**arrays).batch(64)
    t = bd.Trainer(programs.net, data, bd.optim.Adam(0.01), eval_data=bd.data.arrays(**programs.click_arrays(128, 1)),
                   evaluate_every=10, metric="AUC")
    history = t.fit(steps=40, callbacks=[bd.callbacks.CSVLog(tmp_path / "log.csv", every=5),
                                         bd.callbacks.TensorBoard(tmp_path / "board", every=5)])
    assert [done for done, _ in history["evaluations"]] == [10, 20, 30, 40]
    assert history.result["auc"] == history["evaluations"][-1][1]["auc"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 9
    assert any((tmp_path / "board").iterdir())


def test_save_and_load(tmp_path):
    t = programs.trainer()
    t.fit(steps=10)
    t.save(tmp_path / "model")
    other = programs.trainer()
    other.load(tmp_path / "model")
    rows = bd.data.arrays(**programs.click_arrays(32, 3))
    np.testing.assert_array_equal(t.predict(rows), other.predict(rows))
    assert t.fit(steps=5)["loss"] == other.fit(steps=5)["loss"]


def test_csv_files(tmp_path):
    arrays = programs.click_arrays(200)
    with open(tmp_path / "rows.csv", "w") as out:
        out.write("age,city,clicked\n")
        for i in range(200):
            out.write(f"{arrays['dense'][i, 0]:.4f},c{arrays['ids'][i, 0]},{int(arrays['label'][i])}\n")
    c = bd.data.col
    data = bd.data.csv(tmp_path / "rows.csv", [c.numeric("age"), c.categorical("city", buckets=20),
                                               c.label("clicked", positive="1")]).batch(50)

    def model(x, training):
        logit = bd.nn.dense(x["dense"], 1) + bd.nn.embed(x["sparse"], 20, 1)
        logit = bd.ops.squeeze(logit, [-1], name="logit")
        return bd.Outputs(bd.losses.sigmoid(logit, x["label"]), logit)

    t = bd.Trainer(model, data, bd.optim.Adagrad(0.1))
    history = t.fit(epochs=5)
    assert len(history["loss"]) == 20
    job = t.save_job(tmp_path / "job", epochs=5)
    assert braid_train(job)["loss"] == history.result["loss"]


def test_batch_norm_updates(tmp_path):
    def model(x, training):
        h, updates = bd.nn.batch_norm(bd.nn.dense(x["dense"], 8), training)
        logit = bd.ops.squeeze(bd.nn.dense(bd.ops.relu(h), 1, name="head"), [-1], name="logit")
        return bd.Outputs(bd.losses.sigmoid(logit, x["label"]), logit, updates)

    data = bd.data.arrays(**{k: v for k, v in programs.click_arrays().items() if k != "ids"}).batch(64)
    t = bd.Trainer(model, data, bd.optim.Adam(0.01))
    t.fit(steps=20)
    assert np.abs(t.variables["batch_norm/moving_mean"]).max() > 0
    assert t.predict(data).shape == (512,)


def test_a_graph_of_another_program(tmp_path):
    with bd.Graph() as graph:
        x, y = bd.placeholder("dense", [None, 4]), bd.placeholder("truth", [None])
        logit = bd.ops.squeeze(bd.nn.dense(x, 1), [-1], name="logit")
        loss = bd.ops.identity(bd.losses.sigmoid(logit, y), name="loss")
        graph.write(tmp_path / "model.pb")
    source = bd.io.graph(tmp_path / "model.pb", loss="loss", prediction="logit", feeds={"label": "truth"})
    arrays = programs.click_arrays()
    del arrays["ids"]
    t = bd.Trainer(source, bd.data.arrays(**arrays).batch(64), bd.optim.Adam(0.05))
    history = t.fit(steps=40)
    assert history["loss"][-1] < history["loss"][0]
    source.write_back(tmp_path / "out.npz")
    assert set(np.load(tmp_path / "out.npz").files) >= {"dense/kernel", "dense/bias"}


def test_a_model_that_asks_for_a_missing_column():
    with pytest.raises(bd.InvalidArgument, match="no column 'agee'"):
        programs.trainer(lambda x, training: bd.Outputs(bd.ops.reduce_mean(x["agee"])))


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import braid as bd, programs
class Kill(bd.callbacks.Callback):
    def on_step(self, step, loss, seconds):
        if step == 26: os.kill(os.getpid(), signal.SIGKILL)
programs.trainer(checkpoint=bd.Checkpoint({checkpoint!r}, every_steps=10)).fit(steps=40, callbacks=[Kill()])
"""


def test_a_killed_run_resumes_with_equal_bits(tmp_path):
    text = KILLED.format(folder=os.path.dirname(__file__), checkpoint=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=120)
    assert killed.returncode == -9, killed.stderr
    whole = programs.trainer()
    expected = whole.fit(steps=40)["loss"]
    t = programs.trainer(checkpoint=bd.Checkpoint(str(tmp_path), every_steps=10))
    assert t.fit(steps=40, resume=True)["loss"] == expected[20:]
    for name, value in whole.variables.items():
        np.testing.assert_array_equal(t.variables[name], value, err_msg=name)


def test_a_trainer_trains_once_at_a_time():
    t = programs.trainer()
    errors = []

    class Again(bd.callbacks.Callback):
        def on_step(self, step, loss, seconds):
            try:
                t.fit(steps=1)
            except bd.InvalidArgument as error:
                errors.append(str(error))

    assert len(t.fit(steps=3, callbacks=[Again()])["loss"]) == 3
    assert errors and "trains already" in errors[0]
    assert len(t.fit(steps=1)["loss"]) == 1


def test_batches_that_are_none_are_named():
    t = programs.trainer()
    with pytest.raises(bd.InvalidArgument, match="no column '.+': it has none"):
        t.step({})
    for rows in (1.5, "64"):
        with pytest.raises(bd.InvalidArgument, match="rows must be an integer"):
            t.data.batch(rows)
