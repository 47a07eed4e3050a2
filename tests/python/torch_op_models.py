"""Modules of PyTorch for test_torch_ops.py: layers and functions that users bring, a few to a module."""

import torch
from torch import nn
from torch.nn import functional as F

DENSE, IMAGE, TOKENS = {"dense": ((6,), "float")}, {"image": ((3, 8, 8), "float")}, {"tokens": ((7,), 30)}
VOLUME = {"volume": ((2, 6, 7, 8), "float")}
ONE, TWO, CLASS = {"label": ((1,), "float")}, {"label": ((2,), "float")}, {"label": ((), 3)}
MODELS = {}  # name -> (module, columns, loss)


def model(columns, loss="mse_loss"):
    def register(module):
        MODELS[module.__name__] = (module, columns, loss)
        return module

    return register


def flat(*parts):
    return torch.cat([part.flatten(1) for part in parts], 1)


@model({**IMAGE, **CLASS}, "cross_entropy")
class Shuffles(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(1024, 3)

    def forward(self, image):
        x = self.a(image)
        return self.out(flat(F.pixel_shuffle(x, 2), F.channel_shuffle(F.pixel_unshuffle(x, 2), 4)))


@model({**IMAGE, **CLASS}, "cross_entropy")
class Pools(nn.Module):
    """Adaptive, hanging over the end, with dilation, with a divisor, of powers."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(572, 3)

    def forward(self, image):
        x = F.relu(self.norm(self.a(image)))
        return self.out(flat(
            F.adaptive_avg_pool2d(x, (3, 3)), F.adaptive_max_pool2d(x, (4, 5)), F.lp_pool2d(x, 2, 2),
            F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
            F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, 2, divisor_override=3), F.max_pool2d(x, 3, stride=1, dilation=2),
            F.max_pool2d(x, 3, stride=2, padding=1, dilation=2, ceil_mode=True)))


@model({**VOLUME, **CLASS}, "cross_entropy")
class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4)
        self.b = nn.Conv3d(4, 4, (2, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), groups=2)
        self.up, self.out = nn.ConvTranspose3d(4, 2, 2, stride=2), nn.LazyLinear(3)
        with torch.no_grad():
            self.eval()(torch.zeros(2, 2, 6, 7, 8))

    def forward(self, volume):
        x = F.max_pool3d(F.relu(self.norm(self.a(volume))), 2, stride=(1, 2, 2), padding=(0, 1, 1))
        x = F.relu(self.b(x))
        return self.out(flat(self.up(x), F.avg_pool3d(x, (2, 1, 2), stride=1, padding=(1, 0, 1)),
                             F.adaptive_avg_pool3d(x, 1), F.adaptive_max_pool3d(x, (2, 1, 1))))


@model({"ids": ((5,), 40), **ONE})
class Bags(nn.Module):
    """Offsets that follow from the batch; the last one, padding, maxima."""

    def __init__(self):
        super().__init__()
        self.total, self.mean = nn.EmbeddingBag(40, 8, mode="sum"), nn.EmbeddingBag(40, 8, mode="mean", padding_idx=3)
        self.last, self.out = nn.EmbeddingBag(40, 8, mode="mean", include_last_offset=True), nn.Linear(48, 1)
        self.most, self.largest = nn.EmbeddingBag(40, 8, mode="max"), nn.EmbeddingBag(40, 8, mode="max", padding_idx=2)

    def forward(self, ids):
        line, begin = ids.reshape(-1), torch.arange(ids.shape[0]) * 5
        ends = torch.arange(ids.shape[0] + 1) * 5
        return self.out(flat(self.total(line, begin), self.mean(line, begin), self.last(line, ends), self.most(ids),
                             self.most(line, begin), self.largest(line, begin)))


@model({**DENSE, "at": ((6,), 5), **TWO})
class Scatters(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(35, 2)

    def forward(self, dense, at):
        h, base = self.a(dense), torch.full((dense.shape[0], 5), 0.1)
        return self.out(torch.cat([
            base.scatter_add(1, at, h), base.scatter_reduce(1, at, h, "sum", include_self=False),
            base.scatter_reduce(1, at, h, "mean"), base.scatter_reduce(1, at, h, "mean", include_self=False),
            base.scatter_reduce(1, at, h, "amax"), base.scatter_reduce(1, at, h, "amax", include_self=False),
            base.scatter_reduce(1, at, h, "amin")], 1))


@model({**DENSE, **TWO})
class Selects(nn.Module):
    """One of several equal elements is chosen: PyTorch gives it the gradient, the first of them, or shares it."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 8), nn.Linear(4 + 8 + 2 + 2 + 2 + 2 + 2 + 8 + 8, 2)
        self.same = nn.Parameter(torch.zeros(8))
        self.register_buffer("at", torch.tensor([3, 1, 1, 6]))

    def forward(self, dense):
        h = self.a(dense)
        twice = torch.cat([h[:, :2].repeat(1, 2)[:, :, None], h[:, 4:, None]], 2)  # [rows, 4, 2]: places 0, 2 are equal
        scaled = twice * torch.arange(1.0, 5.0)[:, None] / torch.arange(1.0, 5.0)[:, None]
        return self.out(torch.cat([
            h.index_select(1, self.at), h.cumsum(1), scaled.max(1).values, scaled.min(1).values, scaled.amax(1),
            scaled.median(1).values, torch.relu(scaled).max(1).values, torch.maximum(self.same, self.same * 2) + h,
            torch.clamp(h, min=self.same - 1, max=self.same + 1)], 1))


@model({**TOKENS, **ONE})
class Padded(nn.Module):
    """Rows of padding are zeros; norms, deviations and distances of them have gradients of 0."""

    def __init__(self):
        super().__init__()
        self.table, self.w, self.out = nn.Embedding(30, 6, padding_idx=0), nn.Linear(6, 6, bias=False), nn.Linear(34, 1)

    def forward(self, tokens):
        x = self.w(self.table(tokens))
        return self.out(torch.cat([F.normalize(x, dim=-1).sum(1), x.norm(dim=-1), x.std(-1), x.norm(p=3, dim=-1),
                                   x.norm(p=float("inf"), dim=-1)], 1))


@model({**TOKENS, **ONE})
class Distances(nn.Module):
    """Of all pairs, of which some are equal."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(30, 6), nn.Linear(14, 1)

    def forward(self, tokens):
        x = self.table(tokens)
        return self.out(torch.cat([torch.cdist(x, x).mean(1), torch.cdist(x, x[:, :3], p=1).mean(2)], 1) * 0.1)


@model({**TOKENS, **ONE})
class ByFrequency(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(30, 6, scale_grad_by_freq=True), nn.Linear(6, 1)

    def forward(self, tokens):
        return self.out(self.table(tokens).sum(1))


@model({**TOKENS, **ONE})
class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(30, 6), nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True, proj_size=3)
        self.gru, self.lstm, self.out = nn.GRUCell(6, 4), nn.LSTMCell(6, 4), nn.Linear(14, 1)

    def forward(self, tokens):
        x = self.table(tokens)
        h = torch.zeros(tokens.shape[0], 4)
        state = (h, h)
        for step in range(7):
            h, state = self.gru(x[:, step], h), self.lstm(x[:, step], state)
        return self.out(torch.cat([self.layers(x)[0][:, -1], h, state[0]], 1))


@model({"steps": ((5, 8), "float"), "keep": ((5,), 2), **ONE})
class Masks(nn.Module):
    """Attention under masks of booleans and of numbers, with rows of its own."""

    def __init__(self):
        super().__init__()
        self.parts, self.out = nn.Linear(8, 24), nn.Linear(32, 1)
        self.biased = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
        self.zeroed = nn.MultiheadAttention(8, 4, batch_first=True, add_zero_attn=True)

    def forward(self, steps, keep):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.parts(steps).chunk(3, -1))
        there = keep.bool()[:, None, None, :] | torch.eye(5, dtype=torch.bool)
        far = torch.arange(5.0)[:, None] * torch.arange(5.0) * -0.1
        heads = [F.scaled_dot_product_attention(q, k, v, attn_mask=there),
                 F.scaled_dot_product_attention(q, k, v, attn_mask=far, scale=0.3)]
        biased, weights = self.biased(steps, steps, steps, key_padding_mask=keep == 5)
        zeroed = self.zeroed(steps, steps, steps, attn_mask=torch.triu(torch.ones(5, 5, dtype=torch.bool), 1))[0]
        parts = [each.transpose(1, 2).flatten(2).mean(1) for each in heads] + [biased.mean(1), zeroed.mean(1)]
        return self.out(torch.cat(parts, 1)) + weights.square().mean()


@model({**IMAGE, "theta": ((2, 3), "float"), **CLASS}, "cross_entropy")
class Sampled(nn.Module):
    """Columns of windows and back, a grid that is moved, maxima put back to their places."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(27, 12), nn.Conv2d(3, 4, 3, padding=1), nn.Linear(768 + 144, 3)

    def forward(self, image, theta):
        columns = self.a(F.unfold(image, 3, padding=1).transpose(1, 2)).transpose(1, 2)
        grid = F.affine_grid(theta * 0.3, (image.shape[0], 4, 6, 6), align_corners=False)
        return self.out(flat(F.fold(columns, (16, 16), 2, stride=2), F.grid_sample(self.b(image), grid, align_corners=False)))


@model({**IMAGE, **CLASS}, "cross_entropy")
class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular")
        self.b = nn.Conv2d(2, 2, 3, padding="same", dilation=2, padding_mode="replicate")
        self.deep, self.out = nn.Conv2d(2, 4, 3, groups=2), nn.LazyLinear(3)
        with torch.no_grad():
            self(torch.zeros(2, 3, 8, 8))

    def forward(self, image):
        x = self.b(self.a(image))
        return self.out(flat(
            self.deep(x), F.pad(x, (1, 1, 2, 2), value=0.5), F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), F.interpolate(x, size=5, mode="area"),
            F.interpolate(x, scale_factor=2, mode="bicubic"), F.interpolate(x, size=(10, 10), mode="nearest-exact")))


@model({**DENSE, **TWO})
class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 8), nn.Linear(8, 2)
        self.each = nn.ModuleList([
            nn.Hardshrink(), nn.Softshrink(0.1), nn.Tanhshrink(), nn.Threshold(0.1, 0.2), nn.CELU(0.7), nn.ELU(0.5),
            nn.LogSigmoid(), nn.Softmin(1), nn.GELU("tanh"), nn.Softplus(2, 1.0), nn.Hardswish(), nn.Softsign(), nn.ReLU6(),
            nn.SELU(), nn.Hardtanh(-0.5, 0.6), nn.LogSoftmax(1), nn.PReLU(8)])

    def forward(self, dense):
        h = self.a(dense)
        return self.out(sum(function(h) for function in self.each))


@model({**DENSE, **TWO})
class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 6), nn.Linear(6 * 10, 2)

    def forward(self, dense):
        h = self.a(dense)
        positive = h.abs() + 0.1
        return self.out(torch.cat([
            torch.lerp(h, dense, 0.3), torch.hypot(h, dense), torch.special.xlogy(positive, positive), torch.frac(h * 3),
            torch.trunc(h * 3) + h, torch.logaddexp(h, dense), torch.erfinv(torch.tanh(h) * 0.9), torch.sinc(h),
            torch.repeat_interleave(h[:, :3], 2, 1), torch.tile(h[:, :3], (1, 2))], 1))


@model({**DENSE, **TWO})
class Norms(nn.Module):
    """Normalisations, and weights that are normalised themselves."""

    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(6, 12))
        self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(12, 12))
        self.rms, self.layer = nn.RMSNorm(12), nn.LayerNorm((3, 4), elementwise_affine=False)
        self.instance, self.batch = nn.InstanceNorm1d(3, affine=True), nn.BatchNorm1d(12, affine=False, track_running_stats=False)
        self.local, self.out = nn.LocalResponseNorm(2), nn.Linear(60, 2)

    def forward(self, dense):
        h = self.b(torch.tanh(self.a(dense)))
        k = h.unflatten(1, (3, 4))
        return self.out(flat(self.rms(h), self.layer(k), self.instance(k), self.batch(h), self.local(k)))


@model({"rows": ((4, 6), "float"), "length": ((), 5), **ONE})
class Lengths(nn.Module):
    """A weight that is used twice, a layer that stays, as many steps as a row has, buffers that count."""

    def __init__(self):
        super().__init__()
        self.gru, self.out, self.stays = nn.GRU(6, 5, batch_first=True), nn.Linear(10, 1), nn.Linear(6, 6)
        self.twice = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.twice.weight
        self.register_buffer("seen", torch.zeros(())), self.register_buffer("mean", torch.zeros(10))
        self.stays.requires_grad_(False)

    def forward(self, rows, length):
        steps = self.gru(self.again(torch.tanh(self.twice(self.stays(rows)))))[0]
        there = (torch.arange(4)[None] < length[:, None]).unsqueeze(-1)
        last = steps.gather(1, (length - 1).clamp(min=0)[:, None, None].expand(-1, 1, 5)).squeeze(1)
        x = torch.cat([(steps * there).sum(1) / length.clamp(min=1)[:, None], last], 1)
        self.seen.add_(1.0)
        self.mean.copy_(self.mean * 0.9 + x.mean(0).detach() * 0.1)
        return self.out((x - self.mean) / (1 + 0.1 * self.seen))


@model({**DENSE, **TWO})
class Stopped(nn.Module):
    """Where no gradient flows: no_grad, detach, and a target that follows slowly."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, dense):
        h = self.a(dense)
        with torch.no_grad():
            gate, other = torch.tanh(h), self.b(dense) * 2
        return self.out(h * gate + other * torch.sigmoid(h).detach())


def in_batch(output, label):
    """A softmax over the rows of the batch, with smoothing: as many classes as rows."""
    logits, rows = output[:, :6] @ output[:, 6:].T - label, torch.arange(output.shape[0])
    shares = F.softmax(output[:, 6:] @ output[:, 6:].T, 1)
    return F.cross_entropy(logits, rows, label_smoothing=0.1) + F.cross_entropy(logits, shares, label_smoothing=0.2)


@model({**TOKENS, "others": ((3,), 30), "label": ((), "float")}, in_batch)
class InBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 6)

    def forward(self, tokens, others):
        return torch.cat([self.table(tokens).mean(1), self.table(others).mean(1)], 1)


@model({**IMAGE, **CLASS}, "cross_entropy")
class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Conv2d(3, 2, 3, padding=1), nn.Linear(3 * 2 * 8 + 2 * 8 * 3 * 4, 3)

    def forward(self, image):
        x = self.a(image)
        return self.out(flat(x.unfold(2, 4, 2).prod(-1).transpose(1, 2), x.unfold(-1, 4, 2).sin()))
