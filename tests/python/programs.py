"""Models and data that several tests use."""

import numpy as np

import braid as bd


def click_arrays(rows=512, seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, 4)).astype(np.float32)
    ids = rng.integers(0, 50, size=(rows, 3))
    logit = dense @ np.array([1.0, -2.0, 0.5, 0.0], np.float32) + (ids[:, 0] % 2) * 2.0 - 1.0
    label = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return dict(dense=dense, ids=ids, label=label)


def net(x, training):
    """The study's first program: two branches on two streams, dropout in training."""
    with bd.stream(1):
        wide = bd.nn.dense(x["dense"], 1, name="wide")
    with bd.stream(0):
        deep = bd.nn.mlp(bd.nn.embed(x["ids"], 50, 8, sparse=True), [16, 8], dropout=0.1 * training)
    logit = bd.ops.squeeze(wide + bd.nn.dense(deep, 1, name="head"), [-1], name="logit")
    return bd.Outputs(loss=bd.losses.sigmoid(logit, x["label"]), prediction=logit)


def plain_net(x, training):
    """Without random numbers."""
    deep = bd.nn.mlp(bd.nn.embed(x["ids"], 50, 8, sparse=True), [16, 8])
    logit = bd.ops.squeeze(bd.nn.dense(x["dense"], 1) + bd.nn.dense(deep, 1, name="head"), [-1], name="logit")
    return bd.Outputs(loss=bd.losses.sigmoid(logit, x["label"]), prediction=logit)


def trainer(model=net, rows=512, batch=64, optimizer=None, **settings):
    data = bd.data.arrays(**click_arrays(rows)).batch(batch)
    return bd.Trainer(model, data, optimizer or bd.optim.Adam(0.01), **settings)
