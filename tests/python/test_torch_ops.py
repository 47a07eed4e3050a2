"""Layers and functions of PyTorch (torch_op_models.py), and its losses, trained as PyTorch trains them; what is refused."""

import importlib.util
import os
import sys

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import braid as bd
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(__file__))
import torch_op_models

BATCH, STEPS = 16, 8
FUNCTIONS = {"cross_entropy": F.cross_entropy, "mse_loss": F.mse_loss}


def arrays_of(columns):
    rng, rows, made = np.random.default_rng(3), BATCH * STEPS, {}
    for name, (shape, kind) in columns.items():
        if kind == "float":
            made[name] = rng.standard_normal((rows, *shape)).astype(np.float32)
        elif kind == "label":
            made[name] = rng.integers(0, 2, (rows, *shape)).astype(np.float32)
        else:
            made[name] = rng.integers(0, kind, (rows, *shape))
    return made


def trainer(model, data, loss):
    rows = torch.export.Dim("rows", min=4)
    inputs = tuple(torch.from_numpy(value[:BATCH]) for name, value in data.items() if name != "label")
    program = torch.export.export(model, inputs, dynamic_shapes=tuple({0: rows} for _ in inputs))
    source = bd.io.torch(program, loss=loss)
    return source, bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.01))


def trained_by_pytorch(model, data, loss):
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], 0.01)
    losses = []
    for step in range(STEPS):
        at = {name: torch.from_numpy(value[step * BATCH:(step + 1) * BATCH]) for name, value in data.items()}
        label = at.pop("label")
        optimizer.zero_grad()
        value = FUNCTIONS.get(loss, loss)(model(*at.values()), label)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def compare(make, columns, loss):
    torch.manual_seed(1)
    model, data = make().train(), arrays_of(columns)
    begin = {key: value.clone() for key, value in model.state_dict().items()}
    source, t = trainer(model, data, loss)
    losses = t.fit(steps=STEPS)["loss"]
    model.load_state_dict(begin)
    np.testing.assert_allclose(losses, trained_by_pytorch(model, data, loss), rtol=1e-5)
    trained = {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(begin)
    source.write_back(model)
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            np.testing.assert_allclose(value.numpy(), trained[key].numpy(), rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", torch_op_models.MODELS)
def test_trains_as_pytorch_does(name):
    compare(*torch_op_models.MODELS[name])


def head(width):
    return lambda: nn.Sequential(nn.Linear(6, width))


VALUES, ANSWERS, CLASS = {"label": ((3,), "float")}, {"label": ((3,), "label")}, {"label": ((), 3)}
SIGN = {"label": ((), "label")}
WEIGHTS = torch.tensor([0.2, 1.0, 2.0])
LOSSES = {
    "nll": (CLASS, 3, lambda o, y: F.nll_loss(F.log_softmax(o, 1), y, weight=WEIGHTS)),
    "cross_entropy": (CLASS, 3, lambda o, y: F.cross_entropy(o, y, weight=WEIGHTS, label_smoothing=0.1, ignore_index=1)),
    "kl": (VALUES, 3, lambda o, y: F.kl_div(F.log_softmax(o, 1), F.softmax(y, 1), reduction="batchmean")),
    "kl_of_logs": (VALUES, 3, lambda o, y: F.kl_div(F.log_softmax(o, 1), F.log_softmax(y, 1), reduction="batchmean", log_target=True)),
    "huber": (VALUES, 3, lambda o, y: F.huber_loss(o, y, delta=0.5) + F.smooth_l1_loss(o, y, beta=0.3) + F.l1_loss(o, y)),
    "poisson": (ANSWERS, 3, lambda o, y: F.poisson_nll_loss(o, y) + F.poisson_nll_loss(o, y, full=True)),
    "margins": (CLASS, 3, lambda o, y: F.multi_margin_loss(o, y)),
    "signs": (ANSWERS, 3, lambda o, y: F.soft_margin_loss(o, y * 2 - 1) + F.hinge_embedding_loss(o, y * 2 - 1)),
    "labels": (ANSWERS, 3, lambda o, y: F.multilabel_soft_margin_loss(o, y) + F.binary_cross_entropy(torch.sigmoid(o), y)),
    "weighted": (ANSWERS, 3, lambda o, y: F.binary_cross_entropy_with_logits(o, y, pos_weight=WEIGHTS)),
    "cosine": (SIGN, 6, lambda o, y: F.cosine_embedding_loss(o[:, :3], o[:, 3:], y * 2 - 1, margin=0.1)),
    "ranking": (SIGN, 2, lambda o, y: F.margin_ranking_loss(o[:, 0], o[:, 1], y * 2 - 1, margin=0.2)),
    "triplet": (VALUES, 3, lambda o, y: F.triplet_margin_loss(o, y, y.flip(1))),
    "sum": (VALUES, 3, lambda o, y: F.mse_loss(o, y, reduction="sum") * 0.05),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    label, width, loss = LOSSES[name]
    compare(head(width), {"input": ((6,), "float"), **label}, loss)


class Noisy(nn.Module):
    """What is drawn differs from PyTorch; its share and its mean do not."""

    def forward(self, x):
        drawn = [torch.randn_like(x), torch.rand_like(x), torch.bernoulli(torch.full_like(x, 0.3)),
                 F.gumbel_softmax(x, tau=0.5), F.rrelu(-torch.ones_like(x), training=True)]
        return torch.stack(drawn, 1).mean((0, 2)).expand(x.shape[0], 5) + 0 * self.scale

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))


def test_random_numbers_have_their_distributions():
    data = {"x": np.zeros((64, 4096), np.float32), "label": np.zeros((64, 5), np.float32)}
    program = torch.export.export(Noisy().train(), (torch.zeros(64, 4096),), dynamic_shapes=({0: torch.export.Dim("rows", min=4)},))
    t = bd.Trainer(bd.io.torch(program, loss="mse_loss"), bd.data.arrays(**data).batch(64), bd.optim.SGD(0.1))
    t.fit(steps=1)
    means = np.asarray(t.predict({"x": data["x"]}, "value"))[0]
    # the slope of RReLU is the mean one where the model predicts
    np.testing.assert_allclose(means, [0.0, 0.5, 0.3, 1 / 4096, -(1 / 8 + 1 / 3) / 2], atol=0.01)


class Renormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 6, max_norm=1.0)

    def forward(self, tokens):
        return self.table(tokens).sum(1)


class Inverted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 9)

    def forward(self, dense):
        return torch.linalg.inv(self.a(dense).unflatten(1, (3, 3)) + torch.eye(3)).flatten(1)


@pytest.mark.parametrize("make, columns, says", [
    (Renormed, {"tokens": ((7,), 30), "label": ((6,), "float")}, "max_norm changes rows as they are read"),
    (Inverted, {"dense": ((6,), "float"), "label": ((9,), "float")}, "decompositions of matrices are not computed"),
])
def test_what_has_no_rule_is_refused_with_what_to_write(make, columns, says):
    with pytest.raises(bd.InvalidArgument, match=says):
        trainer(make().train(), arrays_of(columns), "mse_loss")
