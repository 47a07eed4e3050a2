"""A fourth set of models for torch_graphs.py, of families that the others lack: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "attention_unet": [("image", "number", [3, 32, 32], 0)],
    "hybrid": [("ids", "id", [40], 4000)],
    "ft_transformer": [("dense", "number", [16], 0), ("ids", "id", [12], 3000)],
    "gated_cross": [("dense", "number", [13], 0), ("ids", "id", [20], 4000)],
    "wavenet": [("dense", "number", [1, 128], 0)],
    "relative": [("ids", "id", [48], 4000)],
    "video": [("clip", "number", [3, 8, 16, 16], 0)],
}
YES_NO = ("ft_transformer", "gated_cross")
CLASSES = 10


class Twice(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        conv = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.body = nn.Sequential(conv(inputs, outputs), conv(outputs, outputs))

    def forward(self, x):
        return self.body(x)


class AttentionUnet(nn.Module):
    """Gates of attention on the skips, self-attention of all places at the bottom."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Twice(3, 32), Twice(32, 64), Twice(64, 128)])
        self.norm, self.qkv, self.o = nn.GroupNorm(8, 128), nn.Conv2d(128, 384, 1), nn.Conv2d(128, 128, 1)
        self.lift = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
        self.up = nn.ModuleList([Twice(128, 64), Twice(64, 32)])
        self.gate_x = nn.ModuleList([nn.Conv2d(64, 32, 1), nn.Conv2d(32, 16, 1)])
        self.gate_g = nn.ModuleList([nn.Conv2d(64, 32, 1), nn.Conv2d(32, 16, 1)])
        self.gate = nn.ModuleList([nn.Conv2d(32, 1, 1), nn.Conv2d(16, 1, 1)])
        self.out = nn.Linear(32, CLASSES)

    def attend(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(1, (3, 4, 32)).flatten(4).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.o(y.transpose(2, 3).flatten(1, 2).unflatten(2, x.shape[2:]))

    def forward(self, image):
        skips, x = [], image
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        x = self.attend(x)
        for i in range(2):
            x, skip = self.lift[i](x), skips[1 - i]
            weight = torch.sigmoid(self.gate[i](F.relu(self.gate_x[i](skip) + self.gate_g[i](x))))
            x = self.up[i](torch.cat([skip * weight, x], 1))
        return self.out(x.mean((2, 3)))


class Hybrid(nn.Module):
    """A GRU in both directions, then attention over its states, pooled by a learned query."""

    def __init__(self):
        super().__init__()
        self.table, self.cells = nn.Embedding(4000, 64), nn.GRU(64, 48, batch_first=True, bidirectional=True)
        self.attend, self.first, self.second = nn.MultiheadAttention(96, 4, batch_first=True), nn.LayerNorm(96), nn.LayerNorm(96)
        self.layers = nn.Sequential(nn.Linear(96, 192), nn.Mish(), nn.Linear(192, 96))
        self.query, self.out = nn.Parameter(torch.randn(96) * 0.1), nn.Linear(96, CLASSES)

    def forward(self, ids):
        x = self.cells(self.table(ids))[0]
        x = self.first(x + self.attend(x, x, x, need_weights=False)[0])
        x = self.second(x + self.layers(x))
        weights = torch.softmax(x @ self.query * 96**-0.5, 1)
        return self.out((x * weights.unsqueeze(2)).sum(1))


class FtLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.o = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 170), nn.Linear(85, 64)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (4, 16)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, 2))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        a, b = self.up(self.second(x)).chunk(2, 2)
        return x + self.down(a * F.relu(b))


class FtTransformer(nn.Module):
    """A token for each number and each category, and one of the row; ReGLU."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(16, 64) * 0.2), nn.Parameter(torch.randn(16, 64) * 0.2)
        self.table, self.row = nn.Embedding(3000, 64), nn.Parameter(torch.randn(1, 1, 64) * 0.2)
        self.layers = nn.Sequential(FtLayer(), FtLayer(), FtLayer())
        self.norm, self.out = nn.LayerNorm(64), nn.Linear(64, 1)

    def forward(self, dense, ids):
        numbers = dense.unsqueeze(2) * self.weight + self.bias
        x = torch.cat([self.row.expand(dense.shape[0], -1, -1), numbers, self.table(ids)], 1)
        return self.out(F.relu(self.norm(self.layers(x)[:, 0]))).squeeze(1)


class GatedCross(nn.Module):
    """Crosses whose terms are gated, beside layers whose fields are weighed by one another."""

    def __init__(self):
        super().__init__()
        width = 13 + 20 * 16
        self.table = nn.Embedding(4000, 16)
        self.cross, self.gate = (nn.ModuleList(nn.Linear(width, width, i == 0) for _ in range(3)) for i in range(2))
        self.weigh = nn.Linear(20 * 16, 20)
        self.deep = nn.Sequential(nn.Linear(width, 256), nn.PReLU(), nn.Linear(256, 128), nn.PReLU())
        self.out = nn.Linear(width + 128, 1)

    def forward(self, dense, ids):
        e = self.table(ids)
        weights = 2 * torch.sigmoid(self.weigh(e.flatten(1)))
        x = first = torch.cat([torch.log1p(dense.abs()), e.flatten(1)], 1)
        for cross, gate in zip(self.cross, self.gate):
            x = first * cross(x) * torch.sigmoid(gate(x)) + x
        deep = self.deep(torch.cat([dense, (e * weights.unsqueeze(2)).flatten(1)], 1))
        return self.out(torch.cat([x, deep], 1)).squeeze(1)


class Wavenet(nn.Module):
    """Causal convolutions with gates, dilated, whose skips are added up."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 32, 2)
        self.dilations = [1, 2, 4, 8, 16, 1, 2, 4, 8, 16]
        self.both = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=d) for d in self.dilations)
        self.back = nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in self.dilations)
        self.skip = nn.ModuleList(nn.Conv1d(32, 64, 1) for _ in self.dilations)
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, CLASSES, 1))

    def forward(self, dense):
        x, total = self.first(F.pad(dense, (1, 0))), 0
        for d, both, back, skip in zip(self.dilations, self.both, self.back, self.skip):
            a, b = both(F.pad(x, (d, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + skip(y), x + back(y)
        return self.end(total).mean(2)


class RelativeLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.RMSNorm(128), nn.RMSNorm(128)
        self.q, self.k, self.v, self.o = (nn.Linear(128, 128, False) for _ in range(4))
        self.up, self.down = nn.Linear(128, 512, False), nn.Linear(512, 128, False)

    def forward(self, x, bias):
        y = self.first(x)
        q, k, v = (f(y).unflatten(2, (4, 32)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(2, 3) + bias, 3)
        x = x + self.o((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Relative(nn.Module):
    """An encoder whose layers share a learned bias by the distance of places, in buckets that grow."""

    def __init__(self):
        super().__init__()
        self.table, self.bias = nn.Embedding(4000, 128), nn.Embedding(32, 4)
        self.layers = nn.ModuleList(RelativeLayer() for _ in range(2))
        self.norm, self.out = nn.RMSNorm(128), nn.Linear(128, CLASSES)
        away = torch.arange(48)[None, :] - torch.arange(48)[:, None]
        far = 8 + (torch.log(away.abs().clamp(min=8) / 8) / math.log(16) * 8).long().clamp(max=7)
        self.register_buffer("buckets", torch.where(away.abs() < 8, away.abs(), far) + 16 * (away > 0))

    def forward(self, ids):
        bias, x = self.bias(self.buckets).permute(2, 0, 1).unsqueeze(0), self.table(ids)
        for layer in self.layers:
            x = layer(x, bias)
        return self.out(self.norm(x).mean(1))


class VideoUnit(nn.Module):
    """A convolution over space, then one over time."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(inputs, outputs, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(outputs), nn.ReLU(),
            nn.Conv3d(outputs, outputs, (3, 1, 1), 1, (1, 0, 0), bias=False), nn.BatchNorm3d(outputs))
        self.short = nn.Identity() if inputs == outputs and stride == 1 else nn.Conv3d(inputs, outputs, 1, (1, stride, stride), bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv3d(3, 32, 3, (1, 2, 2), 1), nn.ReLU())
        self.units = nn.Sequential(VideoUnit(32, 32, 1), nn.MaxPool3d(2), VideoUnit(32, 64, 1))
        self.out = nn.Linear(64, CLASSES)

    def forward(self, clip):
        return self.out(self.units(self.first(clip)).mean((2, 3, 4)))


MODELS = {"attention_unet": AttentionUnet, "hybrid": Hybrid, "ft_transformer": FtTransformer, "gated_cross": GatedCross,
          "wavenet": Wavenet, "relative": Relative, "video": Video}
