"""A third set of models for torch_graphs.py, written fresh after the second one: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "tabtransformer": [("dense", "number", [12], 0), ("ids", "id", [16], 3000)],
    "perceiver": [("image", "number", [3, 32, 32], 0)],
    "diffusion": [("image", "number", [3, 16, 16], 0)],
    "din": [("seen", "id", [32], 4000), ("item", "id", [1], 4000), ("user", "id", [4], 4000)],
    "messages": [("ids", "id", [20], 1000), ("source", "id", [60], 20), ("target", "id", [60], 20)],
    "nerf": [("dense", "number", [16, 6], 0)],
    "inception": [("image", "number", [3, 24, 24], 0)],
    "conformer": [("dense", "number", [40, 24], 0)],
    "nbeats": [("dense", "number", [64], 0)],
    "scan": [("ids", "id", [48], 4000)],
    "routed": [("dense", "number", [128], 0)],
    "fields": [("ids", "id", [24], 4000)],
}
YES_NO = ("tabtransformer", "din", "fields")
CLASSES = 10


class TabTransformer(nn.Module):
    """PyTorch's encoder over columns of a table, beside normed numbers."""

    def __init__(self):
        super().__init__()
        self.table, self.column = nn.Embedding(3000, 32), nn.Parameter(torch.randn(16, 32) * 0.1)
        layer = lambda: nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, activation="gelu", batch_first=True)
        self.layers, self.norm = nn.Sequential(*[layer() for _ in range(3)]), nn.BatchNorm1d(12)
        self.out = nn.Sequential(nn.Linear(16 * 32 + 12, 256), nn.SELU(), nn.Linear(256, 64), nn.SELU(), nn.Linear(64, 1))

    def forward(self, dense, ids):
        x = self.layers(self.table(ids) + self.column)
        return self.out(torch.cat([x.flatten(1), self.norm(dense)], 1)).squeeze(1)


class Block(nn.Module):
    """Attention of one sequence over another, then layers; learned scale of the queries."""

    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads, self.query, self.context = heads, nn.LayerNorm(width), nn.LayerNorm(inner)
        self.q, self.kv, self.o = nn.Linear(width, width, False), nn.Linear(inner, 2 * width, False), nn.Linear(width, width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x, context):
        split = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(self.context(context)).chunk(2, 2)
        y = F.scaled_dot_product_attention(split(self.q(self.query(x))), split(k), split(v))
        x = x + self.o(y.transpose(1, 2).flatten(2))
        a, b = self.up(self.norm(x)).chunk(2, 2)
        return x + self.down(a * F.gelu(b))


class Perceiver(nn.Module):
    """Learned latents read patches, then each other (GEGLU)."""

    def __init__(self):
        super().__init__()
        self.latents, self.places = nn.Parameter(torch.randn(32, 96) * 0.2), nn.Parameter(torch.randn(256, 48) * 0.2)
        self.lift = nn.Linear(12, 48)
        self.read, self.own = Block(96, 48, 3), nn.ModuleList(Block(96, 96, 3) for _ in range(2))
        self.out = nn.Linear(96, CLASSES)

    def forward(self, image):
        patches = image.unflatten(3, (16, 2)).unflatten(2, (16, 2)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        context = self.lift(patches) + self.places
        x = self.read(self.latents.unsqueeze(0).expand(image.shape[0], -1, -1), context)
        for block in self.own:
            x = block(x, x)
        return self.out(x.mean(1))


class Residual(nn.Module):
    """Group norm, SiLU, a convolution, and a shift and scale by channels."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.a, self.b = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.by = nn.Linear(64, 2 * outputs)
        self.short = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.a(F.silu(self.first(x)))
        scale, shift = self.by(time)[:, :, None, None].chunk(2, 1)
        y = self.b(F.silu(self.second(y) * (1 + scale) + shift))
        return self.short(x) + y


class Diffusion(nn.Module):
    """Down, attention over pixels, up; each stage is told a number by its channels."""

    def __init__(self):
        super().__init__()
        self.first, self.time = nn.Conv2d(3, 32, 3, padding=1), nn.Sequential(nn.Linear(32, 64), nn.SiLU())
        self.down, self.middle, self.up = Residual(32, 64), Residual(64, 64), Residual(96, 32)
        self.smaller, self.norm = nn.Conv2d(64, 64, 4, 2, 1), nn.GroupNorm(4, 64)
        self.qkv, self.o = nn.Conv2d(64, 192, 1), nn.Conv2d(64, 64, 1)
        self.larger = nn.ConvTranspose2d(64, 64, 4, 2, 1)
        self.out, self.last = nn.Linear(32, CLASSES), nn.Conv2d(32, 3, 1)
        self.register_buffer("rates", torch.exp(-torch.arange(16) * math.log(1000) / 16))

    def forward(self, image):
        angles = image.mean((1, 2, 3))[:, None] * 100 * self.rates
        time = self.time(torch.cat([torch.sin(angles), torch.cos(angles)], 1))
        a = self.first(image)
        x = self.smaller(self.down(a, time))
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, 1)
        weights = torch.softmax(q.transpose(1, 2) @ k / 8, 2)
        x = x + self.o((v @ weights.transpose(1, 2)).unflatten(2, (8, 8)))
        x = self.up(torch.cat([self.larger(self.middle(x, time)), a], 1), time)
        return self.out(x.mean((2, 3))), F.mse_loss(self.last(x), image)


class Dice(nn.Module):
    """A gate by the batch's statistics between two slopes."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.slope = nn.BatchNorm1d(width, affine=False), nn.Parameter(torch.full((width,), 0.25))

    def forward(self, x):
        p = torch.sigmoid(self.norm(x))
        return p * x + (1 - p) * self.slope * x


class Din(nn.Module):
    """Layers over each item that was seen, beside the target; lists have their own lengths (id 1 is none)."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 32)
        self.unit = nn.Sequential(nn.Linear(128, 64), nn.PReLU(), nn.Linear(64, 16), nn.PReLU(), nn.Linear(16, 1))
        self.layers, self.dices = nn.ModuleList([nn.Linear(192, 128), nn.Linear(128, 64)]), nn.ModuleList([Dice(128), Dice(64)])
        self.out = nn.Linear(64, 1)

    def forward(self, seen, item, user):
        keys, target = self.table(seen), self.table(item)[:, 0]
        query = target.unsqueeze(1).expand_as(keys)
        weights = self.unit(torch.cat([query, keys, query - keys, query * keys], 2)).squeeze(2)
        weights = torch.where(seen > 1, weights, torch.zeros_like(weights))
        interest = torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
        x = torch.cat([interest, target, self.table(user).flatten(1)], 1)
        for layer, dice in zip(self.layers, self.dices):
            x = dice(layer(x))
        return self.out(x).squeeze(1)


class Messages(nn.Module):
    """Layers over edges, sums at nodes, and a gated update, twice with the same weights."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 48)
        self.edge = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 48))
        self.gates, self.new = nn.Linear(96, 96), nn.Linear(96, 48)
        self.score, self.out = nn.Linear(48, 1), nn.Linear(48, CLASSES)

    def forward(self, ids, source, target):
        x = self.table(ids)
        pick = lambda t, at: torch.gather(t, 1, at.unsqueeze(2).expand(-1, -1, 48))
        for _ in range(2):
            sent = self.edge(torch.cat([pick(x, source), pick(x, target)], 2))
            got = torch.zeros_like(x).scatter_add(1, target.unsqueeze(2).expand(-1, -1, 48), sent)
            update, reset = torch.sigmoid(self.gates(torch.cat([x, got], 2))).chunk(2, 2)
            x = (1 - update) * x + update * torch.tanh(self.new(torch.cat([reset * x, got], 2)))
        return self.out((torch.softmax(self.score(x), 1) * x).sum(1))


class Nerf(nn.Module):
    """Sines of places at several rates, deep layers with a skip, and densities that hide what is behind."""

    def __init__(self):
        super().__init__()
        layer = lambda i: nn.Linear(i, 128)
        self.layers = nn.ModuleList([layer(39), layer(128), layer(128), layer(128 + 39), layer(128), layer(128)])
        self.density, self.colour, self.last = nn.Linear(128, 1), nn.Linear(128 + 27, 64), nn.Linear(64, CLASSES)

    @staticmethod
    def lifted(x, rates):
        angles = (x.unsqueeze(3) * 2.0 ** torch.arange(rates, device=x.device)).flatten(2)
        return torch.cat([x, torch.sin(angles), torch.cos(angles)], 2)

    def forward(self, dense):
        place, view = self.lifted(dense[:, :, :3], 6), self.lifted(dense[:, :, 3:], 4)
        x = place
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, place], 2) if i == 3 else x))
        density = F.softplus(self.density(x)).squeeze(2) * 0.1
        weights = (1 - torch.exp(-density)) * torch.exp(density - torch.cumsum(density, 1))
        colours = self.last(F.relu(self.colour(torch.cat([x, view], 2))))
        return (weights.unsqueeze(2) * colours).sum(1)


class Branches(nn.Module):
    """Four ways side by side, joined by channels."""

    def __init__(self, inputs):
        super().__init__()
        conv = lambda i, o, k: nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.one, self.three = conv(inputs, 32, 1), nn.Sequential(conv(inputs, 24, 1), conv(24, 48, 3))
        self.five = nn.Sequential(conv(inputs, 8, 1), conv(8, 16, 3), conv(16, 16, 3))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, 32, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.Hardswish())
        self.body = nn.Sequential(Branches(32), nn.AvgPool2d(2), Branches(128), nn.MaxPool2d(2), Branches(128))
        self.out = nn.Linear(128, CLASSES)

    def forward(self, image):
        return self.out(self.body(self.first(image)).amax((2, 3)))


class Conformer(nn.Module):
    """Half steps of layers around attention with a learned bias by distance, and a gated depthwise convolution."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(24, 64)
        half = lambda: nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 64))
        self.before, self.after, self.norms = half(), half(), nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.qkv, self.o, self.distance = nn.Linear(64, 192), nn.Linear(64, 64), nn.Parameter(torch.randn(4, 79) * 0.1)
        self.gate, self.deep, self.batch = nn.Conv1d(64, 128, 1), nn.Conv1d(64, 64, 7, padding=3, groups=64), nn.BatchNorm1d(64)
        self.mix, self.out = nn.Conv1d(64, 64, 1), nn.Linear(64, CLASSES)
        self.register_buffer("apart", torch.arange(40)[:, None] - torch.arange(40)[None, :] + 39)

    def forward(self, dense):
        x = self.lift(dense)
        x = x + 0.5 * self.before(x)
        q, k, v = self.qkv(self.norms[0](x)).unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(2, 3) / 4 + self.distance[:, self.apart], 3)
        x = x + self.o((weights @ v).transpose(1, 2).flatten(2))
        y = F.glu(self.gate(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.mix(F.silu(self.batch(self.deep(y)))).transpose(1, 2)
        return self.out(self.norms[2](x + 0.5 * self.after(x)).mean(1))


class Nbeats(nn.Module):
    """Blocks that take out of a series what they explain; a penalty on what is left."""

    def __init__(self):
        super().__init__()
        block = lambda: nn.ModuleList([nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 64), nn.Linear(256, CLASSES)])
        self.blocks = nn.ModuleList(block() for _ in range(6))

    def forward(self, dense):
        x, total = dense, 0
        for a, b, c, back, ahead in self.blocks:
            h = F.relu(c(F.relu(b(F.relu(a(x))))))
            x, total = x - back(h), total + ahead(h)
        return total, 0.1 * x.abs().mean()


class Scan(nn.Module):
    """Gated linear recurrences as sums of logarithms along the sequence (after minimal GRUs)."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(4000, 64), nn.Linear(64, CLASSES)
        self.gates, self.news = nn.ModuleList(nn.Linear(64, 64) for _ in range(2)), nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(64) for _ in range(2))

    def forward(self, ids):
        x = self.table(ids)
        for gate, new, norm in zip(self.gates, self.news, self.norms):
            y = norm(x)
            k = gate(y)
            kept = torch.cumsum(-F.softplus(k), 1)
            written = -F.softplus(-k) + F.logsigmoid(new(y))
            x = x + torch.exp(kept) * torch.cumsum(torch.exp(written - kept), 1)
        return self.out(x[:, -1])


class Routed(nn.Module):
    """Each row is multiplied by two of sixteen matrices by one-hot sums, with noise-free gates and a balance loss."""

    def __init__(self):
        super().__init__()
        self.gate, self.norm = nn.Linear(128, 16, False), nn.RMSNorm(128)
        self.up, self.down = nn.Parameter(torch.randn(16, 128, 192) * 0.08), nn.Parameter(torch.randn(16, 192, 128) * 0.08)
        self.out = nn.Linear(128, CLASSES)

    def forward(self, dense):
        chances = torch.softmax(self.gate(dense), 1)
        best, at = torch.topk(chances, 2, 1)
        weights = (F.one_hot(at, 16).float() * (best / best.sum(1, keepdim=True)).unsqueeze(2)).sum(1)
        h = F.relu(torch.einsum("bi,eio->beo", dense, self.up)) ** 2
        y = torch.einsum("beo,eoi,be->bi", h, self.down, weights)
        busy = (F.one_hot(at[:, 0], 16).float().mean(0) * chances.mean(0)).sum() * 16
        return self.out(self.norm(dense + y)), 0.01 * busy


class Fields(nn.Module):
    """Convolutions over the table of fields and their places (after FGCNN), pairs, and a gate by instance norm."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4000, 16)
        self.a, self.b = nn.Conv2d(1, 8, (5, 1), padding=(2, 0)), nn.Conv2d(8, 8, (5, 1), padding=(2, 0))
        self.recombine, self.norm = nn.Linear(8 * 6 * 16, 12 * 16), nn.InstanceNorm1d(24, affine=True)
        self.deep = nn.Sequential(nn.Linear(36 * 16 + 630, 256), nn.LayerNorm(256), nn.LeakyReLU(0.05), nn.Linear(256, 1))
        rows, columns = torch.triu_indices(36, 36, 1)
        self.register_buffer("at", rows * 36 + columns)

    def forward(self, ids):
        x = self.table(ids)
        y = F.max_pool2d(torch.tanh(self.a(x.unsqueeze(1))), (2, 1))
        y = F.max_pool2d(torch.tanh(self.b(y)), (2, 1))
        made = torch.tanh(self.recombine(y.flatten(1))).unflatten(1, (12, 16))
        z = torch.cat([x * torch.sigmoid(self.norm(x)), made], 1)
        dots = torch.bmm(z, z.transpose(1, 2)).flatten(1)[:, self.at]
        return self.deep(torch.cat([z.flatten(1), dots], 1)).squeeze(1)


MODELS = {"tabtransformer": TabTransformer, "perceiver": Perceiver, "diffusion": Diffusion, "din": Din, "messages": Messages,
          "nerf": Nerf, "inception": Inception, "conformer": Conformer, "nbeats": Nbeats, "scan": Scan, "routed": Routed,
          "fields": Fields}
