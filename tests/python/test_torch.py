"""Programs of torch.export: trained here as PyTorch trains them, and written back; what is refused."""

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

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration", "train_any_graph"))
import torch_models
import torch_more_models

BATCH, STEPS = 16, 6
_LOSSES = {"cross_entropy": nn.functional.cross_entropy,
           "binary_cross_entropy_with_logits": nn.functional.binary_cross_entropy_with_logits}


def arrays_of(columns, rows=BATCH * STEPS):
    rng = np.random.default_rng(3)
    made = {}
    for name, (shape, kind) in columns.items():
        if kind == "float":
            made[name] = rng.standard_normal((rows, *shape)).astype(np.float32)
        elif kind == "label":
            made[name] = rng.integers(0, 2, (rows, *shape)).astype(np.float32)
        else:
            made[name] = rng.integers(0, kind, (rows, *shape))
    return made


MODELS = {**torch_models.MODELS, **torch_more_models.MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_trains_as_pytorch_does_and_writes_back(name):
    make, columns, loss = MODELS[name]
    torch.manual_seed(1)
    model, data = make(), arrays_of(columns)
    source = bd.io.torch(torch_models.exported(model, columns), loss=loss)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.05))
    losses = t.fit(steps=STEPS)["loss"]
    begin = {key: value.clone() for key, value in model.state_dict().items()}
    expected = train(model, data, _LOSSES.get(loss, loss))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    trained = {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(begin)
    source.write_back(model)
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            np.testing.assert_allclose(value.numpy(), trained[key].numpy(), atol=2e-6, err_msg=key)
    if loss is None:  # no prediction beside the loss
        return
    with torch.no_grad():
        inputs = [torch.from_numpy(data[key]) for key in columns if key != "label"]
        output = model.eval()(*inputs).numpy()
    predicted = t.predict(data, next(each for each in ("logit", "logits", "value") if each in t._whole_model().outputs()))
    np.testing.assert_allclose(predicted.reshape(output.shape), output, atol=1e-5)


def train(model, data, loss_of):
    optimizer, losses = torch.optim.SGD(model.train().parameters(), 0.05), []
    for step in range(STEPS):
        batch = {name: torch.from_numpy(value[step * BATCH:(step + 1) * BATCH]) for name, value in data.items()}
        label = batch.pop("label", None)
        optimizer.zero_grad()
        loss = model(*batch.values())
        loss = loss_of(loss, label) if loss_of else loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class Dense(nn.Module):
    def __init__(self, rate=0.0):
        super().__init__()
        self.first, self.last, self.rate = nn.Linear(4, 8), nn.Linear(8, 1), nn.Dropout(rate)

    def forward(self, dense):
        return self.last(self.rate(torch.tanh(self.first(dense)))).squeeze(1)


DENSE = {"dense": ((4,), "float"), "label": ((), "label")}


def trainer(model, data=None, **settings):
    settings = {"loss": "binary_cross_entropy_with_logits", **settings}
    source = bd.io.torch(torch_models.exported(model, DENSE), **settings)
    data = data or arrays_of(DENSE)
    return source, bd.Trainer(source, bd.data.arrays(**data).batch(BATCH), bd.optim.Adam(0.01))


def test_frozen_parameters_stay():
    model = Dense()
    source, t = trainer(model, freeze=r"first\..*")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    t.fit(steps=3)
    source.write_back(model)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"last.weight", "last.bias"}


def test_dropout_is_off_in_predictions():
    model, data = Dense(rate=0.5), arrays_of(DENSE)
    source, t = trainer(model, data)
    t.fit(steps=3)
    source.write_back(model)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(data["dense"])).numpy()
    np.testing.assert_allclose(t.predict(data, "logit"), expected, atol=1e-5)


def test_a_loss_of_the_program_itself():
    class WithLoss(Dense):
        def forward(self, dense, label):
            logit = super().forward(dense)
            return nn.functional.binary_cross_entropy_with_logits(logit, label), logit

    model, rows = WithLoss(), torch.export.Dim("rows")
    program = torch.export.export(model.train(), (torch.zeros(4, 4), torch.zeros(4)), dynamic_shapes=({0: rows}, {0: rows}))
    source = bd.io.torch(program)
    data = arrays_of(DENSE)
    t = bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.05))
    losses = t.fit(steps=STEPS)["loss"]
    plain = Dense()
    plain.load_state_dict(model.state_dict())
    np.testing.assert_allclose(losses, train(plain, data, nn.functional.binary_cross_entropy_with_logits), rtol=1e-5)


def test_a_prediction_of_other_rows_than_the_batch_is_refused():
    class Pairs(Dense):
        def forward(self, dense):
            return self.last(torch.tanh(self.first(dense))).expand(-1, 3).reshape(-1)

    with pytest.raises(bd.InvalidArgument, match="its first dimension must be the rows"):
        source = bd.io.torch(torch_models.exported(Pairs(), DENSE), loss=lambda output, label: output.mean() * label.mean())
        t = bd.Trainer(source, bd.data.arrays(**arrays_of(DENSE)).batch(BATCH), bd.optim.SGD(0.01))
        t.predict(arrays_of(DENSE))


def test_the_exported_program_is_written_back_to():
    model = Dense()
    source, t = trainer(model)
    t.fit(steps=2)
    source.write_back()
    np.testing.assert_array_equal(source.program.state_dict["last.bias"].detach().numpy(), t.variables["last.bias"])


def test_what_cannot_be_trained_is_told_at_once_by_node():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4, 4))

        def forward(self, dense):
            return torch.fft.rfft(dense @ self.w).abs().sum(1) + torch.linalg.qr(dense @ self.w)[1].sum(1)

    program = torch.export.export(Odd().train(), (torch.zeros(4, 4),))
    source = bd.io.torch(program, loss="mse_loss")
    with pytest.raises(bd.InvalidArgument) as error:
        bd.Trainer(source, bd.data.arrays(**arrays_of(DENSE)).batch(4), bd.optim.SGD(0.1))
    text = str(error.value)
    assert "linalg_qr" in text and "fft" in text and "there is no rule" in text, text
    assert "test_torch.py" in text  # the user's line


def test_columns_of_a_data_loader():
    data = {name: torch.from_numpy(value) for name, value in arrays_of(DENSE).items()}
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data["dense"], data["label"]), batch_size=10)
    made = bd.data.torch_loader(loader, ["dense", "label"], rows=64)
    np.testing.assert_array_equal(made.arrays["dense"], data["dense"][:64])
    source = bd.io.torch(torch_models.exported(Dense(), DENSE), loss="binary_cross_entropy_with_logits")
    assert len(bd.Trainer(source, made.batch(BATCH), bd.optim.SGD(0.1)).fit(epochs=1)["loss"]) == 4
    with pytest.raises(bd.InvalidArgument, match="2 tensors"):
        bd.data.torch_loader(loader, ["dense"])


def test_a_module_is_no_program():
    with pytest.raises(bd.InvalidArgument, match="ExportedProgram"):
        bd.io.torch(Dense(), loss="mse_loss")
    with pytest.raises(bd.InvalidArgument, match="no loss 'hinge'"):
        trainer(Dense(), loss="hinge")


class Odd(nn.Module):
    """Windows that do not divide, places that indices name, padding that takes away."""

    def __init__(self):
        super().__init__()
        self.convolution, self.out = nn.Conv2d(1, 2, 3), nn.Linear(20, 3)

    def forward(self, image, places):
        x = self.convolution(nn.functional.pad(image.unsqueeze(1), (1, -1, 2, 0)))
        ends = torch.cat([nn.functional.adaptive_avg_pool2d(x, (3, 2)).flatten(1),
                          nn.functional.adaptive_max_pool2d(x, (2, 2)).flatten(1)], 1)
        ends = ends.scatter(1, places, 0.5).scatter(1, places[:, :1] + 10, ends[:, :1])
        return self.out(torch.where(torch.isfinite(ends), ends, 0.0))


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, image):
        return self.convolution(image.unsqueeze(1))


class Written(nn.Module):
    """Values that are written in place, and ids that are counted."""

    def __init__(self):
        super().__init__()
        self.first, self.table, self.out = nn.Linear(6, 9), nn.Embedding(4, 3), nn.Linear(12, 3)

    def forward(self, dense, places):
        h = self.first(dense).clone()
        h[:, 2:5] = h[:, :3] * 2
        h[:, -1] = dense[:, 0]
        h[h > 1] = 0.5
        counts = torch.zeros(dense.shape[0], 9).index_put(
            (torch.arange(dense.shape[0])[:, None], places), h[:, :2], accumulate=True)
        rows = self.table(torch.bucketize(dense[:, 1], torch.tensor([-1.0, 0.0, 1.0])))
        return self.out(torch.cat([counts, rows], 1))


class Masked(nn.Module):
    """Rows of the mask that leave nothing to attend to."""

    def __init__(self):
        super().__init__()
        self.parts, self.layer, self.out = nn.Linear(4, 12), nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, steps, kept):
        keep = (kept > 0.4) & (steps[:, :1, 0] > 0)
        q, k, v = self.parts(steps).chunk(3, -1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, :])
        return self.out((y + self.layer(steps, steps, steps, key_padding_mask=~keep, need_weights=False)[0]).mean(1))


def test_places_that_the_loss_ignores_have_no_label():
    columns = {"dense": ((6,), "float"), "places": ((2,), 9), "label": ((), 3)}
    torch.manual_seed(1)
    model, data = Written(), arrays_of(columns)
    data["label"][::4] = -100
    source = bd.io.torch(torch_models.exported(model, columns), loss="cross_entropy")
    t = bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.05))
    np.testing.assert_allclose(t.fit(steps=STEPS)["loss"], train(model, data, nn.functional.cross_entropy), rtol=1e-5)


MORE = {"written": (Written, {"dense": ((6,), "float"), "places": ((2,), 9), "label": ((), 3)}),
        "masked": (Masked, {"steps": ((5, 4), "float"), "kept": ((5,), "float"), "label": ((), 3)}),
        "odd": (Odd, {"image": ((8, 7), "float"), "places": ((2,), 8), "label": ((), 3)}),
        "pixels": (Pixels, {"image": ((4, 5), "float"), "label": ((4, 5), 3)})}


@pytest.mark.parametrize("name", MORE)
def test_cross_entropy_of_any_shape(name):
    make, columns = MORE[name]
    torch.manual_seed(1)
    model, data = make(), arrays_of(columns)
    source = bd.io.torch(torch_models.exported(model, columns), loss="cross_entropy")
    t = bd.Trainer(source, bd.data.arrays(**data).batch(BATCH, shuffle=False), bd.optim.SGD(0.05))
    losses = t.fit(steps=STEPS)["loss"]
    np.testing.assert_allclose(losses, train(model, data, nn.functional.cross_entropy), rtol=1e-5)
    source.write_back(model)
    inputs = {name: value for name, value in data.items() if name != "label"}
    with torch.no_grad():
        logits = model(*[torch.from_numpy(value) for value in inputs.values()]).movedim(1, -1)
    np.testing.assert_array_equal(t.predict(inputs, "class"), logits.argmax(-1).numpy(), "classes are the second axis")
    right = np.mean(logits.argmax(-1).numpy() == data["label"])
    assert t.evaluate(bd.data.arrays(**data).batch(BATCH))["accuracy"] == pytest.approx(right)


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.expert = nn.Linear(3, 1)

    def forward(self, x):
        chosen = torch.where(x[:, 0] > 0)[0]
        return torch.zeros(x.shape[0], 1).index_add(0, chosen, self.expert(x[chosen]))


def test_sizes_that_follow_from_data_are_refused_with_the_way_out():
    program = torch.export.export(Routed().train(), (torch.randn(4, 3),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    with pytest.raises(bd.InvalidArgument, match="follows from the data: write torch.where\\(condition, a, b\\)"):
        bd.Trainer(bd.io.torch(program, loss="mse_loss"), bd.data.arrays(x=np.zeros((8, 3), np.float32),
                   label=np.zeros((8, 1), np.float32)).batch(4), bd.optim.SGD(0.1))


class Turned(nn.Module):
    """A rotation by complex numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        turn = torch.polar(torch.ones(4), torch.arange(4.0))
        return self.last(torch.view_as_real(torch.view_as_complex(self.first(x).reshape(-1, 4, 2)) * turn).flatten(1))


def exported_of_x(module):
    rows = torch.export.Dim("rows")
    return torch.export.export(module.train(), (), kwargs={"x": torch.zeros(4, 8)}, dynamic_shapes={"x": {0: rows}})


def test_complex_numbers_are_refused_by_node():
    with pytest.raises(bd.InvalidArgument, match=r"node '\w+' \(File .*complex numbers: write their real and imaginary parts"):
        bd.io.torch(exported_of_x(Turned()), loss="mse_loss")


class Focal(nn.Module):
    def forward(self, output, label):
        each = nn.functional.binary_cross_entropy_with_logits(output, label, reduction="none")
        return ((1 - torch.exp(-each)) ** 2 * each).mean()


def test_one_label_a_row_meets_one_number_a_row_of_a_function():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(8, 1)

        def forward(self, x):
            return self.last(x)

    torch.manual_seed(1)
    module = One()
    data = arrays_of({"x": ((8,), "float"), "label": ((), "label")})
    t = bd.Trainer(bd.io.torch(exported_of_x(module), loss=Focal()), bd.data.arrays(**data).batch(BATCH, shuffle=False),
                   bd.optim.SGD(0.05))
    expected = Focal()(module(torch.from_numpy(data["x"][:BATCH])), torch.from_numpy(data["label"][:BATCH, None]))
    assert t.fit(steps=1)["loss"][0] == pytest.approx(expected.item(), rel=1e-5)
