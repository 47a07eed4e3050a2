"""A second set of models for torch_graphs.py, written when the first one was done: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "bahdanau": [("ids", "id", [24], 4000)],
    "gqa": [("ids", "id", [64], 4000)],
    "vit": [("image", "number", [3, 32, 32], 0)],
    "resnext": [("image", "number", [3, 32, 32], 0)],
    "gat": [("ids", "id", [16], 4000), ("source", "id", [48], 16), ("target", "id", [48], 16)],
    "fibinet": [("ids", "id", [16], 4000)],
    "ffm": [("ids", "id", [14], 4000)],
    "dien": [("ids", "id", [20], 4000), ("item", "id", [1], 4000)],
    "masknet": [("dense", "number", [16], 0), ("ids", "id", [18], 4000)],
    "tcn": [("dense", "number", [12, 96], 0)],
    "autoencoder": [("image", "number", [3, 32, 32], 0)],
    "fusion": [("dense", "number", [24, 10], 0)],
    "pnn": [("ids", "id", [20], 4000)],
    "switch": [("dense", "number", [192], 0)],
    "dlrm_seq": [("dense", "number", [13], 0), ("ids", "id", [8], 4000), ("seen", "id", [16], 4000),
                 ("bought", "id", [12], 4000)],
    "swin": [("image", "number", [3, 32, 32], 0)],
}
YES_NO = ("fibinet", "ffm", "dien", "masknet", "pnn", "dlrm_seq")
CLASSES = 10


class Bahdanau(nn.Module):
    """An LSTM whose states are weighed by additive attention, the softmax written out."""

    def __init__(self):
        super().__init__()
        self.table, self.cells = nn.Embedding(4000, 64), nn.LSTM(64, 96, batch_first=True)
        self.keys, self.query, self.score = nn.Linear(96, 64), nn.Linear(96, 64, False), nn.Linear(64, 1, False)
        self.out = nn.Sequential(nn.Linear(192, 64), nn.Tanh(), nn.Linear(64, CLASSES))

    def forward(self, ids):
        states, (last, _) = self.cells(self.table(ids))
        scores = self.score(torch.tanh(self.keys(states) + self.query(last[0]).unsqueeze(1)))
        weights = torch.exp(scores - scores.max(1, keepdim=True)[0])
        weights = weights / weights.sum(1, keepdim=True)
        return self.out(torch.cat([(weights * states).sum(1), last[0]], 1))


class GqaLayer(nn.Module):
    """Eight heads of queries over two of keys, rotary positions in pairs, SwiGLU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.RMSNorm(256), nn.RMSNorm(256)
        self.q, self.k, self.v = nn.Linear(256, 256, False), nn.Linear(256, 64, False), nn.Linear(256, 64, False)
        self.o, self.gate_up, self.down = nn.Linear(256, 256, False), nn.Linear(256, 1344, False), nn.Linear(672, 256, False)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, x, cos, sin):
        y = self.first(x)
        q, k, v = (f(y).unflatten(2, (-1, 32)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (t.unsqueeze(2).expand(-1, -1, 4, -1, -1).flatten(1, 2) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.second(x)).chunk(2, 2)
        return x + self.down(F.silu(gate) * up)


class Gqa(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(4000, 256), nn.ModuleList(GqaLayer() for _ in range(2))
        self.norm, self.out = nn.RMSNorm(256), nn.Linear(256, CLASSES)
        angles = torch.outer(torch.arange(64.0), 10000.0 ** (-torch.arange(0, 32, 2) / 32))
        self.register_buffer("cos", torch.cos(angles))
        self.register_buffer("sin", torch.sin(angles))

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.out(self.norm(x)[:, -1])


class Vit(nn.Module):
    """Patches, a token of the class, learned places, PyTorch's own encoder layers."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 96, 4, stride=4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 96) * 0.1), nn.Parameter(torch.randn(1, 65, 96) * 0.1)
        layer = lambda: nn.TransformerEncoderLayer(96, 3, 384, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.Sequential(*[layer() for _ in range(3)])
        self.norm, self.out = nn.LayerNorm(96), nn.Linear(96, CLASSES)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.out(self.norm(self.layers(x)[:, 0]))


class NextUnit(nn.Module):
    """A convolution of eight groups between two of single places, then squeeze and excite."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        half = outputs // 2
        self.body = nn.Sequential(
            nn.Conv2d(inputs, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, half, 3, stride, 1, groups=8, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.excite = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(outputs, outputs // 8, 1), nn.ReLU(),
                                    nn.Conv2d(outputs // 8, outputs, 1), nn.Sigmoid())
        self.short = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.body(x)
        return F.relu(self.short(x) + y * self.excite(y))


class Resnext(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.units = nn.Sequential(NextUnit(64, 128, 1), NextUnit(128, 128, 1), NextUnit(128, 256, 2), NextUnit(256, 256, 1))
        self.out = nn.Linear(256, CLASSES)

    def forward(self, image):
        return self.out(self.units(self.first(image)).mean((2, 3)))


class GatLayer(nn.Module):
    """Attention over the edges of a small graph a row: gather, softmax a node, scatter."""

    def __init__(self):
        super().__init__()
        self.turn, self.left, self.right = nn.Linear(64, 64, False), nn.Linear(64, 4, False), nn.Linear(64, 4, False)

    def forward(self, x, source, target):
        pick = lambda t, at: torch.gather(t, 1, at.unsqueeze(2).expand(-1, -1, t.shape[2]))
        h = self.turn(x)
        scores = F.leaky_relu(pick(self.left(h), source) + pick(self.right(h), target), 0.2)
        weights = torch.exp(scores - scores.amax((1, 2), keepdim=True).detach())
        to = target.unsqueeze(2).expand(-1, -1, 4)
        sums = torch.zeros_like(x[:, :, :4]).scatter_add(1, to, weights)
        weights = weights / (torch.gather(sums, 1, to) + 1e-9)
        mixed = (pick(h, source).unflatten(2, (4, 16)) * weights.unsqueeze(3)).flatten(2)
        return F.elu(torch.zeros_like(x).scatter_add(1, target.unsqueeze(2).expand(-1, -1, 64), mixed)) + x


class Gat(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(4000, 64), nn.ModuleList(GatLayer() for _ in range(2))
        self.out = nn.Linear(64, CLASSES)

    def forward(self, ids, source, target):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, source, target)
        return self.out(x.mean(1))


class Fibinet(nn.Module):
    """Squeeze and excite over fields, bilinear products of all pairs."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 16)
        self.excite = nn.Sequential(nn.Linear(16, 4, False), nn.ReLU(), nn.Linear(4, 16, False), nn.ReLU())
        self.bilinear = nn.Parameter(torch.randn(16, 16, 16) * 0.2)
        self.deep = nn.Sequential(nn.Linear(2 * 120 * 16, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("pairs", torch.triu_indices(16, 16, 1))

    def interact(self, x):
        left = torch.einsum("bfd,fde->bfe", x, self.bilinear)
        return (left[:, self.pairs[0]] * x[:, self.pairs[1]]).flatten(1)

    def forward(self, ids):
        x = self.table(ids)
        y = x * self.excite(x.mean(2)).unsqueeze(2)
        return self.deep(torch.cat([self.interact(x), self.interact(y)], 1)).squeeze(1)


class Ffm(nn.Module):
    """Factors that depend on the other field, beside a linear part and layers."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = nn.Embedding(4000, 14 * 8), nn.Embedding(4000, 1)
        self.deep = nn.Sequential(nn.Linear(91, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, ids):
        x = self.table(ids).unflatten(2, (14, 8))
        pairs = [(x[:, i, j] * x[:, j, i]).sum(1) for i in range(14) for j in range(i + 1, 14)]
        return (self.linear(ids).sum(1) + self.deep(torch.stack(pairs, 1))).squeeze(1)


class Dien(nn.Module):
    """A GRU, attention of the item over its states, and a GRU whose update gate the attention scales."""

    def __init__(self):
        super().__init__()
        self.table, self.first = nn.Embedding(4000, 32), nn.GRU(32, 32, batch_first=True)
        self.align = nn.Linear(32, 32, False)
        self.gates, self.inner = nn.Linear(64, 64), nn.Linear(64, 32)
        self.out = nn.Sequential(nn.Linear(96, 80), nn.PReLU(), nn.Linear(80, 1))

    def forward(self, ids, item):
        seen, target = self.table(ids), self.table(item)[:, 0]
        states = self.first(seen)[0]
        weights = torch.softmax(torch.einsum("btd,bd->bt", self.align(states), target), 1)
        h = torch.zeros_like(target)
        for t in range(20):
            x = states[:, t]
            update, reset = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
            new = torch.tanh(self.inner(torch.cat([x, reset * h], 1)))
            update = update * weights[:, t : t + 1]
            h = (1 - update) * h + update * new
        return self.out(torch.cat([h, target, seen.mean(1)], 1)).squeeze(1)


class MaskBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mask = nn.Sequential(nn.Linear(width, 2 * 128), nn.ReLU(), nn.Linear(256, width))
        self.layer, self.norm = nn.Linear(width, 128), nn.LayerNorm(128)

    def forward(self, x, kept):
        return F.relu(self.norm(self.layer(self.mask(x) * kept)))


class Masknet(nn.Module):
    """Blocks side by side whose inputs are gated by the whole row."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(4000, 16), nn.LayerNorm(16)
        self.blocks = nn.ModuleList(MaskBlock(304) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dense, ids):
        e = self.table(ids)
        x = torch.cat([dense, e.flatten(1)], 1)
        kept = torch.cat([dense, self.norm(e).flatten(1)], 1)
        return self.out(torch.cat([b(x, kept) for b in self.blocks], 1)).squeeze(1)


class TcnBlock(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm
        self.pad = 2 * dilation
        self.first = normed(nn.Conv1d(inputs, outputs, 3, padding=self.pad, dilation=dilation))
        self.second = normed(nn.Conv1d(outputs, outputs, 3, padding=self.pad, dilation=dilation))
        self.short = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = F.relu(self.first(x)[:, :, : -self.pad])
        y = F.relu(self.second(y)[:, :, : -self.pad])
        return F.relu(y + self.short(x))


class Tcn(nn.Module):
    """Causal convolutions with weight norm: padded on both sides, then cut."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(TcnBlock(12, 48, 1), TcnBlock(48, 48, 2), TcnBlock(48, 64, 4), TcnBlock(64, 64, 8))
        self.out = nn.Linear(64, CLASSES)

    def forward(self, dense):
        return self.out(self.body(dense)[:, :, -1])


class Autoencoder(nn.Module):
    """Strided convolutions down, transposed ones up, group norm; the image again beside the class."""

    def __init__(self):
        super().__init__()
        down = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1))
        up = lambda i, o: nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1))
        self.down = nn.Sequential(down(3, 32), down(32, 64), down(64, 128))
        self.up = nn.Sequential(up(128, 64), up(64, 32), nn.ConvTranspose2d(32, 3, 4, 2, 1))
        self.out = nn.Linear(128 * 16, CLASSES)

    def forward(self, image):
        code = self.down(image)
        return self.out(code.flatten(1)), F.mse_loss(self.up(code), image)


class Gated(nn.Module):
    """Gated residual layer of temporal fusion transformers."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second, self.gate = nn.Linear(inputs, outputs), nn.Linear(outputs, outputs), nn.Linear(outputs, 2 * outputs)
        self.short = nn.Linear(inputs, outputs) if inputs != outputs else nn.Identity()
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x):
        return self.norm(self.short(x) + F.glu(self.gate(self.second(F.elu(self.first(x)))), -1))


class Fusion(nn.Module):
    """Selection of variables, an LSTM, gates and attention over a series."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Parameter(torch.randn(10, 32) * 0.3)
        self.choice, self.each = Gated(320, 10), nn.ModuleList(Gated(32, 32) for _ in range(10))
        self.cells, self.after = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 64)
        self.attend, self.norm, self.last = nn.MultiheadAttention(32, 4, batch_first=True), nn.LayerNorm(32), Gated(32, 32)
        self.out = nn.Linear(32, CLASSES)
        self.register_buffer("mask", torch.full((24, 24), float("-inf")).triu(1))

    def forward(self, dense):
        lifted = dense.unsqueeze(3) * self.lift
        weights = torch.softmax(self.choice(lifted.flatten(2)), -1)
        x = torch.stack([f(lifted[:, :, i]) for i, f in enumerate(self.each)], 3)
        x = (x * weights.unsqueeze(2)).sum(3)
        x = self.norm(x + F.glu(self.after(self.cells(x)[0]), -1))
        y = self.attend(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        return self.out(self.last(x + y)[:, -1])


class Pnn(nn.Module):
    """Inner products and one outer product of fields."""

    def __init__(self):
        super().__init__()
        self.table, self.kernel = nn.Embedding(4000, 16), nn.Parameter(torch.randn(190, 16, 16) * 0.1)
        self.deep = nn.Sequential(nn.Linear(320 + 190 + 190, 200), nn.ReLU(), nn.Dropout(0.0), nn.Linear(200, 200), nn.ReLU(),
                                  nn.Linear(200, 1))
        rows, columns = torch.triu_indices(20, 20, 1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, ids):
        x = self.table(ids)
        p, q = x[:, self.rows], x[:, self.columns]
        inner = (p * q).sum(2)
        outer = (torch.einsum("bpd,pde->bpe", p, self.kernel) * q).sum(2)
        return self.deep(torch.cat([x.flatten(1), inner, outer], 1)).squeeze(1)


class Switch(nn.Module):
    """Two of eight experts a row by the softmax of the best scores, with a loss that keeps them busy."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(192, 8, False)
        expert = lambda: nn.Sequential(nn.Linear(192, 256), nn.GELU(approximate="tanh"), nn.Linear(256, 192))
        self.experts = nn.ModuleList(expert() for _ in range(8))
        self.norm, self.out = nn.LayerNorm(192), nn.Linear(192, CLASSES)

    def forward(self, dense):
        scores = self.gate(dense)
        best, at = torch.topk(scores, 2, 1)
        weights = torch.zeros_like(scores).scatter(1, at, torch.softmax(best, 1))
        shares = (weights > 0).float().mean(0) * torch.softmax(scores, 1).mean(0)
        mixed = sum(weights[:, i : i + 1] * e(dense) for i, e in enumerate(self.experts))
        return self.out(self.norm(dense + mixed)), 0.08 * shares.sum()


class DlrmSeq(nn.Module):
    """Tables, layers and dot products beside a GRU over what was seen and an LSTM over what was bought."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(4000, 32) for _ in range(8))
        self.items = nn.Embedding(4000, 32)
        self.gru, self.lstm = nn.GRU(32, 32, batch_first=True), nn.LSTM(32, 32, batch_first=True)
        self.top = nn.Sequential(nn.Linear(32 + 55, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
        rows, columns = torch.tril_indices(11, 11, -1)
        self.register_buffer("at", rows * 11 + columns)

    def forward(self, dense, ids, seen, bought):
        x = self.bottom(dense)
        parts = [x] + [t(ids[:, i]) for i, t in enumerate(self.tables)]
        parts += [self.gru(self.items(seen))[1][0], self.lstm(self.items(bought))[0][:, -1]]
        z = torch.stack(parts, 1)
        dots = torch.bmm(z, z.transpose(1, 2)).flatten(1)[:, self.at]
        return self.top(torch.cat([x, dots], 1)).squeeze(1)


class SwinBlock(nn.Module):
    """Attention within shifted windows of 4 x 4 places with a learned bias for each offset."""

    def __init__(self, shift):
        super().__init__()
        self.shift = shift
        self.first, self.second = nn.LayerNorm(96), nn.LayerNorm(96)
        self.qkv, self.o = nn.Linear(96, 288), nn.Linear(96, 96)
        self.up, self.down = nn.Linear(96, 384), nn.Linear(384, 96)
        self.bias = nn.Parameter(torch.randn(49, 3) * 0.1)
        at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        offset = at[:, :, None] - at[:, None, :] + 3
        self.register_buffer("offsets", (offset[0] * 7 + offset[1]).flatten())

    def forward(self, x):
        y = torch.roll(self.first(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.first(x)
        y = y.unflatten(2, (4, 4)).unflatten(1, (4, 4)).transpose(2, 3).reshape(-1, 16, 96)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, 3, 32).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.offsets].reshape(16, 16, 3).permute(2, 0, 1)
        weights = torch.softmax(q @ k.transpose(2, 3) * 32**-0.5 + bias.unsqueeze(0), 3)
        y = self.o((weights @ v).transpose(1, 2).flatten(2))
        y = y.reshape(-1, 4, 4, 4, 4, 96).transpose(2, 3).reshape(-1, 16, 16, 96)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 96, 2, stride=2), nn.Sequential(SwinBlock(0), SwinBlock(2))
        self.norm, self.out = nn.LayerNorm(96), nn.Linear(96, CLASSES)

    def forward(self, image):
        x = self.blocks(self.patches(image).permute(0, 2, 3, 1))
        return self.out(self.norm(x).mean((1, 2)))


MODELS = {"bahdanau": Bahdanau, "gqa": Gqa, "vit": Vit, "resnext": Resnext, "gat": Gat, "fibinet": Fibinet, "ffm": Ffm,
          "dien": Dien, "masknet": Masknet, "tcn": Tcn, "autoencoder": Autoencoder, "fusion": Fusion, "pnn": Pnn,
          "switch": Switch, "dlrm_seq": DlrmSeq, "swin": Swin}
