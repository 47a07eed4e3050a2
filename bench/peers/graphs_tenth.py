"""A tenth set of models for torch_graphs.py, written as strangers would write them: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "sampled": [("seen", "id", [30], 5000), ("user", "id", [4], 2000), ("item", "id", [1], 5000), ("others", "id", [48], 5000)],
    "views": [("dense", "number", [96], 0), ("noise", "number", [96], 0)],
    "cells": [("dense", "number", [20, 24], 0)],
    "series": [("dense", "number", [96, 7], 0)],
    "keyword": [("image", "number", [1, 49, 40], 0)],
    "noisy_experts": [("ids", "id", [14], 2000), ("dense", "number", [10], 0), ("noise", "number", [8], 0)],
    "many_losses": [("ids", "id", [9], 3000), ("amount", "number", [4], 0)],
    "neighbours": [("ids", "id", [20], 500), ("near", "id", [20, 6], 20), ("edge", "number", [20, 6, 4], 0)],
    "odd_units": [("ids", "id", [16], 3000), ("dense", "number", [12], 0)],
    "quantised": [("dense", "number", [16, 32], 0)],
    "tagger": [("ids", "id", [24], 3000), ("tags", "id", [24], 9)],
    "splines": [("dense", "number", [40], 0)],
    "spatial": [("image", "number", [1, 28, 28], 0)],
    "selective": [("ids", "id", [24], 2000)],
}
YES_NO = ("noisy_experts", "many_losses", "odd_units", "sampled")
CLASSES = 10


class Sampled(nn.Module):
    """Retrieval: a softmax over the item and sampled others, corrected by how often these are drawn; hits are left out."""

    def __init__(self):
        super().__init__()
        self.item, self.user = nn.Embedding(5000, 40), nn.Embedding(2000, 12)
        self.decay = nn.Parameter(torch.zeros(30))
        self.left = nn.Sequential(nn.Linear(40 + 48, 160), nn.SELU(), nn.Linear(160, 64), nn.SELU(), nn.Linear(64, 40))
        self.right = nn.Sequential(nn.Linear(40, 80), nn.SELU(), nn.Linear(80, 40))
        self.heat, self.often = nn.Parameter(torch.tensor(1.5)), nn.Embedding(5000, 1)

    def forward(self, seen, user, item, others):
        there = (seen >= 500).float()
        weight = there * torch.sigmoid(self.decay)
        mean = (self.item(seen) * weight.unsqueeze(2)).sum(1) / weight.sum(1, keepdim=True).clamp(min=1.0)
        query = F.normalize(self.left(torch.cat([mean, self.user(user).flatten(1)], 1)), dim=1)
        ids = torch.cat([item, others], 1)
        keys = F.normalize(self.right(self.item(ids)), dim=2)
        score = torch.einsum("bd,bnd->bn", query, keys) * torch.exp(self.heat).clamp(max=50)
        score = score - F.logsigmoid(self.often(ids).squeeze(2)).detach()
        hit = torch.cat([torch.zeros_like(item), (others == item).long()], 1)
        score = score.masked_fill(hit == 1, -1e4)
        return score[:, 0], -F.log_softmax(score, 1)[:, 0].mean()


class Views(nn.Module):
    """Two views of a row whose projections shall agree: decorrelated columns, their variance, and the batch as negatives."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(96, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 128))
        self.head = nn.Sequential(nn.Linear(128, 192), nn.BatchNorm1d(192, affine=False), nn.ReLU6(), nn.Linear(192, 64, bias=False))
        self.out = nn.Linear(128, CLASSES)

    def forward(self, dense, noise):
        a = self.body(dense + 0.2 * noise)
        b = self.body(torch.where(noise > 1, torch.zeros_like(dense), dense))
        p, q = self.head(a), self.head(b)
        spread = sum(F.relu(1 - torch.sqrt(v.var(0) + 1e-4)).mean() for v in (p, q))
        u, v = (p - p.mean(0)) / (p.std(0) + 1e-3), (q - q.mean(0)) / (q.std(0) + 1e-3)
        cross = u.T @ v / u.shape[0]
        one = torch.eye(64, device=cross.device)
        apart = ((cross - one) ** 2 * (one + 0.01 * (1 - one))).sum()
        near = F.normalize(p, dim=1) @ F.normalize(q, dim=1).T / 0.2
        agree = (torch.logsumexp(near, 1) - near.diagonal()).mean() + (torch.logsumexp(near, 0) - near.diagonal()).mean()
        return self.out(a.detach()), 0.02 * apart + 0.5 * spread + 0.1 * agree


class Cells(nn.Module):
    """A recurrent cell written by hand: gates with peepholes and layer norm, then a minimal gated unit backwards."""

    def __init__(self):
        super().__init__()
        self.enter, self.again = nn.Linear(24, 192), nn.Linear(48, 192, bias=False)
        self.norm, self.state = nn.LayerNorm(192), nn.LayerNorm(48)
        self.peep = nn.ParameterList(torch.randn(48) * 0.1 for _ in range(3))
        self.forget, self.new = nn.Linear(96, 48), nn.Linear(96, 48)
        self.out = nn.Linear(96, CLASSES)

    def forward(self, dense):
        x = self.enter(dense)
        h = c = torch.zeros(dense.shape[0], 48, device=dense.device)
        seen = []
        for t in range(20):
            i, f, g, o = (x[:, t] + self.norm(self.again(h))).chunk(4, 1)
            i, f = torch.sigmoid(i + self.peep[0] * c), torch.sigmoid(f + self.peep[1] * c + 1)
            c = f * c + i * torch.tanh(g)
            h = torch.sigmoid(o + self.peep[2] * c) * torch.tanh(self.state(c))
            seen.append(h)
        back = torch.zeros_like(h)
        for y in reversed(seen):
            f = F.hardsigmoid(self.forget(torch.cat([y, back], 1)))
            back = (1 - f) * back + f * F.softsign(self.new(torch.cat([y, f * back], 1)))
        return self.out(torch.cat([h, back], 1))


class Series(nn.Module):
    """Series of seven channels: each is normed by itself, cut into patches that overlap, and mixed over time and channels."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(7)), nn.Parameter(torch.zeros(7))
        self.patch = nn.Linear(16, 32)
        self.over_time, self.over_channel = nn.ModuleList(nn.Linear(11, 11) for _ in range(2)), nn.ModuleList(nn.Linear(7, 7) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm([11, 32]) for _ in range(2))
        self.wide = nn.ModuleList(nn.Sequential(nn.Linear(32, 96), nn.CELU(0.5), nn.Linear(96, 32)) for _ in range(2))
        self.trend = nn.Linear(96, 24)
        self.next, self.out = nn.Linear(11 * 32, 24), nn.Linear(7 * 24, CLASSES)

    def forward(self, dense):
        mean = dense.mean(1, keepdim=True)
        deviation = torch.sqrt(dense.var(1, keepdim=True, unbiased=False) + 1e-5)
        x = ((dense - mean) / deviation * self.scale + self.shift).transpose(1, 2)  # [rows, channels, time]
        slow = F.avg_pool1d(F.pad(x, (12, 12), mode="replicate"), 25, 1)
        y = self.patch((x - slow).unfold(2, 16, 8))  # [rows, channels, patches, 32]
        for time, channel, norm, wide in zip(self.over_time, self.over_channel, self.norms, self.wide):
            z = norm(y)
            z = F.gelu(time(z.transpose(2, 3))).transpose(2, 3)
            y = y + z * torch.softmax(channel(y.transpose(1, 3)), 3).transpose(1, 3)
            y = y + wide(y)
        y = self.next(y.flatten(2)) + self.trend(slow)
        y = (y.transpose(1, 2) - self.shift) / (self.scale + 1e-2) * deviation + mean
        return self.out(y.flatten(1))


class Keyword(nn.Module):
    """A spectrogram: strides and filters that differ by axis, groups, dilation, gated units, squeezed by their frequency."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 24, (10, 4), (2, 1), (4, 1)), nn.GroupNorm(3, 24)
        self.grouped = nn.Conv2d(24, 48, (3, 5), (1, 2), (1, 2), groups=4)
        self.gate = nn.Conv2d(48, 96, 3, padding=(2, 1), dilation=(2, 1), groups=2)
        self.band = nn.Conv2d(48, 48, (1, 7), padding=(0, 3), groups=48)
        self.norms = nn.ModuleList(nn.BatchNorm2d(48) for _ in range(2))
        self.up = nn.ConvTranspose1d(48, 32, 4, stride=3, padding=1, output_padding=1, groups=2)
        self.along = nn.Conv1d(32, 64, 5, stride=2, padding=2, padding_mode="circular", groups=8)
        self.out = nn.Linear(128, CLASSES)

    def forward(self, image):
        x = F.hardswish(self.norm(self.first(image)))
        x = F.avg_pool2d(self.norms[0](self.grouped(x)), (2, 1), ceil_mode=True)
        x = x + F.glu(self.gate(x), 1)
        x = F.mish(self.norms[1](self.band(x)))
        y = F.leaky_relu(self.up(x.mean(3)), 0.3)
        y = F.silu(self.along(y))
        return self.out(torch.cat([y.amax(2), torch.logsumexp(y, 2)], 1))


class NoisyExperts(nn.Module):
    """Two of eight experts by noisy gates, importance and load in balance, over a parallel network of bridges."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2000, 18)
        width = 14 * 18 + 10
        self.gate, self.spread = nn.Linear(width, 8, False), nn.Linear(width, 8, False)
        self.a, self.b = nn.Parameter(torch.randn(8, width, 96) * 0.06), nn.Parameter(torch.randn(8, 96, 32) * 0.1)
        self.cross, self.deep = nn.ModuleList(nn.Linear(width, width) for _ in range(2)), nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.out = nn.Linear(32 + 2 * width, 1)

    def forward(self, ids, dense, noise):
        x = torch.cat([self.table(ids).flatten(1), dense], 1)
        logits = self.gate(x) + noise * F.softplus(self.spread(x)) * 0.5
        best, at = torch.topk(logits, 2, dim=1)
        gates = torch.zeros_like(logits).scatter(1, at, torch.softmax(best, 1))
        hidden = F.gelu(torch.einsum("bi,eio->beo", x, self.a), approximate="tanh")
        mixed = torch.einsum("beo,be->bo", torch.einsum("bei,eio->beo", hidden, self.b), gates)
        left = right = x
        for cross, deep in zip(self.cross, self.deep):
            left, right = x * cross(left) + left, F.relu(deep(right))
            both = left * right
            left, right = torch.sigmoid(both.mean(1, keepdim=True)) * left, right + both
        amount = gates.sum(0)
        uneven = amount.var() / (amount.mean() ** 2 + 1e-10)
        load = torch.special.ndtr((logits - best[:, 1:].detach()) / (F.softplus(self.spread(x)) + 0.1)).mean(0)
        return self.out(torch.cat([mixed, left, right], 1)).squeeze(1), 0.01 * uneven + 0.01 * load.std()


class ManyLosses(nn.Module):
    """Counts, amounts, ranks, times and quantiles of one body: each its own loss, weighed by what it was."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3000, 20)
        self.body = nn.Sequential(nn.Linear(180, 256), nn.Softsign(), nn.LayerNorm(256), nn.Linear(256, 64), nn.Tanhshrink())
        self.heads, self.cuts = nn.ModuleList(nn.Linear(64, n) for n in (1, 1, 2, 1, 12, 5)), nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("levels", torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9]))

    def forward(self, ids, amount):
        h = self.body(self.table(ids).flatten(1))
        click, count, normal, rank, hazard, quantiles = (head(h) for head in self.heads)
        seen = torch.floor(amount[:, :1].abs() * 3)
        poisson = F.poisson_nll_loss(count, seen, full=True)
        tweedie = (-seen * torch.exp(-0.5 * count) / -0.5 + torch.exp(0.5 * count) / 0.5).mean()
        variance = F.softplus(normal[:, 1:]) + 1e-3
        gauss = 0.5 * (torch.log(variance) + (normal[:, :1] - amount[:, 1:2]) ** 2 / variance).mean()
        grade = (amount[:, 2:3] > torch.tensor([-1.0, -0.3, 0.3, 1.0], device=h.device)).float()
        ordinal = F.binary_cross_entropy_with_logits(rank - torch.cumsum(F.softplus(self.cuts), 0), grade, pos_weight=torch.full([4], 1.5, device=h.device))
        when = (amount[:, 3].abs() * 5).floor().clamp(0, 11).long()
        alive = F.pad(torch.cumsum(F.logsigmoid(-hazard), 1), (1, 0))[:, :-1]
        survival = -(torch.gather(alive, 1, when.unsqueeze(1)) + F.logsigmoid(torch.gather(hazard, 1, when.unsqueeze(1)))).mean()
        off = amount[:, 1:2] - torch.sort(quantiles, 1).values
        pinball = torch.where(off > 0, self.levels * off, (self.levels - 1) * off).mean()
        huber = F.huber_loss(quantiles[:, 2], amount[:, 1], delta=0.7)
        losses = torch.stack([poisson, tweedie, gauss, ordinal, survival, pinball, huber])
        weights = torch.softmax(torch.log(losses.detach().abs() + 1e-2), 0)
        return click.squeeze(1), (losses * weights).sum()


class Neighbours(nn.Module):
    """Lists of neighbours with edges: mean, extremes and deviation of messages, scaled by what is there; a node for all."""

    def __init__(self):
        super().__init__()
        self.table, self.whole = nn.Embedding(500, 32), nn.Parameter(torch.randn(32) * 0.1)
        self.message, self.update = nn.ModuleList(nn.Linear(68, 32) for _ in range(3)), nn.ModuleList(nn.Linear(32 * 9, 32) for _ in range(3))
        self.norms, self.all = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(3)), nn.ModuleList(nn.GRUCell(32, 32) for _ in range(2))
        self.out = nn.Sequential(nn.Linear(64, 48), nn.ELU(), nn.Linear(48, CLASSES))

    def forward(self, ids, near, edge):
        x, rows = self.table(ids), ids.shape[0]
        whole = self.whole.expand(rows, 32)
        there = (near > 4).float().unsqueeze(3)  # [rows, nodes, neighbours, 1]
        count = there.sum(2).clamp(min=1)
        line = torch.arange(rows, device=ids.device)[:, None, None]
        for i in range(3):
            other = x[line, near]  # [rows, nodes, neighbours, 32]
            m = F.relu(self.message[i](torch.cat([other, x.unsqueeze(2).expand(-1, -1, 6, -1), edge], 3)))
            mean = (m * there).sum(2) / count
            square = (m * m * there).sum(2) / count
            deviation = torch.sqrt(F.relu(square - mean * mean) + 1e-5)
            most = m.masked_fill(there == 0, -1e9).amax(2).clamp(min=-1)
            least = m.masked_fill(there == 0, 1e9).amin(2).clamp(max=10)
            parts = torch.cat([mean, deviation, most, least], 2)
            grow = torch.log(count + 1) / math.log(6)
            y = self.update[i](torch.cat([x, parts, parts * grow], 2))
            y = self.norms[i](y.transpose(1, 2)).transpose(1, 2)
            x = x + F.relu(y)
            if i < 2:
                whole = self.all[i](x.mean(1), whole)
                x = x + whole.unsqueeze(1)
        return self.out(torch.cat([x.amax(1), whole], 1))


class OddUnits(nn.Module):
    """A ranking model of odd parts: pairs by a bilinear form, a snake, maxout, gated linear units, weights of unit norm."""

    def __init__(self):
        super().__init__()
        self.table, self.first_order = nn.Embedding(3000, 12), nn.Embedding(3000, 1)
        self.pair = nn.Bilinear(12, 12, 6)
        self.snake = nn.Parameter(torch.ones(192))
        self.maxout, self.glu = nn.Linear(204, 4 * 96), nn.Linear(192, 2 * 64)
        self.direction, self.length = nn.Parameter(torch.randn(80, 96) * 0.1), nn.Parameter(torch.ones(80))
        self.shrink, self.lowered = nn.Linear(80, 48), nn.Linear(48, 48)
        self.dice, self.norm = nn.Parameter(torch.full([48], 0.25)), nn.BatchNorm1d(48, eps=1e-8, affine=False)
        self.out = nn.Linear(48 + 64 + 6 * 15, 1)

    def forward(self, ids, dense):
        v = self.table(ids)
        pairs = self.pair(v[:, :-1].contiguous(), v[:, 1:].contiguous()).flatten(1)
        flat = v.flatten(1)
        flat = flat + torch.sin(self.snake * flat) ** 2 / (self.snake.abs() + 1e-4)
        wide = self.maxout(torch.cat([flat, dense], 1)).unflatten(1, (96, 4)).amax(2)
        gated = F.glu(self.glu(flat), 1)
        weight = self.direction * (self.length / torch.linalg.vector_norm(self.direction, dim=1)).unsqueeze(1)
        h = F.hardshrink(F.linear(wide, weight), 0.05)
        h = self.shrink(F.leaky_relu(h, 0.1))
        p = torch.sigmoid(self.norm(h))
        h = p * h + (1 - p) * self.dice * h
        h = F.softshrink(self.lowered(h), 0.02) + F.threshold(h, 0.1, 0.0) + torch.atan(h) * torch.erf(h)
        y = self.out(torch.cat([h, gated, torch.log1p(pairs.abs()) * torch.sign(pairs)], 1)).squeeze(1)
        return y + self.first_order(ids).sum((1, 2))


class Quantised(nn.Module):
    """Pieces are replaced by the nearest of a book, past which gradients go as if they were not; what comes back is compared."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 24))
        self.book = nn.Embedding(128, 24)
        self.decoder = nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 32))
        self.mix, self.out = nn.Conv1d(24, 40, 3, padding=1), nn.Linear(40, CLASSES)

    def forward(self, dense):
        z = F.layer_norm(self.encoder(dense), [24])
        flat = z.flatten(0, 1)
        far = (flat * flat).sum(1, keepdim=True) + (self.book.weight ** 2).sum(1) - 2 * flat @ self.book.weight.T
        code = far.argmin(1)
        taken = self.book(code).view_as(z)
        keep = F.mse_loss(z, taken.detach()) * 0.25 + F.mse_loss(taken, z.detach())
        through = z + (taken - z).detach()
        share = torch.softmax(-far, 1).mean(0)
        varied = (share * torch.log(share + 1e-8)).sum()
        back = F.l1_loss(self.decoder(through), dense)
        y = torch.tanh(self.mix(through.transpose(1, 2)))
        return self.out(y.mean(2)), keep + back + 0.01 * varied


class Tagger(nn.Module):
    """Tags of a sequence by a random field: all paths by a recursion of logarithms, less the one that was seen."""

    def __init__(self):
        super().__init__()
        self.table, self.lstm = nn.Embedding(3000, 40), nn.LSTM(40, 32, batch_first=True, bidirectional=True)
        self.chars = nn.Conv1d(40, 48, 3, padding=2, dilation=2)
        self.emit, self.out = nn.Linear(112, 9), nn.Linear(9, CLASSES)
        self.move, self.start, self.end = nn.Parameter(torch.randn(9, 9) * 0.1), nn.Parameter(torch.zeros(9)), nn.Parameter(torch.zeros(9))

    def forward(self, ids, tags):
        x = self.table(ids)
        wide = F.relu(self.chars(x.transpose(1, 2))).transpose(1, 2)
        emit = self.emit(torch.cat([self.lstm(x)[0], wide], 2))
        there = ids > 300
        paths = self.start + emit[:, 0]
        for t in range(1, 24):
            new = torch.logsumexp(paths.unsqueeze(2) + self.move, 1) + emit[:, t]
            paths = torch.where(there[:, t : t + 1], new, paths)
        every = torch.logsumexp(paths + self.end, 1)
        seen = torch.gather(emit, 2, tags.unsqueeze(2)).squeeze(2)
        steps = self.move[tags[:, :-1], tags[:, 1:]] * there[:, 1:].float()
        gold = self.start[tags[:, 0]] + seen[:, 0] + (seen[:, 1:] * there[:, 1:].float()).sum(1) + steps.sum(1) + self.end[tags[:, -1]]
        return self.out(torch.softmax(emit, 2).mean(1)), (every - gold).mean() / 24


class Splines(nn.Module):
    """Layers whose edges are learned splines (B-splines of degree three by their recursion) beside SiLU."""

    def __init__(self):
        super().__init__()
        widths = [40, 32, CLASSES]
        self.base = nn.ModuleList(nn.Linear(a, b, False) for a, b in zip(widths, widths[1:]))
        self.curve = nn.ParameterList(torch.randn(b, a, 8) * 0.1 for a, b in zip(widths, widths[1:]))
        self.register_buffer("knots", torch.arange(-3, 9) * 0.4 - 1)

    def bases(self, x):
        x, g = x.unsqueeze(2), self.knots
        b = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
        for k in range(1, 4):
            b = (x - g[: -k - 1]) / (g[k:-1] - g[: -k - 1]) * b[..., :-1] + (g[k + 1 :] - x) / (g[k + 1 :] - g[1:-k]) * b[..., 1:]
        return b

    def forward(self, dense):
        x, smooth = torch.tanh(dense), 0
        for base, curve in zip(self.base, self.curve):
            x = base(F.silu(x)) + torch.einsum("bik,oik->bo", self.bases(x), curve)
            smooth = smooth + curve.diff(dim=2).abs().mean()
        return x, 0.01 * smooth


class Spatial(nn.Module):
    """An image is turned and scaled by what a small network makes of it, then read at places between its pixels."""

    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2, 2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2, 2), nn.ReLU())
        self.turn = nn.Sequential(nn.Linear(90, 32), nn.ReLU(), nn.Linear(32, 6))
        self.a, self.b = nn.Conv2d(1, 16, 5, 1, 2), nn.Conv2d(16, 32, 3, 2, 1)
        self.out = nn.Sequential(nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self.register_buffer("still", torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, image):
        matrix = (0.3 * self.turn(self.see(image).flatten(1)) + self.still).unflatten(1, (2, 3))
        line = (torch.arange(28, device=image.device) * 2 + 1) / 28 - 1
        y, x = torch.meshgrid(line, line, indexing="ij")
        grid = torch.stack([x, y, torch.ones_like(x)], 2).flatten(0, 1) @ matrix.transpose(1, 2)
        x = F.grid_sample(image, grid.unflatten(1, (28, 28)), align_corners=False)
        x = F.relu(self.b(F.elu(self.a(x))))
        return self.out(F.adaptive_avg_pool2d(x[:, :, 1:13, 1:13], 3).flatten(1))


class Selective(nn.Module):
    """A state space whose steps depend on the input, by a loop over places; a gated convolution before it."""

    def __init__(self):
        super().__init__()
        self.table, self.enter, self.leave = nn.Embedding(2000, 32), nn.Linear(32, 128, False), nn.Linear(64, 32, False)
        self.conv = nn.Conv1d(64, 64, 4, padding=3, groups=64)
        self.select, self.step = nn.Linear(64, 4 + 16, False), nn.Linear(4, 64)
        self.a, self.d = nn.Parameter(torch.log(torch.arange(1, 9).float()).repeat(64, 1)), nn.Parameter(torch.ones(64))
        self.norm, self.out = nn.RMSNorm(32), nn.Linear(32, CLASSES)

    def forward(self, ids):
        x = self.table(ids)
        y, gate = self.enter(self.norm(x)).chunk(2, 2)
        y = F.silu(self.conv(y.transpose(1, 2))[..., :24]).transpose(1, 2)
        small, b, c = self.select(y).split([4, 8, 8], 2)
        step = F.softplus(self.step(small)).unsqueeze(3)  # [rows, places, 64, 1]
        fade = torch.exp(step * -torch.exp(self.a))
        put = step * b.unsqueeze(2) * y.unsqueeze(3)
        h, outs = torch.zeros_like(put[:, 0]), []
        for t in range(24):
            h = fade[:, t] * h + put[:, t]
            outs.append((h * c[:, t].unsqueeze(1)).sum(2))
        y = (torch.stack(outs, 1) + y * self.d) * F.silu(gate)
        return self.out((x + self.leave(y)).mean(1))


MODELS = {"sampled": Sampled, "views": Views, "cells": Cells, "series": Series, "keyword": Keyword, "noisy_experts": NoisyExperts,
          "many_losses": ManyLosses, "neighbours": Neighbours, "odd_units": OddUnits, "quantised": Quantised, "tagger": Tagger,
          "splines": Splines, "spatial": Spatial, "selective": Selective}
