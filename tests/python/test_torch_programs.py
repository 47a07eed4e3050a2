"""Programs of PyTorch as users export them: inputs of all forms, branches, modes, and gradients that torch.export loses."""

import importlib.util
import os
import sys

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import braid as bd
import torch
import torch.utils.checkpoint
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration", "train_any_graph"))
import torch_models
from test_torch import BATCH, DENSE, STEPS, Dense, arrays_of


class Clipped(torch.autograd.Function):
    """A gradient of its own, which an exported program does not have."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    """Gives back what it was given."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def _checkpointed(x, use_reentrant=True):
    return torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=use_reentrant)


def _in_a_branch(x):
    return torch.cond(x.sum() > 0, lambda h: Clipped.apply(h), lambda h: h * 2, (x,))


class Between(nn.Module):
    """A function between two layers; of the data beside them, too."""

    def __init__(self, function, of_data=lambda x: x):
        super().__init__()
        self.first, self.last, self.function, self.of_data = nn.Linear(4, 4), nn.Linear(4, 1), function, of_data

    def forward(self, dense):
        return self.last(self.function(self.first(dense)) + self.of_data(dense)).squeeze(1)


LOST = {"Clipped": (Clipped.apply, "what Clipped computes, but not its backward"),
        "Reversed": (Reversed.apply, "autograd.Function computes, but not its backward"),
        "checkpoint": (_checkpointed, "use_reentrant=False"),
        "in a branch": (_in_a_branch, "(Clipped|autograd.Function) computes, but not its backward")}


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("name", LOST)
def test_gradients_that_export_loses_are_refused_by_name(name, strict):
    if strict and name == "checkpoint":
        pytest.skip("torch.export refuses it by itself")
    function, says = LOST[name]
    program = torch.export.export(Between(function).train(), (torch.randn(4, 4),), strict=strict,
                                  dynamic_shapes=({0: torch.export.Dim("rows")},))
    with pytest.raises(bd.InvalidArgument, match=says) as error:
        bd.Trainer(bd.io.torch(program, loss="binary_cross_entropy_with_logits"),
                   bd.data.arrays(**arrays_of(DENSE)).batch(BATCH), bd.optim.SGD(0.1))
    assert "node '" in str(error.value) and "test_torch_programs.py" in str(error.value)  # the user's line


def test_a_loss_with_a_gradient_of_its_own_is_refused():
    with pytest.raises(bd.InvalidArgument, match="what Clipped computes, but not its backward"):
        trained(Between(torch.tanh), lambda output, label: nn.functional.mse_loss(Clipped.apply(output), label))


def trained(model, loss="binary_cross_entropy_with_logits", columns=DENSE, export=torch_models.exported, call=None, **settings):
    """Losses and predictions beside PyTorch's."""
    torch.manual_seed(1)
    data = arrays_of(columns)
    begin = {key: value.clone() for key, value in model.state_dict().items()}
    source = bd.io.torch(export(model, columns), loss=loss, **settings)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.05))
    losses = t.fit(steps=STEPS)["loss"]
    model.load_state_dict(begin)
    optimizer = torch.optim.SGD(model.train().parameters(), 0.05)
    function = getattr(nn.functional, loss) if isinstance(loss, str) else loss
    for step in range(STEPS):
        batch = {name: torch.from_numpy(value[step * BATCH:(step + 1) * BATCH]) for name, value in data.items()}
        label = batch.pop("label")
        optimizer.zero_grad()
        value = function(call(model, batch) if call else model(*batch.values()), label)
        value.backward()
        optimizer.step()
        np.testing.assert_allclose(losses[step], value.item(), rtol=1e-5)
    rest = {name: torch.from_numpy(value) for name, value in data.items() if name != "label"}
    with torch.no_grad():
        output = call(model.eval(), rest) if call else model.eval()(*rest.values())
    np.testing.assert_allclose(t.predict(data, "logit"), output.numpy(), atol=1e-5)


def test_a_function_of_the_data_alone_and_checkpoints_without_reentry_are_taken():
    trained(Between(lambda x: _checkpointed(x, False), Clipped.apply))


def test_an_inference_program_of_its_own():
    class Asks(Dense):
        def forward(self, dense):
            return super().forward(dense) * (3.0 if self.training else 1.0)

    model, rows = Asks(), torch.export.Dim("rows", min=4)
    evaluated = torch.export.export(model.eval(), (torch.zeros(4, 4),), dynamic_shapes=({0: rows},))
    trained(model, inference=evaluated)


class Parts(nn.Module):
    """A dict of tensors, a pair, an option that is None, a number."""

    def __init__(self):
        super().__init__()
        self.first, self.table, self.last = nn.Linear(4, 4), nn.Embedding(9, 4), nn.Linear(4, 1)

    def forward(self, batch, pair, mask=None, scale=2.0):
        h = torch.relu(self.first(batch["dense"]) * scale) + self.table(batch["ids"]) + pair[0]
        return self.last(h if mask is None else h * mask).squeeze(1)


PARTS = {"dense": ((4,), "float"), "ids": ((), 9), "beside": ((4,), "float"), "unread": ((2,), "float"), "label": ((), "label")}


def _parts_of(batch):
    return {"dense": batch["dense"], "ids": batch["ids"]}, (batch["beside"], batch["unread"])


def _exported_parts(model, columns):
    rows = torch.export.Dim("rows", min=4)
    inputs = dict(zip((name for name in columns if name != "label"), torch_models.example(columns)))
    shapes = {"batch": {"dense": {0: rows}, "ids": {0: rows}}, "pair": ({0: rows}, {0: rows}), "mask": None, "scale": None}
    return torch.export.export(model.train(), _parts_of(inputs), {"mask": None, "scale": 3.0}, dynamic_shapes=shapes)


def test_inputs_within_dicts_and_pairs_and_options():
    trained(Parts(), columns=PARTS, export=_exported_parts, inputs={"pair_0": "beside", "pair_1": "unread"},
            call=lambda model, batch: model(*_parts_of(batch), scale=3.0))


def test_inputs_without_a_column_are_named():
    program = _exported_parts(Parts(), PARTS)
    data = bd.data.arrays(**arrays_of(PARTS)).batch(BATCH)
    with pytest.raises(bd.InvalidArgument, match=r"input 'pair_0' has no column 'pair_0'.*inputs=\{'pair_0': 'column'\}"):
        bd.Trainer(bd.io.torch(program, loss="mse_loss"), data, bd.optim.SGD(0.1))
    with pytest.raises(bd.InvalidArgument, match="no input 'pear'"):
        bd.Trainer(bd.io.torch(program, loss="mse_loss", inputs={"pear": "beside"}), data, bd.optim.SGD(0.1))


def test_conditionals_choose_a_branch_without_the_gradients_of_the_other():
    trained(Between(lambda x: torch.cond(x.min() > 0, torch.log, lambda h: h * 2, (x,))))
    with pytest.raises(bd.InvalidArgument, match=r"\[while_loop\] node .*a Python loop over a known number of steps"):
        from torch._higher_order_ops.while_loop import while_loop
        trained(Between(lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2),
                                             (torch.zeros((), dtype=torch.int64), x))[1]))


def test_a_program_in_eval_is_said():
    rows = torch.export.Dim("rows")
    program = torch.export.export(Dense(0.5).eval(), (torch.zeros(4, 4),), dynamic_shapes=({0: rows},))
    with pytest.warns(UserWarning, match=r"exported in eval\(\): node 'dropout'.*module.train\(\)"):
        bd.io.torch(program, loss="binary_cross_entropy_with_logits")


def test_other_types_of_parameters_are_refused_with_what_to_do():
    for kind, says in ((torch.float64, r"float32 is trained: export module.float\(\)"),
                       (torch.bfloat16, r"Trainer\(set=\['runtime.precision=BF16'\]\)")):
        program = torch.export.export(Dense().to(kind).train(), (torch.zeros(4, 4, dtype=kind),))
        with pytest.raises(bd.InvalidArgument, match=f"parameter 'first.weight' is .*{says}"):
            bd.Trainer(bd.io.torch(program, loss="mse_loss"), bd.data.arrays(**arrays_of(DENSE)).batch(BATCH), bd.optim.SGD(0.1))


def test_a_class_of_a_loss_is_that_loss():
    program = torch_models.exported(Dense(), DENSE)
    data = bd.data.arrays(**arrays_of(DENSE)).batch(BATCH, shuffle=False)
    losses = [bd.Trainer(bd.io.torch(program, loss=loss), data, bd.optim.SGD(0.1)).fit(steps=3)["loss"]
              for loss in (nn.BCEWithLogitsLoss, "binary_cross_entropy_with_logits")]
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_a_single_input_has_the_column_that_is_no_label():
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    rows = np.random.default_rng(0).standard_normal((BATCH, 8)).astype(np.float32)
    program = torch.export.export(model.train(), (torch.randn(4, 6),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    t = bd.Trainer(bd.io.torch(program, loss="mse_loss"), bd.data.arrays(clicks=rows[:, :6].copy(), label=rows[:, 6:].copy()).batch(BATCH),
                   bd.optim.SGD(0.1))
    expected = nn.functional.mse_loss(model(torch.from_numpy(rows[:, :6])), torch.from_numpy(rows[:, 6:])).item()
    assert t.fit(steps=1)["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_a_loss_that_decides_by_values_says_so():
    program = torch.export.export(nn.Linear(6, 6).train(), (torch.randn(4, 6),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    data = bd.data.arrays(input=np.zeros((BATCH, 6), np.float32), label=np.zeros((BATCH, 3), np.float32))
    with pytest.raises(bd.InvalidArgument, match="it decides by values, as a check of its arguments does"):
        bd.Trainer(bd.io.torch(program, loss=lambda o, t: nn.functional.gaussian_nll_loss(o[:, :3], t, o[:, 3:].exp())),
                   data.batch(BATCH), bd.optim.SGD(0.1))
