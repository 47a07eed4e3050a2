"""Ops of one's own from a shared library: functions, gradients, a job that names the library, and refusals."""

import os
import subprocess

import numpy as np
import pytest

import braid as bd

LIBRARY = os.environ.get("BRAID_OWN_OP", "")
pytestmark = pytest.mark.skipif(not os.path.exists(LIBRARY), reason="BRAID_OWN_OP names no built library")


@pytest.fixture(scope="module", autouse=True)
def library():
    assert bd.load_op_library(LIBRARY) == ["Snake"]


def test_the_op_has_a_function_and_a_gradient():
    with bd.Graph():
        x = bd.variable("x", [3], init=("constant", 0.75))
        y = bd.ops.snake(x, alpha=2.0)
        loss = bd.ops.reduce_sum(y)
        slope = bd.gradients(loss)[x]
        with bd.Session() as session:
            value, gradient = session.run([y, slope])
    start = np.full(3, 0.75)
    np.testing.assert_allclose(value, start + np.sin(2 * start) ** 2 / 2, rtol=1e-5)
    np.testing.assert_allclose(gradient, 1 + np.sin(4 * start), rtol=1e-5, atol=1e-6)


def test_a_model_with_it_trains_and_its_job_repeats_the_run(tmp_path):
    random = np.random.default_rng(3)
    x = random.normal(size=(256, 4)).astype(np.float32)
    y = np.sin(3 * x[:, :1]).astype(np.float32)

    def net(columns, training):
        hidden = bd.ops.snake(bd.nn.dense(columns["x"], 16, name="hidden"), alpha=3.0)
        out = bd.nn.dense(hidden, 1, name="out")
        return bd.Outputs(loss=bd.ops.reduce_mean(bd.ops.square(out - columns["y"])), prediction=out)

    trainer = bd.Trainer(net, bd.data.arrays(x=x, y=y).batch(64), bd.optim.Adam(0.02), label="y")
    history = trainer.fit(steps=60)
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    job = bd.Trainer(net, bd.data.arrays(x=x, y=y).batch(64), bd.optim.Adam(0.02), label="y").save_job(
        str(tmp_path), steps=5)
    assert os.path.realpath(LIBRARY) in open(job).read()
    ran = subprocess.run([os.environ["BRAID_BINARY"], "train", "--job", job, "--data-dir", str(tmp_path)],
                         capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "Snake" in ran.stderr + ran.stdout


def test_what_is_none_is_refused(tmp_path):
    other = tmp_path / "other.so"
    other.write_text("no library")
    with pytest.raises(bd.InvalidArgument, match="other.so"):
        bd.load_op_library(other)
