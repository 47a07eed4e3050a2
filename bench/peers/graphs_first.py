"""The first twelve models of torch_graphs.py, as their users write them."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "xdeepfm": [("ids", "id", [20], 4000)],
    "autoint": [("ids", "id", [24], 4000)],
    "convnext": [("image", "number", [3, 32, 32], 0)],
    "mbconv": [("image", "number", [3, 32, 32], 0)],
    "unet": [("image", "number", [3, 32, 32], 0)],
    "mixer": [("image", "number", [3, 32, 32], 0)],
    "gru4rec": [("ids", "id", [20], 4000)],
    "decoder": [("ids", "id", [64], 4000)],
    "two_towers": [("user", "id", [8], 4000), ("item", "id", [8], 4000)],
    "experts": [("dense", "number", [256], 0)],
    "tabular": [("dense", "number", [40], 0), ("ids", "id", [12], 5000)],
    "dilated": [("dense", "number", [16, 128], 0)],
}
YES_NO = ("xdeepfm", "autoint", "tabular")
CLASSES = 10


class Xdeepfm(nn.Module):
    """A compressed interaction network beside layers of PReLU."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 16)
        self.maps = nn.ModuleList(nn.Conv1d(20 * n, 64, 1) for n in (20, 64, 64))
        self.deep = nn.Sequential(nn.Linear(320, 400), nn.PReLU(400), nn.Linear(400, 400), nn.PReLU(400))
        self.out = nn.Linear(400 + 3 * 64, 1)

    def forward(self, ids):
        x = self.table(ids)
        h, sums = x, []
        for m in self.maps:
            pairs = (h.unsqueeze(2) * x.unsqueeze(1)).flatten(1, 2)
            h = torch.relu(m(pairs))
            sums.append(h.sum(2))
        return self.out(torch.cat([self.deep(x.flatten(1)), *sums], 1)).squeeze(1)


class Autoint(nn.Module):
    """Attention between fields, residual."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 32)
        self.query = nn.ModuleList(nn.Linear(32, 32, False) for _ in range(3))
        self.key = nn.ModuleList(nn.Linear(32, 32, False) for _ in range(3))
        self.value = nn.ModuleList(nn.Linear(32, 32, False) for _ in range(3))
        self.keep = nn.ModuleList(nn.Linear(32, 32, False) for _ in range(3))
        self.out = nn.Linear(24 * 32, 1)

    def forward(self, ids):
        x = self.table(ids)
        for q, k, v, keep in zip(self.query, self.key, self.value, self.keep):
            split = lambda t: t.unflatten(2, (2, 16)).transpose(1, 2)
            scores = split(q(x)) @ split(k(x)).transpose(2, 3)
            mixed = (torch.softmax(scores, 3) @ split(v(x))).transpose(1, 2).flatten(2)
            x = torch.relu(mixed + keep(x))
        return self.out(x.flatten(1)).squeeze(1)


class ChannelNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Convnext(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 48, 2, stride=2), ChannelNorm(48), NextBlock(48), NextBlock(48),
                                  ChannelNorm(48), nn.Conv2d(48, 96, 2, stride=2), NextBlock(96), NextBlock(96))
        self.out = nn.Linear(96, CLASSES)

    def forward(self, image):
        return self.out(self.body(image).mean((2, 3)))


class MbBlock(nn.Module):
    """Expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        wide = 4 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
                                  nn.BatchNorm2d(wide), nn.SiLU())
        self.squeeze, self.excite = nn.Conv2d(wide, inputs // 4, 1), nn.Conv2d(inputs // 4, wide, 1)
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.deep(self.expand(x))
        y = y * torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        y = self.project(y)
        return x + y if self.same else y


class Mbconv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.SiLU(),
                                  MbBlock(24, 24, 3, 1), MbBlock(24, 40, 5, 2), MbBlock(40, 40, 5, 1))
        self.out = nn.Linear(40, CLASSES)

    def forward(self, image):
        return self.out(self.body(image).mean((2, 3)))


class Unet(nn.Module):
    """Group norm, SiLU, skips, nearest neighbours on the way up."""

    def __init__(self):
        super().__init__()
        conv = lambda i, o, s=1: nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(8, o), nn.SiLU())
        self.a, self.b, self.c = conv(3, 32), conv(32, 64, 2), conv(64, 96, 2)
        self.d, self.e = conv(160, 64), conv(96, 32)
        self.out = nn.Linear(32, CLASSES)

    def forward(self, image):
        a = self.a(image)
        b = self.b(a)
        d = self.d(torch.cat([F.interpolate(self.c(b), scale_factor=2.0), b], 1))
        e = self.e(torch.cat([F.interpolate(d, scale_factor=2.0), a], 1))
        return self.out(e.mean((2, 3)))


class MixBlock(nn.Module):
    def __init__(self):
        super().__init__()
        mlp = lambda n, h: nn.Sequential(nn.Linear(n, h), nn.GELU(), nn.Linear(h, n))
        self.first, self.second = nn.LayerNorm(128), nn.LayerNorm(128)
        self.tokens, self.channels = mlp(64, 128), mlp(128, 512)

    def forward(self, x):
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 4, stride=4)
        self.blocks = nn.Sequential(*[MixBlock() for _ in range(3)])
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, CLASSES)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.out(self.norm(self.blocks(x)).mean(1))


class Gru4rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cells, self.out = nn.Embedding(4000, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, CLASSES)

    def forward(self, ids):
        return self.out(self.cells(self.table(ids))[0][:, -1])


class DecoderLayer(nn.Module):
    """RMS norm, rotary positions, causal attention with shared keys, SwiGLU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(128)), nn.Parameter(torch.ones(128))
        self.q, self.kv, self.o = nn.Linear(128, 128, False), nn.Linear(128, 64, False), nn.Linear(128, 128, False)
        self.gate, self.up, self.down = nn.Linear(128, 344, False), nn.Linear(128, 344, False), nn.Linear(344, 128, False)

    @staticmethod
    def norm(x, gain):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, 3)
        return x * cos + torch.cat([-b, a], 3) * sin

    def forward(self, x, cos, sin, mask):
        y = self.norm(x, self.first)
        q = self.q(y).unflatten(2, (4, 32)).transpose(1, 2)
        k, v = self.kv(y).unflatten(2, (2, 32)).transpose(1, 2).chunk(2, 1)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(32) + mask, 3)
        x = x + self.o((weights @ v).transpose(1, 2).flatten(2))
        y = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(4000, 128), nn.Linear(128, CLASSES)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(3))
        angles = torch.arange(64).unsqueeze(1) * 10000.0 ** (-torch.arange(0, 32, 2) / 32)
        angles = torch.cat([angles, angles], 1)
        self.register_buffer("cos", torch.cos(angles))
        self.register_buffer("sin", torch.sin(angles))
        self.register_buffer("mask", torch.full((64, 64), -1e9).triu(1))

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.out(x[:, -1])


class TwoTowers(nn.Module):
    """A softmax over the items of the batch."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(4000, 32), nn.Embedding(4000, 32)
        tower = lambda: nn.Sequential(nn.Linear(256, 256), nn.ELU(), nn.LayerNorm(256), nn.Linear(256, 64))
        self.left, self.right = tower(), tower()

    def forward(self, user, item):
        u = F.normalize(self.left(self.user(user).flatten(1)), dim=1)
        v = F.normalize(self.right(self.item(item).flatten(1)), dim=1)
        return u @ v.t() / 0.1


class Experts(nn.Module):
    """Eight gated experts, of which each row uses two."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(256, 8)
        self.a, self.b = nn.Parameter(torch.randn(8, 256, 384) * 0.05), nn.Parameter(torch.randn(8, 256, 384) * 0.05)
        self.c, self.out = nn.Parameter(torch.randn(8, 384, 128) * 0.05), nn.Linear(128, CLASSES)

    def forward(self, dense):
        scores = self.gate(dense)
        top = torch.topk(scores, 2, 1)[0][:, 1:]
        weights = torch.softmax(torch.where(scores >= top, scores, torch.full_like(scores, -1e9)), 1)
        x = dense.unsqueeze(0)
        y = (F.silu(x @ self.a) * (x @ self.b)) @ self.c
        return self.out((y * weights.t().unsqueeze(2)).sum(0))


class Tabular(nn.Module):
    """Residual layers with batch norm and gates over numbers and embeddings (after TabNet's blocks)."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(5000, 16), nn.BatchNorm1d(40)
        self.layers = nn.ModuleList(nn.Linear(n, 512) for n in (40 + 192, 256, 256, 256))
        self.norms = nn.ModuleList(nn.BatchNorm1d(512) for _ in range(4))
        self.out = nn.Linear(256, 1)

    def forward(self, dense, ids):
        x = torch.cat([self.norm(dense), self.table(ids).flatten(1)], 1)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y = F.glu(norm(layer(x)), 1)
            x = y if i == 0 else (x + y) * math.sqrt(0.5)
        return self.out(x).squeeze(1)


class Dilated(nn.Module):
    """Causal dilated convolutions with gates over a series (after WaveNet)."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(16, 64, 1)
        self.gates = nn.ModuleList(nn.Conv1d(64, 128, 2, dilation=2**i) for i in range(5))
        self.mixes = nn.ModuleList(nn.Conv1d(64, 64, 1) for _ in range(5))
        self.out = nn.Linear(64, CLASSES)

    def forward(self, dense):
        x, total = self.first(dense), 0
        for i, (gate, mix) in enumerate(zip(self.gates, self.mixes)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = mix(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.out(total.mean(2))


MODELS = {"xdeepfm": Xdeepfm, "autoint": Autoint, "convnext": Convnext, "mbconv": Mbconv, "unet": Unet, "mixer": Mixer,
          "gru4rec": Gru4rec, "decoder": Decoder, "two_towers": TwoTowers, "experts": Experts, "tabular": Tabular,
          "dilated": Dilated}
