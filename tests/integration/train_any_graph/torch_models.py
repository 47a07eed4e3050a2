"""The PyTorch models that oracle.py trains: modules, their inputs and losses."""

import torch
from torch import nn


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 8) for _ in range(4))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(5, 5, -1), persistent=False)

    def forward(self, dense, ids):
        bottom = self.bottom(dense)
        stacked = torch.stack([bottom] + [table(ids[:, i]) for i, table in enumerate(self.tables)], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], 1)).squeeze(1)


class Cnn(nn.Module):
    """Batch and group normalisation, strides, pooling."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.groups = nn.BatchNorm2d(4), nn.GroupNorm(2, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, image):
        x = torch.relu(self.norm(self.first(image.unsqueeze(1))))
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.silu(self.groups(self.second(x)))
        return self.out(nn.functional.adaptive_avg_pool2d(self.deep(x), 1).flatten(1))


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cells, self.out = nn.Embedding(30, 6, padding_idx=0), nn.GRU(6, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, tokens):
        return self.out(self.cells(self.table(tokens))[0][:, -1]).squeeze(1)


class BiLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(30, 6), nn.Linear(8, 1)
        self.cells = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, tokens):
        return self.out(self.cells(self.table(tokens))[0].mean(1)).squeeze(1)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 8)
        self.places = nn.Parameter(torch.randn(6, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.layers(self.table(tokens) + self.places).mean(1))


class Bags(nn.Module):
    """A bag of ids a row, by mean, and weighted sums beside it."""

    def __init__(self):
        super().__init__()
        self.mean, self.total = nn.EmbeddingBag(50, 8, mode="mean"), nn.EmbeddingBag(50, 8, mode="sum")
        self.out = nn.Sequential(nn.Linear(16, 8), nn.ELU(), nn.Linear(8, 1))

    def forward(self, ids, weights):
        return self.out(torch.cat([self.mean(ids), self.total(ids, per_sample_weights=weights)], 1)).squeeze(1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.BatchNorm1d(16),
                                  nn.LeakyReLU(0.1), nn.Linear(16, 2))

    def forward(self, dense):
        return self.body(dense)


class TwoTowers(nn.Module):
    """Tables trained by rows (sparse=True), and a loss within the model."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 8, sparse=True) for _ in range(2))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(2))

    def forward(self, user, item):
        ends = [tower(table(ids).mean(1)) for tower, table, ids in zip(self.towers, self.tables, (user, item))]
        user, item = (nn.functional.normalize(end, dim=1) for end in ends)
        return 5 * (user * item).sum(1)


def example(columns, rows=4):
    """Inputs of these columns but the label, as zeros."""
    return tuple(torch.zeros(rows, *shape, dtype=torch.float32 if kind == "float" else torch.int64)
                 for name, (shape, kind) in columns.items() if name != "label")


def exported(model, columns):
    """The program of a model in training, its first dimension free."""
    rows = torch.export.Dim("rows", min=4)
    inputs = example(columns)
    return torch.export.export(model.train(), inputs, dynamic_shapes=tuple({0: rows} for _ in inputs))


NUMBERS = {"dense": ((6,), "float")}
TOKENS = {"tokens": ((6,), 30), "label": ((), "label")}

# name -> (module, columns, loss)
MODELS = {
    "torch_dlrm": (Dlrm, {**NUMBERS, "ids": ((4,), 40), "label": ((), "label")}, "binary_cross_entropy_with_logits"),
    "torch_cnn": (Cnn, {"image": ((8, 8), "float"), "label": ((), 3)}, "cross_entropy"),
    "torch_gru": (Gru, TOKENS, nn.functional.binary_cross_entropy_with_logits),
    "torch_bilstm": (BiLstm, TOKENS, "binary_cross_entropy_with_logits"),
    "torch_transformer": (Transformer, {"tokens": ((6,), 30), "label": ((), 3)}, nn.functional.cross_entropy),
    "torch_bags": (Bags, {"ids": ((5,), 50), "weights": ((5,), "float"), "label": ((), "label")},
                   "binary_cross_entropy_with_logits"),
    "torch_mlp": (Mlp, {**NUMBERS, "label": ((2,), "float")}, nn.functional.smooth_l1_loss),
    "torch_two_towers": (TwoTowers, {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")},
                         "binary_cross_entropy_with_logits"),
}
