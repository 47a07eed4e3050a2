"""An eighth set of models for torch_graphs.py, of kinds that the others lack: none was tuned for."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "linear_attention": [("ids", "id", [64], 4000)],
    "edges": [("ids", "id", [24], 1000), ("source", "id", [96], 24), ("target", "id", [96], 24)],
    "dispatch": [("dense", "number", [96], 0)],
    "tabnet": [("dense", "number", [20], 0), ("ids", "id", [10], 2000)],
    "memory": [("dense", "number", [1, 64], 0), ("ids", "id", [6], 2000)],
    "contrast": [("user", "id", [8], 4000), ("item", "id", [3], 2000)],
    "listwise": [("dense", "number", [20, 24], 0), ("grade", "id", [20], 5)],
}
YES_NO = ("tabnet", "contrast", "listwise")
CLASSES = 10


class LinearAttention(nn.Module):
    """Causal attention without a softmax: running sums of keys and of their products with values, that fade."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(4000, 64), nn.Linear(64, CLASSES)
        self.qkv, self.fade, self.o = nn.ModuleList(nn.Linear(64, 96) for _ in range(2)), nn.ModuleList(nn.Linear(64, 2) for _ in range(2)), nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))

    def forward(self, ids):
        x = self.table(ids)
        for qkv, fade, o, norm in zip(self.qkv, self.fade, self.o, self.norms):
            y = norm(x)
            q, k, v = qkv(y).unflatten(2, (3, 2, 16)).unbind(2)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            kept = torch.cumsum(F.logsigmoid(fade(y) + 3), 1).unsqueeze(3)  # [rows, places, heads, 1]
            k = k * torch.exp(-kept)
            state = torch.cumsum(k.unsqueeze(4) * v.unsqueeze(3), 1)
            total = torch.cumsum(k, 1)
            read = torch.einsum("bnhd,bnhde->bnhe", q, state) / ((q * total).sum(3, keepdim=True) + 1e-6)
            x = x + o(read.flatten(2))
        return self.out(x.mean(1))


class Edges(nn.Module):
    """Attention over the edges at each node (softmax by the largest and the sum there), means of neighbours, residuals."""

    def __init__(self):
        super().__init__()
        self.table, self.lift = nn.Embedding(1000, 48), nn.Linear(48, 64)
        self.q, self.k, self.v = (nn.ModuleList(nn.Linear(64, 64, False) for _ in range(2)) for _ in range(3))
        self.own, self.mean = (nn.ModuleList(nn.Linear(64, 64) for _ in range(2)) for _ in range(2))
        self.norms, self.out = nn.ModuleList(nn.LayerNorm(64) for _ in range(2)), nn.Linear(64, CLASSES)

    def forward(self, ids, source, target):
        x = F.gelu(self.lift(self.table(ids)))
        at = lambda index, width: index.unsqueeze(2).expand(-1, -1, width)
        for q, k, v, own, mean, norm in zip(self.q, self.k, self.v, self.own, self.mean, self.norms):
            y = norm(x)
            asked, keys, values = torch.gather(q(y), 1, at(target, 64)), torch.gather(k(y), 1, at(source, 64)), torch.gather(v(y), 1, at(source, 64))
            score = (asked * keys).unflatten(2, (4, 16)).sum(3) / 4  # [rows, edges, heads]
            score = torch.tanh(score / 8) * 8
            weight = torch.exp(score)
            total = torch.zeros_like(weight[:, :24]).scatter_add(1, at(target, 4), weight)
            weight = weight / (torch.gather(total, 1, at(target, 4)) + 1e-9)
            sent = (values.unflatten(2, (4, 16)) * weight.unsqueeze(3)).flatten(2)
            got = torch.zeros_like(x).scatter_add(1, at(target, 64), sent)
            count = torch.zeros_like(x[:, :, 0]).scatter_add(1, target, torch.ones_like(target, dtype=x.dtype)).clamp(min=1)
            near = torch.zeros_like(x).scatter_add(1, at(target, 64), torch.gather(x, 1, at(source, 64))) / count.unsqueeze(2)
            x = x + F.silu(own(got) + mean(near))
        return self.out(x.amax(1))


class Dispatch(nn.Module):
    """Two experts of eight a row, each with room for a share of the batch: rows find their places by running counts."""

    def __init__(self):
        super().__init__()
        self.first, self.gate = nn.Linear(96, 128), nn.Linear(128, 8, False)
        self.up, self.down = nn.Parameter(torch.randn(8, 128, 256) * 0.07), nn.Parameter(torch.randn(8, 256, 128) * 0.05)
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, CLASSES)

    def forward(self, dense):
        x = F.silu(self.first(dense))
        chances = torch.softmax(self.gate(x), 1)
        best, at = torch.topk(chances, 2, 1)
        chosen = F.one_hot(at, 8).float()  # [rows, 2, experts]
        order = chosen.transpose(0, 1).flatten(0, 1)  # first choices of all rows, then second ones
        place = (torch.cumsum(order, 0) - order).unflatten(0, (2, -1)).transpose(0, 1)
        room = (chosen * place).sum(2) * 10 < dense.shape[0] * 3
        weights = best * room.float()
        weights = weights / (weights.sum(1, keepdim=True) + 1e-9)
        gates = (chosen * weights.unsqueeze(2)).sum(1)
        h = F.gelu(torch.einsum("bi,eio->ebo", x, self.up))
        y = torch.einsum("ebo,eoi->ebi", h, self.down)
        y = (y * gates.t().unsqueeze(2)).sum(0)
        busy = (chosen[:, 0].mean(0) * chances.mean(0)).sum() * 8
        return self.out(self.norm(x + y)), 0.01 * busy


def sparsemax(x):
    """The nearest point whose numbers are chances: most of them are zero."""
    z = torch.sort(x, 1, descending=True)[0]
    rank = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    sums = torch.cumsum(z, 1)
    support = (1 + rank * z > sums).to(x.dtype)
    count = support.sum(1, keepdim=True)
    tau = ((z * support).sum(1, keepdim=True) - 1) / count
    return F.relu(x - tau)


class TabnetStep(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, 64, False) for a in (width, 32))
        self.norms = nn.ModuleList(nn.BatchNorm1d(64) for _ in range(2))

    def forward(self, x):
        y = F.glu(self.norms[0](self.layers[0](x)), 1)
        return (y + F.glu(self.norms[1](self.layers[1](y)), 1)) * math.sqrt(0.5)


class Tabnet(nn.Module):
    """Each step looks at few columns, which it chooses by what the last one found (sparsemax), and at others each time."""

    def __init__(self):
        super().__init__()
        width = 20 + 10 * 8
        self.table, self.norm = nn.Embedding(2000, 8), nn.BatchNorm1d(width)
        self.steps = nn.ModuleList(TabnetStep(width) for _ in range(4))
        self.ask, self.asked = nn.ModuleList(nn.Linear(16, width, False) for _ in range(3)), nn.ModuleList(nn.BatchNorm1d(width) for _ in range(3))
        self.out = nn.Linear(16, 1)

    def forward(self, dense, ids):
        x = self.norm(torch.cat([dense, self.table(ids).flatten(1)], 1))
        found, prior, total, penalty = self.steps[0](x)[:, 16:], torch.ones_like(x), 0, 0
        for step, ask, asked in zip(self.steps[1:], self.ask, self.asked):
            mask = sparsemax(asked(ask(found)) * prior)
            prior = prior * (1.3 - mask)
            penalty = penalty - (mask * torch.log(mask + 1e-9)).sum(1).mean()
            y = step(mask * x)
            total, found = total + F.relu(y[:, :16]), y[:, 16:]
        return self.out(total).squeeze(1), 0.001 * penalty


class Memory(nn.Module):
    """Convolutions along a signal ask a learned memory, of which each place reads the nearest eight of 128."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 32, 5, padding=2), nn.Conv1d(32, 48, 5, stride=2, padding=2)
        self.keys, self.values = nn.Parameter(torch.randn(128, 48) * 0.2), nn.Parameter(torch.randn(128, 64) * 0.2)
        self.table, self.query = nn.Embedding(2000, 64), nn.Linear(64, 64)
        self.norm, self.out = nn.LayerNorm(64), nn.Sequential(nn.Linear(128, 96), nn.Hardswish(), nn.Linear(96, CLASSES))

    def forward(self, dense, ids):
        x = F.gelu(self.b(F.gelu(self.a(dense)))).transpose(1, 2)  # [rows, 32, 48]
        best, at = torch.topk(x @ self.keys.t() / 7, 8, 2)
        read = (torch.softmax(best, 2).unsqueeze(3) * self.values[at]).sum(2)
        read = self.norm(read)
        own = self.table(ids).mean(1)
        weights = torch.softmax((read @ self.query(own).unsqueeze(2)).squeeze(2) / 8, 1)
        return self.out(torch.cat([(weights.unsqueeze(1) @ read).squeeze(1), own], 1))


class Contrast(nn.Module):
    """Two towers whose loss is the softmax over the batch's items, less how often an item is drawn; equal items do not count."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(4000, 32), nn.Embedding(2000, 32)
        tower = lambda i: nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64))
        self.user, self.item = tower(8 * 32), tower(3 * 32)
        self.often, self.warmth = nn.Embedding(2000, 1), nn.Parameter(torch.tensor(2.5))

    def forward(self, user, item):
        u, v = F.normalize(self.user(self.users(user).flatten(1)), dim=1), F.normalize(self.item(self.items(item).flatten(1)), dim=1)
        scores = u @ v.t() * torch.exp(self.warmth)
        chance = torch.log_softmax(self.often(item[:, 0]).squeeze(1), 0)
        same = (item[:, :1] == item[:, :1].t()) & ~torch.eye(u.shape[0], dtype=torch.bool, device=u.device)
        scores = (scores - chance.unsqueeze(0)).masked_fill(same, -1e9)
        own = (u * v).sum(1) * torch.exp(self.warmth)
        loss = (torch.logsumexp(scores, 1) - (own - chance)).mean()
        return own - 5, loss


class Listwise(nn.Module):
    """Scores of a list's members: ListNet, and pairs weighed by what changing their places is worth (NDCG)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 128), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.context, self.score = nn.Linear(64, 64), nn.Linear(128, 1)

    def forward(self, dense, grade):
        x = self.layers(dense)
        all_of = torch.tanh(self.context(x)).mean(1, keepdim=True).expand_as(x)
        scores = self.score(torch.cat([x, all_of], 2)).squeeze(2)
        gains = 2.0 ** grade.float() - 1
        list_net = -(torch.softmax(grade.float(), 1) * torch.log_softmax(scores, 1)).sum(1).mean()
        places = torch.argsort(torch.argsort(scores.detach(), 1, descending=True), 1).float()
        worth = 1 / torch.log2(places + 2)
        ideal = (torch.sort(gains, 1, descending=True)[0] / torch.log2(torch.arange(20, device=gains.device).float() + 2)).sum(1)
        change = ((gains.unsqueeze(2) - gains.unsqueeze(1)) * (worth.unsqueeze(2) - worth.unsqueeze(1))).abs() / (ideal[:, None, None] + 1)
        pairs = F.softplus(-(scores.unsqueeze(2) - scores.unsqueeze(1))) * change * (gains.unsqueeze(2) > gains.unsqueeze(1)).float()
        return scores.mean(1), list_net + pairs.sum((1, 2)).mean()


MODELS = {"linear_attention": LinearAttention, "edges": Edges, "dispatch": Dispatch, "tabnet": Tabnet, "memory": Memory,
          "contrast": Contrast, "listwise": Listwise}
