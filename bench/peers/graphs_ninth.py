"""A ninth set of models for torch_graphs.py, of kinds and losses that the others lack: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "interests": [("seen", "id", [40], 4000), ("item", "id", [1], 4000), ("user", "id", [3], 2000)],
    "behaviour": [("seen", "id", [20], 4000), ("age", "id", [20], 50), ("item", "id", [1], 4000), ("ids", "id", [5], 2000)],
    "layered_experts": [("ids", "id", [12], 2000), ("dense", "number", [16], 0), ("amount", "number", [1], 0)],
    "variational": [("dense", "number", [256], 0), ("noise", "number", [32], 0)],
    "retention": [("ids", "id", [48], 4000)],
    "response_norm": [("image", "number", [3, 32, 32], 0)],
    "adjacency": [("ids", "id", [24], 1000), ("near", "number", [24, 24], 0)],
    "hyper": [("ids", "id", [10], 2000), ("dense", "number", [8], 0)],
    "points": [("dense", "number", [64, 3], 0)],
    "shuffle": [("image", "number", [3, 32, 32], 0)],
    "ranked": [("seen", "id", [32], 4000), ("bought", "id", [32], 4000), ("other", "id", [32], 4000)],
    "spatial_gates": [("ids", "id", [64], 4000)],
}
YES_NO = ("interests", "behaviour", "layered_experts", "hyper", "ranked")
CLASSES = 10


def squash(x):
    """Capsules of a length below one: [rows, capsules, width]."""
    square = (x * x).sum(-1, keepdim=True)
    return x * (square / (1 + square) / torch.sqrt(square + 1e-9))


class Interests(nn.Module):
    """Capsules of a user's interests by three rounds of routing; the item picks among them."""

    def __init__(self):
        super().__init__()
        self.item, self.user = nn.Embedding(4000, 48), nn.Embedding(2000, 16)
        self.lift, self.start = nn.Linear(48, 48, False), nn.Parameter(torch.randn(1, 4, 40))
        self.mix = nn.Sequential(nn.Linear(48 + 48, 96), nn.ReLU(), nn.Linear(96, 48))
        self.out = nn.Sequential(nn.Linear(48 * 3, 64), nn.PReLU(), nn.Linear(64, 1))

    def forward(self, seen, item, user):
        x, target = self.lift(self.item(seen)), self.item(item).squeeze(1)
        there = (seen > 400).unsqueeze(1)  # [rows, 1, places]
        logits = self.start.expand(seen.shape[0], -1, -1)
        still = x.detach()
        for step in range(3):
            weights = torch.softmax(torch.where(there, logits, torch.full_like(logits, -1e4)), 1)
            weights = torch.where(there, weights, torch.zeros_like(weights))
            if step < 2:
                capsules = squash(torch.bmm(weights, still))
                logits = logits + torch.bmm(capsules, still.transpose(1, 2))
            else:
                capsules = squash(torch.bmm(weights, x))
        profile = self.user(user).flatten(1).unsqueeze(1).expand(-1, 4, -1)
        capsules = self.mix(torch.cat([capsules, profile], 2))  # [rows, interests, 48]
        score = (capsules * target.unsqueeze(1)).sum(2)
        chosen = torch.softmax(torch.pow(score.abs() + 1e-3, 1.5), 1)
        read = (capsules * chosen.unsqueeze(2)).sum(1)
        return self.out(torch.cat([read, target, read * target], 1)).squeeze(1)


class Behaviour(nn.Module):
    """A layer of attention over what a user did and the item, with ages; other ids beside it; focal loss."""

    def __init__(self):
        super().__init__()
        self.item, self.age, self.table = nn.Embedding(4000, 32), nn.Embedding(50, 32), nn.Embedding(2000, 16)
        self.qkv, self.o = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
        self.tower = nn.Sequential(nn.Linear(21 * 64 + 80, 512), nn.LeakyReLU(0.1), nn.Linear(512, 128), nn.LeakyReLU(0.1), nn.Linear(128, 1))

    def forward(self, seen, age, item, ids):
        now = torch.zeros_like(item)
        x = torch.cat([self.item(torch.cat([seen, item], 1)), self.age(torch.cat([age, now], 1))], 2)
        q, k, v = self.qkv(x).unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        missing = F.pad(seen < 800, (0, 1), value=False)[:, None, None, :]
        score = (q @ k.transpose(2, 3) / 4).masked_fill(missing, -1e9)
        y = (torch.softmax(score, 3) @ v).transpose(1, 2).flatten(2)
        x = self.first(x + self.o(y))
        x = self.second(x + self.down(F.leaky_relu(self.up(x))))
        return self.tower(torch.cat([x.flatten(1), self.table(ids).flatten(1)], 1)).squeeze(1)

    def loss(self, y, label):
        label = label.float()
        chance = torch.sigmoid(y)
        right = chance * label + (1 - chance) * (1 - label)
        weight = 0.25 * label + 0.75 * (1 - label)
        return (weight * (1 - right) ** 2 * F.binary_cross_entropy_with_logits(y, label, reduction="none")).mean()


class LayeredExperts(nn.Module):
    """Two levels of own and shared experts for three tasks, whose losses are weighed by learned uncertainty."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2000, 16)
        width = 12 * 16 + 16
        expert = lambda n: nn.Sequential(nn.Linear(n, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.experts = nn.ModuleList(nn.ModuleList(nn.ModuleList(expert(n) for _ in range(2)) for _ in range(4)) for n in (width, 64))
        self.gates = nn.ModuleList(nn.ModuleList([nn.Linear(n, 4, False) for _ in range(3)] + ([nn.Linear(n, 8, False)] if n == width else [])) for n in (width, 64))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(3))
        self.doubt = nn.Parameter(torch.zeros(3))

    def forward(self, ids, dense, amount):
        x = torch.cat([self.table(ids).flatten(1), dense], 1)
        inputs = [x] * 4  # three tasks and what they share
        for experts, gates in zip(self.experts, self.gates):
            made = [[e(inputs[t]) for e in experts[t]] for t in range(4)]
            outputs = []
            for t, gate in enumerate(gates):
                own = made[t] + made[3] if t < 3 else sum(made, [])
                weights = torch.softmax(gate(inputs[t]), 1)
                outputs.append(torch.einsum("be,bew->bw", weights, torch.stack(own, 1)))
            inputs = outputs
        click, buy, paid = (tower(v).squeeze(1) for tower, v in zip(self.towers, inputs))
        both = torch.sigmoid(click) * torch.sigmoid(buy)
        target = (amount.squeeze(1) > 0.7).float()
        second = -(target * torch.log(both + 1e-6) + (1 - target) * torch.log(1 - both + 1e-6)).mean()
        off = amount.squeeze(1) - paid
        third = torch.maximum(0.8 * off, -0.2 * off).mean()
        precision = torch.exp(-self.doubt)
        return click, precision[1] * second + precision[2] * third + self.doubt.sum()


class Variational(nn.Module):
    """A variational autoencoder whose latents are classified as well."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 512), nn.Softplus(), nn.Linear(512, 128), nn.Softplus())
        self.mean, self.spread = nn.Linear(128, 32), nn.Linear(128, 32)
        self.decoder = nn.Sequential(nn.Linear(32, 128), nn.Mish(), nn.Linear(128, 512), nn.Mish(), nn.Linear(512, 256))
        self.out = nn.Linear(32, CLASSES)

    def forward(self, dense, noise):
        h = self.encoder(dense)
        mean, spread = self.mean(h), self.spread(h).clamp(-6, 4)
        z = mean + torch.exp(0.5 * spread) * noise
        made = self.decoder(z)
        apart = F.smooth_l1_loss(made, dense, reduction="none").sum(1).mean()
        divergence = -0.5 * (1 + spread - mean ** 2 - torch.exp(spread)).sum(1).mean()
        return self.out(mean), 0.01 * apart + 0.001 * divergence


class Retention(nn.Module):
    """Products of queries and keys that fade by distance in place of a softmax, group norm, gates; shifted channel mixing."""

    def __init__(self):
        super().__init__()
        self.table, self.out, self.norm = nn.Embedding(4000, 64), nn.Linear(64, CLASSES), nn.LayerNorm(64)
        self.qkvg, self.o = nn.ModuleList(nn.Linear(64, 256, False) for _ in range(2)), nn.ModuleList(nn.Linear(64, 64, False) for _ in range(2))
        self.heads, self.norms = nn.ModuleList(nn.GroupNorm(4, 64) for _ in range(2)), nn.ModuleList(nn.LayerNorm(64) for _ in range(4))
        self.shift = nn.ParameterList(torch.rand(64) for _ in range(2))
        self.key, self.receive, self.value = (nn.ModuleList(nn.Linear(a, b, False) for _ in range(2)) for a, b in ((64, 192), (64, 64), (192, 64)))
        place = torch.arange(48)
        apart = (place[:, None] - place[None, :]).float()
        fade = torch.log(1 - 2.0 ** (-3 - torch.arange(4).float()))[:, None, None]
        self.register_buffer("fade", torch.where(apart >= 0, torch.exp(fade * apart), torch.zeros(())) / 4)
        angle = place[:, None] * 10000.0 ** (-torch.arange(8) / 8)
        self.register_buffer("sin", torch.sin(angle).repeat_interleave(2, 1))
        self.register_buffer("cos", torch.cos(angle).repeat_interleave(2, 1))

    def turn(self, x):
        other = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
        return x * self.cos + other * self.sin

    def forward(self, ids):
        x = self.table(ids)
        for i in range(2):
            q, k, v, g = self.qkvg[i](self.norms[2 * i](x)).chunk(4, 2)
            q, k, v = (t.unflatten(2, (4, 16)).transpose(1, 2) for t in (q, k, v))
            kept = self.turn(q) @ self.turn(k).transpose(2, 3) * self.fade
            kept = kept / kept.detach().abs().sum(3, keepdim=True).clamp(1, 1000)
            y = (kept @ v).transpose(1, 2).flatten(2)
            y = self.heads[i](y.flatten(0, 1)).view_as(y)
            x = x + self.o[i](F.silu(g) * y)
            y = self.norms[2 * i + 1](x)
            before = F.pad(y, (0, 0, 1, -1))
            mixed = y * self.shift[i] + before * (1 - self.shift[i])
            x = x + torch.sigmoid(self.receive[i](mixed)) * self.value[i](F.relu(self.key[i](mixed)) ** 2)
        return self.out(self.norm(x).mean(1))


class ResponseBlock(nn.Module):
    """Depthwise convolution, norm, a wide layer whose channels compete by their response over the image."""

    def __init__(self, width):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gain, self.bias = nn.Parameter(torch.rand(4 * width) * 0.1), nn.Parameter(torch.zeros(4 * width))

    def forward(self, x):
        y = F.gelu(self.up(self.norm(self.depth(x).permute(0, 2, 3, 1))))
        response = torch.sqrt((y * y).sum((1, 2), keepdim=True) + 1e-6)
        share = response / (response.mean(3, keepdim=True) + 1e-6)
        y = self.gain * (y * share) + self.bias + y
        return x + self.down(y).permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    """ConvNeXt's blocks with global response norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 40, 4, 4), nn.Conv2d(40, 80, 2, 2)
        self.a, self.b = nn.Sequential(*[ResponseBlock(40) for _ in range(2)]), nn.Sequential(*[ResponseBlock(80) for _ in range(2)])
        self.between, self.norm, self.out = nn.GroupNorm(1, 40), nn.LayerNorm(80), nn.Linear(80, CLASSES)

    def forward(self, image):
        x = self.b(self.second(self.between(self.a(self.first(image)))))
        return self.out(self.norm(x.mean((2, 3))))


class Adjacency(nn.Module):
    """A graph as a matrix of its edges: layers normed by degrees, then attention among neighbours, joined."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 48)
        self.gcn = nn.ModuleList([nn.Linear(48, 64), nn.Linear(64, 64)])
        self.w, self.sends, self.takes = nn.Linear(64, 64, False), nn.Parameter(torch.randn(4, 16) * 0.2), nn.Parameter(torch.randn(4, 16) * 0.2)
        self.pool, self.out = nn.Linear(192, 1), nn.Sequential(nn.Linear(192, 96), nn.ELU(), nn.Linear(96, CLASSES))

    def forward(self, ids, near):
        edge = ((near + near.transpose(1, 2)) > 0.8).float()
        edge = torch.maximum(edge, torch.eye(24, device=edge.device))
        degree = torch.rsqrt(edge.sum(2))
        norm = edge * degree.unsqueeze(2) * degree.unsqueeze(1)
        x, kept = self.table(ids), []
        for layer in self.gcn:
            x = F.relu(torch.bmm(norm, layer(x)))
            kept.append(x)
        h = self.w(x).unflatten(2, (4, 16))
        score = (h * self.sends).sum(3).unsqueeze(2) + (h * self.takes).sum(3).unsqueeze(1)  # [rows, nodes, nodes, heads]
        score = F.leaky_relu(score, 0.2).masked_fill(edge.unsqueeze(3) == 0, float("-inf"))
        kept.append(F.elu(torch.einsum("bijh,bjhd->bihd", torch.softmax(score, 2), h).flatten(2)))
        x = torch.cat(kept, 2)
        return self.out((torch.softmax(self.pool(x), 1) * x).sum(1))


class Hyper(nn.Module):
    """Numbers make the layers of each row, which a factorisation machine and products of fields stand beside; hinge loss."""

    def __init__(self):
        super().__init__()
        self.table, self.line = nn.Embedding(2000, 16), nn.Embedding(2000, 1)
        self.context = nn.Sequential(nn.Linear(8, 64), nn.Tanh())
        self.left, self.right, self.bias = nn.Linear(64, 160 * 4), nn.Linear(64, 4 * 32), nn.Linear(64, 32)
        self.scale, self.shift = nn.Linear(64, 10), nn.Linear(64, 10)
        self.pair = nn.Parameter(torch.randn(10, 16, 16) * 0.1)
        self.out = nn.Sequential(nn.Linear(32 + 45, 64), nn.Hardswish(), nn.Linear(64, 1))

    def forward(self, ids, dense):
        v, context = self.table(ids), self.context(dense)
        wide = self.line(ids).sum((1, 2))
        second = 0.01 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1)
        v = v * (1 + self.scale(context)).unsqueeze(2) + self.shift(context).unsqueeze(2)
        left, right = self.left(context).unflatten(1, (160, 4)), self.right(context).unflatten(1, (4, 32))
        made = torch.bmm(torch.bmm(v.flatten(1).unsqueeze(1), left), right).squeeze(1) + self.bias(context)
        i, j = torch.triu_indices(10, 10, 1)
        pairs = (torch.einsum("bfi,fij->bfj", v, self.pair)[:, i] * v[:, j]).sum(2)
        return self.out(torch.cat([F.hardtanh(made), pairs], 1)).squeeze(1) + wide + second

    def loss(self, y, label):
        sign = 2 * label.float() - 1
        return (F.relu(1 - sign * y) ** 2).mean()


class Points(nn.Module):
    """Clouds of points that are turned by what they learn of themselves; the largest of each channel."""

    def __init__(self):
        super().__init__()
        unit = lambda a, b: nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        self.turn, self.turned = nn.Sequential(unit(3, 32), unit(32, 128)), nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 9))
        self.a, self.b = nn.Sequential(unit(3, 64), unit(64, 64)), nn.Sequential(unit(64 + 64, 128), unit(128, 256))
        self.out = nn.Sequential(nn.Linear(512, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, dense):
        x = dense.transpose(1, 2)
        one = torch.eye(3, device=dense.device)
        matrix = self.turned(self.turn(x).amax(2)).unflatten(1, (3, 3)) + one
        x = self.a(torch.bmm(matrix, x))
        whole = x.amax(2, keepdim=True).expand(-1, -1, 64)
        x = self.b(torch.cat([x, whole], 1))
        skew = ((torch.bmm(matrix, matrix.transpose(1, 2)) - one) ** 2).sum((1, 2)).mean()
        return self.out(torch.cat([x.amax(2), x.mean(2)], 1)), 0.001 * skew


class ShuffleUnit(nn.Module):
    """Half of the channels pass, the other half is convolved; both are shuffled. With a stride both are convolved."""

    def __init__(self, enter, width, stride):
        super().__init__()
        half, self.stride = width // 2, stride
        inner = half
        self.main = nn.Sequential(nn.Conv2d(enter, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
                                  nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner),
                                  nn.Conv2d(inner, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())
        if stride > 1:
            self.side = nn.Sequential(nn.Conv2d(enter, enter, 3, stride, 1, groups=enter, bias=False), nn.BatchNorm2d(enter),
                                      nn.Conv2d(enter, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, x):
        a, b = x.chunk(2, 1) if self.stride == 1 else (self.side(x), x)
        x = torch.cat([a, self.main(b)], 1)
        rows, channels, height, width = x.shape
        return x.view(rows, 2, channels // 2, height, width).transpose(1, 2).reshape(rows, channels, height, width)


class Shuffle(nn.Module):
    """ShuffleNet's units, with labels that are smoothed."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.units = nn.Sequential(ShuffleUnit(24, 48, 2), ShuffleUnit(24, 48, 1), ShuffleUnit(48, 96, 2), ShuffleUnit(48, 96, 1))
        self.last, self.out = nn.Sequential(nn.Conv2d(96, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU()), nn.Linear(128, CLASSES)

    def forward(self, image):
        return self.out(self.last(self.units(self.first(image))).mean((2, 3)))

    def loss(self, y, label):  # PyTorch's exporter leaves label_smoothing out
        chances = torch.log_softmax(y, 1)
        return -0.9 * torch.gather(chances, 1, label.unsqueeze(1)).mean() - 0.1 * chances.mean()


class Ranked(nn.Module):
    """Causal attention over what was seen; what was bought next must lie above another item at each place."""

    def __init__(self):
        super().__init__()
        self.table, self.place = nn.Embedding(4000, 48), nn.Parameter(torch.randn(32, 48) * 0.05)
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(48, eps=1e-8) for _ in range(4)), nn.LayerNorm(48, eps=1e-8)
        self.attention = nn.ModuleList(nn.MultiheadAttention(48, 2, batch_first=True) for _ in range(2))
        self.first, self.second = (nn.ModuleList(nn.Conv1d(48, 48, 1) for _ in range(2)) for _ in range(2))
        self.register_buffer("later", torch.triu(torch.ones(32, 32, dtype=torch.bool), 1))

    def forward(self, seen, bought, other):
        there = (seen > 300).float().unsqueeze(2)
        x = (self.table(seen) * math.sqrt(48) + self.place) * there
        for i in range(2):
            q = self.norms[2 * i](x)
            x = q + self.attention[i](q, x, x, attn_mask=self.later, need_weights=False)[0]
            y = self.norms[2 * i + 1](x)
            x = y + self.second[i](F.relu(self.first[i](y.transpose(1, 2)))).transpose(1, 2)
            x = x * there
        x = self.last(x)
        above = (x * self.table(bought)).sum(2) - (x * self.table(other)).sum(2)
        there = there.squeeze(2)
        pairs = -(F.logsigmoid(above) * there).sum() / (there.sum() + 1)
        return (above * there).sum(1) / 32, pairs


class SpatialGates(nn.Module):
    """gMLP: a layer along the sequence gates the channels; classes with sums of squares of their logits."""

    def __init__(self):
        super().__init__()
        self.table, self.out, self.last = nn.Embedding(4000, 64), nn.Linear(64, CLASSES), nn.LayerNorm(64)
        self.norm, self.gate = nn.ModuleList(nn.LayerNorm(64) for _ in range(3)), nn.ModuleList(nn.LayerNorm(128) for _ in range(3))
        self.up, self.down = nn.ModuleList(nn.Linear(64, 256) for _ in range(3)), nn.ModuleList(nn.Linear(128, 64) for _ in range(3))
        self.along = nn.ModuleList(nn.Conv1d(64, 64, 1) for _ in range(3))

    def forward(self, ids):
        x = self.table(ids)
        for norm, gate, up, down, along in zip(self.norm, self.gate, self.up, self.down, self.along):
            a, b = F.gelu(up(norm(x)), approximate="tanh").chunk(2, 2)
            x = x + down(a * (along(gate(b)) + 1))
        y = self.out(self.last(x).mean(1))
        return y, 1e-3 * (torch.logsumexp(y, 1) ** 2).mean()


MODELS = {"interests": Interests, "behaviour": Behaviour, "layered_experts": LayeredExperts, "variational": Variational,
          "retention": Retention, "response_norm": ResponseNorm, "adjacency": Adjacency, "hyper": Hyper, "points": Points,
          "shuffle": Shuffle, "ranked": Ranked, "spatial_gates": SpatialGates}
