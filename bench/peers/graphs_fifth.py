"""A fifth set of models for torch_graphs.py, written after the passes that the others led to: none was tuned for."""
import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "senet_cross": [("dense", "number", [13], 0), ("ids", "id", [22], 4000)],
    "latents": [("ids", "id", [96], 4000)],
    "top_two": [("dense", "number", [128], 0)],
    "t5": [("ids", "id", [40], 4000), ("seen", "id", [40], 2)],
    "swiglu_mlp": [("dense", "number", [160], 0)],
    "deep_set": [("dense", "number", [32, 12], 0)],
    "window": [("image", "number", [3, 28, 28], 0)],
    "alibi": [("ids", "id", [80], 4000)],
}
YES_NO = ("senet_cross",)
CLASSES = 10


def softmax(x, axis):
    """As people write it by hand."""
    e = torch.exp(x - x.amax(axis, keepdim=True))
    return e / e.sum(axis, keepdim=True)


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class SenetCross(nn.Module):
    """Fields are squeezed and excited, then crossed; a low-rank cross network beside a deep one."""

    def __init__(self):
        super().__init__()
        width = 13 + 22 * 16
        self.table = nn.Embedding(4000, 16)
        self.squeeze, self.excite = nn.Linear(44, 8), nn.Linear(8, 22)
        self.down, self.up = (nn.ModuleList(nn.Linear(a, b, i == 1) for _ in range(3)) for i, (a, b) in enumerate([(width, 48), (48, width)]))
        self.deep = nn.Sequential(nn.Linear(width, 192), nn.SiLU(), nn.Linear(192, 96), nn.SiLU())
        self.out = nn.Linear(width + 96, 1)

    def forward(self, dense, ids):
        e = self.table(ids)
        gates = torch.sigmoid(self.excite(F.relu(self.squeeze(torch.cat([e.mean(2), e.amax(2)], 1)))))
        first = torch.cat([torch.sign(dense) * torch.log1p(dense.abs()), (e * gates.unsqueeze(2)).flatten(1)], 1)
        x = first
        for down, up in zip(self.down, self.up):
            x = first * up(torch.tanh(down(x))) + x
        return self.out(torch.cat([x, self.deep(first)], 1)).squeeze(1)


class Latents(nn.Module):
    """Learned latents read a sequence, then one another; softmax by hand, heads by einsum."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(4000, 64), nn.Parameter(torch.randn(96, 64) * 0.1)
        self.latents = nn.Parameter(torch.randn(16, 64) * 0.3)
        self.norms = nn.ModuleList(Rms(64) for _ in range(4))
        self.q, self.kv, self.o = (nn.ModuleList(nn.Linear(64, w, False) for _ in range(2)) for w in (64, 128, 64))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 160), nn.GELU("tanh"), nn.Linear(160, 64)) for _ in range(2))
        self.out = nn.Linear(64, CLASSES)

    def attend(self, i, x, y):
        q, (k, v) = self.q[i](self.norms[2 * i](x)).unflatten(2, (4, 16)), self.kv[i](y).unflatten(2, (2, 4, 16)).unbind(2)
        weights = softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1)
        return x + self.o[i](torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))

    def forward(self, ids):
        y = self.table(ids) + self.places
        x = self.latents.expand(ids.shape[0], -1, -1)
        for i, layer in enumerate(self.layers):
            x = self.attend(i, x, x if i else y)
            x = x + layer(self.norms[2 * i + 1](x))
        return self.out(x.mean(1))


class TopTwo(nn.Module):
    """Two experts of eight a row, as masked sums of all of them, with a loss that keeps them busy."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(128, 8, False)
        self.up, self.gated, self.down = (nn.Parameter(torch.randn(8, a, b) * 0.07) for a, b in ((128, 176), (128, 176), (176, 128)))
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, CLASSES)

    def forward(self, dense):
        x = self.norm(dense)
        scores = self.gate(x)
        best = torch.topk(scores, 2, 1)[0][:, 1:]
        weights = torch.softmax(scores.masked_fill(scores < best, float("-inf")), 1)
        h = F.silu(torch.einsum("bi,eio->ebo", x, self.gated)) * torch.einsum("bi,eio->ebo", x, self.up)
        y = torch.einsum("ebo,eoi,be->bi", h, self.down, weights)
        return self.out(dense + y), 0.01 * (torch.logsumexp(scores, 1) ** 2).mean()


class T5Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Rms(96), Rms(96)
        self.qkv, self.o = nn.Linear(96, 288, False), nn.Linear(96, 96, False)
        self.a, self.b, self.down = nn.Linear(96, 256, False), nn.Linear(96, 256, False), nn.Linear(256, 96, False)

    def forward(self, x, bias):
        q, k, v = self.qkv(self.first(x)).unflatten(2, (3, 6, 16)).permute(2, 0, 3, 1, 4)
        x = x + self.o((F.softmax(q @ k.mT + bias, -1) @ v).transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.gelu(self.a(y), approximate="tanh") * self.b(y))


class T5(nn.Module):
    """An encoder with a learned bias by distance, added to a mask of what is there."""

    def __init__(self):
        super().__init__()
        self.table, self.bias = nn.Embedding(4000, 96), nn.Embedding(79, 6)
        self.layers, self.norm, self.out = nn.ModuleList(T5Layer() for _ in range(2)), Rms(96), nn.Linear(96, CLASSES)
        self.register_buffer("away", torch.arange(40)[None, :] - torch.arange(40)[:, None] + 39)

    def forward(self, ids, seen):
        there = torch.cat([torch.ones_like(seen[:, :1]), seen[:, 1:]], 1).float()
        bias = self.bias(self.away).permute(2, 0, 1)[None] + (1 - there)[:, None, None, :] * -1e4
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, bias)
        x = self.norm(x) * there.unsqueeze(2)
        return self.out(x.sum(1) / there.sum(1, keepdim=True))


class SwigluMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(160, 256)
        self.norms = nn.ModuleList(Rms(256) for _ in range(4))
        self.both, self.down = (nn.ModuleList(nn.Linear(a, b, False) for _ in range(4)) for a, b in ((256, 1366), (683, 256)))
        self.out = nn.Linear(256, CLASSES)

    def forward(self, dense):
        x = self.first(dense)
        for norm, both, down in zip(self.norms, self.both, self.down):
            a, b = both(norm(x)).chunk(2, 1)
            x = x + down(F.silu(a) * b)
        return self.out(x)


class DeepSet(nn.Module):
    """Members of a set by themselves, less the largest of all; then the largest and the mean of what is left."""

    def __init__(self):
        super().__init__()
        self.one, self.all = (nn.ModuleList(nn.Linear(a, b, i == 0) for a, b in ((12, 96), (96, 128), (128, 128))) for i in range(2))
        self.norm = nn.LayerNorm([32, 128], elementwise_affine=False)
        self.out = nn.Sequential(nn.Linear(256, 96), nn.ELU(), nn.Linear(96, CLASSES))

    def forward(self, dense):
        x = dense
        for one, every in zip(self.one, self.all):
            x = F.elu(one(x) - every(x.amax(1, keepdim=True)))
        x = self.norm(x)
        return self.out(torch.cat([x.amax(1), x.mean(1)], 1))


class Window(nn.Module):
    """Attention in windows of 7 x 7 places with a learned bias, the second time shifted and masked."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.out = nn.Conv2d(3, 64, 2, stride=2), nn.LayerNorm(64), nn.Linear(64, CLASSES)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(4))
        self.qkv, self.o = (nn.ModuleList(nn.Linear(64, w) for _ in range(2)) for w in (192, 64))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 192), nn.GELU(), nn.Linear(192, 64)) for _ in range(2))
        self.bias = nn.ParameterList(torch.randn(169, 4) * 0.1 for _ in range(2))
        at = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
        away = at[:, :, None] - at[:, None, :] + 6
        self.register_buffer("away", (away[0] * 13 + away[1]).flatten())
        part = torch.zeros(14, 14)
        for i, rows in enumerate((slice(0, 7), slice(7, 11), slice(11, 14))):
            for j, columns in enumerate((slice(0, 7), slice(7, 11), slice(11, 14))):
                part[rows, columns] = 3 * i + j
        part = self.windows(part[None, :, :, None]).squeeze(2)
        self.register_buffer("mask", torch.where(part[:, None] == part[:, :, None], 0.0, -100.0))

    @staticmethod
    def windows(x):
        b, h, w, c = x.shape
        return x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)

    def attend(self, i, x, mask):
        q, k, v = self.qkv[i](x).reshape(-1, 49, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * 0.25) @ k.transpose(-2, -1) + self.bias[i][self.away].view(49, 49, 4).permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            scores = (scores.view(-1, 4, 4, 49, 49) + mask.unsqueeze(1).unsqueeze(0)).view(-1, 4, 49, 49)
        return self.o[i]((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 49, 64))

    def forward(self, image):
        x = self.patches(image).permute(0, 2, 3, 1)
        for i, layer in enumerate(self.layers):
            y = self.norms[2 * i](x)
            y = torch.roll(y, (-3, -3), (1, 2)) if i else y
            y = self.attend(i, self.windows(y), self.mask if i else None)
            y = y.view(-1, 2, 2, 7, 7, 64).permute(0, 1, 3, 2, 4, 5).reshape(-1, 14, 14, 64)
            x = x + (torch.roll(y, (3, 3), (1, 2)) if i else y)
            x = x + layer(self.norms[2 * i + 1](x))
        return self.out(self.norm(x).mean((1, 2)))


class Alibi(nn.Module):
    """A decoder whose scores fall with the distance, by a slope for each head; parallel layers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 128)
        self.norms = nn.ModuleList(nn.LayerNorm(128, bias=False) for _ in range(3))
        self.all, self.o, self.down = (nn.ModuleList(nn.Linear(a, b, False) for _ in range(2)) for a, b in ((128, 896), (128, 128), (512, 128)))
        self.out = nn.Linear(128, CLASSES)
        away = torch.arange(80)[None, :] - torch.arange(80)[:, None]
        slopes = 2.0 ** -(torch.arange(8) + 1.0)
        self.register_buffer("bias", torch.where(away > 0, float("-inf"), away * slopes[:, None, None]))

    def forward(self, ids):
        x = self.table(ids)
        for norm, every, o, down in zip(self.norms, self.all, self.o, self.down):
            qkv, h = every(norm(x)).split([384, 512], 2)
            q, k, v = qkv.unflatten(2, (3, 8, 16)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
            x = x + o(y.transpose(1, 2).flatten(2)) + down(F.relu(h) ** 2)
        return self.out(self.norms[2](x)[:, -1])


MODELS = {"senet_cross": SenetCross, "latents": Latents, "top_two": TopTwo, "t5": T5, "swiglu_mlp": SwigluMlp, "deep_set": DeepSet,
          "window": Window, "alibi": Alibi}
