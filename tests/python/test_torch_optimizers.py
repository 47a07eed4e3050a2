"""PyTorch's optimizers and schedulers with a Trainer, beside PyTorch's own training."""

import copy
import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import braid as bd
import torch
from torch import nn
from torch.optim import lr_scheduler as S

ROWS, STEPS = 16, 20
RNG = np.random.default_rng(7)
X = RNG.standard_normal((ROWS * STEPS, 8)).astype(np.float32)
Y = RNG.integers(0, 2, ROWS * STEPS).astype(np.float32)
LOSS = nn.functional.binary_cross_entropy_with_logits


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def trainer(module, optimizer, schedule=None):
    rows = torch.export.Dim("rows")
    program = torch.export.export(module.train(), (torch.from_numpy(X[:ROWS]),), dynamic_shapes=({0: rows},))
    return bd.Trainer(bd.io.torch(program, loss="binary_cross_entropy_with_logits", inputs={"input": "x"}),
                      bd.data.arrays(x=X, label=Y).batch(ROWS, shuffle=False), optimizer, schedule=schedule)


O = torch.optim
CASES = {
    "nesterov and decay": (lambda n: O.SGD(n.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.05), None, 1),
    "adam": (lambda n: O.Adam(n.parameters(), 0.01, weight_decay=0.1), None, 1),
    "adagrad": (lambda n: O.Adagrad(n.parameters(), 0.05, initial_accumulator_value=0.1), None, 1),
    "groups": (lambda n: O.SGD([{"params": n[0].parameters(), "lr": 0.01}, {"params": [n[2].weight], "weight_decay": 0.3},
                                {"params": [n[2].bias], "lr": 0.2}], 0.1), lambda o: S.StepLR(o, 7, 0.5), 1),
    "decay of weights alone": (lambda n: O.AdamW([{"params": [n[0].weight, n[2].weight], "weight_decay": 0.3},
                                                  {"params": [n[0].bias, n[2].bias], "weight_decay": 0.0}], 0.01), None, 1),
    "one cycle": (lambda n: O.SGD(n.parameters(), 0.1, momentum=0.9),
                  lambda o: S.OneCycleLR(o, 0.2, total_steps=20, cycle_momentum=False), 1),
    "one after another": (lambda n: O.SGD(n.parameters(), 0.1),
                          lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 5), S.ExponentialLR(o, 0.9)], [5]), 1),
    "each fourth step": (lambda n: O.SGD(n.parameters(), 0.1), lambda o: S.CosineAnnealingLR(o, 5), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_an_optimizer_of_pytorch_trains_as_in_pytorch(name):
    optimizer, scheduler, every = CASES[name]
    module = net()
    given = optimizer(module)
    schedule = scheduler(given) if scheduler else None
    t = trainer(module, given, bd.optim.schedule(schedule, every) if every > 1 else schedule)
    losses = t.fit(steps=STEPS)["loss"]
    beside = copy.deepcopy(net())
    own = optimizer(beside)
    steps, expected = scheduler(own) if scheduler else None, []
    for step in range(STEPS):
        at = slice(step * ROWS, (step + 1) * ROWS)
        own.zero_grad()
        loss = LOSS(beside(torch.from_numpy(X[at])), torch.from_numpy(Y[at])[:, None])
        loss.backward()
        own.step()
        expected.append(loss.item())
        if steps is not None and (step + 1) % every == 0:
            steps.step()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    t.source.write_back(module)
    for mine, theirs in zip(module.parameters(), beside.parameters()):
        np.testing.assert_allclose(mine.detach(), theirs.detach(), atol=1e-4)


def test_a_part_of_the_parameters_is_trained_where_the_others_are_frozen():
    module = net()
    begin = copy.deepcopy(module.state_dict())
    module[0].requires_grad_(False)
    t = trainer(module, O.SGD(module[2].parameters(), 0.1))
    t.fit(steps=4)
    t.source.write_back(module)
    assert {name: bool((value != begin[name]).any()) for name, value in module.state_dict().items()} == {
        "0.weight": False, "0.bias": False, "2.weight": True, "2.bias": True}


@pytest.mark.parametrize("optimizer, scheduler, what", [
    (lambda n: O.NAdam(n.parameters()), None, "NAdam has no counterpart: one of SGD"),
    (lambda n: O.RMSprop(n.parameters()), None, "RMSprop has no counterpart"),
    (lambda n: O.Adam(n.parameters(), amsgrad=True), None, "amsgrad=True"),
    (lambda n: O.Adam(n.parameters(), eps=1e-3), None, "adds it behind the correction of the bias"),
    (lambda n: O.SGD([{"params": net().parameters()}, {"params": net().parameters()}], 0.1), None, "none of the program"),
    (lambda n: O.SGD(n[2].parameters(), 0.1), None, r"does not hold parameter '0.weight', .* freeze='0"),
    (lambda n: O.SGD(n.parameters(), 0.1), S.ReduceLROnPlateau, "follows from evaluations"),
    (lambda n: O.SGD(n.parameters(), 0.1, momentum=0.9), lambda o: S.CyclicLR(o, 0.01, 0.1, 4), "changes the momentum"),
])
def test_what_has_no_counterpart_is_refused(optimizer, scheduler, what):
    module = net()
    given = optimizer(module)
    with pytest.raises(bd.InvalidArgument, match=what):
        trainer(module, given, scheduler(given) if scheduler else None).fit(steps=8)
