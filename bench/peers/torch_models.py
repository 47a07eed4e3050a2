"""The zoo (models/) as PyTorch functions of their variables, for cpu_models.py.

A model is loss(p, batch): p maps Braid's names of variables to tensors, batch maps columns to tensors. Layers are what a
PyTorch user would write: fused attention and normalisation, one embedding a column with sparse gradients. Convolution
kernels are [out, in, h, w] and images NCHW, both with channels last in memory, which is PyTorch's fastest form.
"""
import functools
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="Sparse invariant checks")
VERSION = torch.__version__


def set_threads(count):
    torch.set_num_threads(count)


def dense(p, name, x):
    return torch.addmm(p[name + "/bias"], x, p[name + "/kernel"])


def layers(p, name, x):
    i = 0
    while f"{name}/layer{i}/kernel" in p:
        x = torch.relu(dense(p, f"{name}/layer{i}", x))
        i += 1
    return x


def rows(p, name, ids):
    table = p[name + "/table"]
    return F.embedding(ids, table, sparse=getattr(table, "by_rows", False))


def columns(p, prefix, ids):
    return [rows(p, f"{prefix}c{c}", ids[:, c]) for c in range(ids.shape[1])]


def sigmoid_loss(logits, labels):
    return F.binary_cross_entropy_with_logits(logits.reshape(-1), labels)


def linear_regression(p, batch):
    z = torch.addmm(p["bias"], batch["x"], p["weight_x"]) + batch["y"] @ p["weight_y"]
    return F.mse_loss(z, batch["z"])


def mlp(p, batch):
    x = layers(p, "mlp", batch["image"].flatten(1))
    return F.cross_entropy(dense(p, "logits", x), batch["label"])


def cnn(p, batch):
    x = batch["image"]
    for name in ("conv0", "conv1"):
        x = F.max_pool2d(torch.relu(F.conv2d(x, p[name + "/kernel"], p[name + "/bias"], padding=1)), 2)
    x = torch.relu(dense(p, "hidden", x.permute(0, 2, 3, 1).flatten(1)))
    return F.cross_entropy(dense(p, "logits", x), batch["label"])


def wide_deep(p, batch):
    wide = dense(p, "wide/dense", batch["dense"]) + sum(columns(p, "wide/", batch["sparse"]))
    deep = layers(p, "deep/mlp", torch.cat([batch["dense"]] + columns(p, "deep/", batch["sparse"]), 1))
    return sigmoid_loss(wide + dense(p, "deep/logit", deep), batch["label"])


@functools.cache
def below_diagonal(n):
    i, j = torch.tril_indices(n, n, offset=-1)
    return i * n + j


def dlrm(p, batch):
    bottom = layers(p, "bottom", batch["dense"])
    ids = batch["sparse"]
    vectors = torch.stack([bottom] + [rows(p, f"table{c}", ids[:, c]) for c in range(ids.shape[1])], 1)
    dots = torch.bmm(vectors, vectors.transpose(1, 2))
    pairs = dots.flatten(1).index_select(1, below_diagonal(dots.shape[1]))
    top = layers(p, "top", torch.cat([bottom, pairs], 1))
    return sigmoid_loss(dense(p, "logit", top), batch["label"])


def deepfm(p, batch):
    both = torch.stack(columns(p, "", batch["sparse"]), 1)  # [B, C, 1 + dim]
    weights, vectors = both[:, :, 0], both[:, :, 1:]
    pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
    machine = dense(p, "machine/dense", batch["dense"]).squeeze(1) + weights.sum(1) + pairs
    deep = layers(p, "deep/mlp", torch.cat([batch["dense"], vectors.flatten(1)], 1))
    return sigmoid_loss(machine + dense(p, "deep/logit", deep).squeeze(1), batch["label"])


def dcn_v2(p, batch):
    x0 = torch.cat([batch["dense"]] + columns(p, "", batch["sparse"]), 1)
    cross = x0
    for i in range(3):
        cross = torch.addcmul(cross, x0, dense(p, f"cross{i}", cross))
    return sigmoid_loss(dense(p, "logit", torch.cat([cross, layers(p, "deep", x0)], 1)), batch["label"])


def mmoe(p, batch):
    x = torch.cat([batch["dense"]] + columns(p, "", batch["sparse"]), 1)
    experts = []
    while f"expert{len(experts)}/layer0/kernel" in p:
        experts.append(layers(p, f"expert{len(experts)}", x))
    experts = torch.stack(experts, 1)
    loss = 0
    for task in ("click", "purchase"):
        gate = torch.softmax(dense(p, f"{task}_task/gate", x), 1)
        mixed = torch.bmm(gate.unsqueeze(1), experts).squeeze(1)
        tower = torch.relu(dense(p, f"{task}_task/tower", mixed))
        loss = loss + sigmoid_loss(dense(p, f"{task}_task/logit", tower), batch[task])
    return loss


def din(p, batch):
    ids = batch["history"]
    both = rows(p, "items", torch.cat([ids, batch["item"] + 1], 1))
    history, item = both[:, :-1], both[:, -1]
    pairs = torch.cat([history, history * item.unsqueeze(1)], 2)
    hidden = torch.relu(dense(p, "attention/history", pairs.flatten(0, 1)).unflatten(0, ids.shape) +
                        dense(p, "attention/item", item).unsqueeze(1))
    scores = dense(p, "attention/score", hidden.flatten(0, 1)).view(ids.shape) * (ids != 0)
    interest = torch.bmm(scores.unsqueeze(1), history).squeeze(1)
    features = [interest, item, interest * item, batch["dense"]] + columns(p, "", batch["sparse"])
    return sigmoid_loss(dense(p, "logit", layers(p, "top", torch.cat(features, 1))), batch["label"])


def transformer(p, batch):
    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], p[name + "/scale"], p[name + "/shift"], 1e-5)

    size = batch["tokens"].shape
    x = (rows(p, "tokens_table", batch["tokens"]) + p["places"]).flatten(0, 1)
    heads, layer = 4, 0
    while f"layer{layer}/inner/kernel" in p:
        name = f"layer{layer}/"
        normal = norm(name + "norm0", x)
        query, key, value = (dense(p, f"{name}attention/{part}", normal).view(*size, heads, -1).transpose(1, 2)
                             for part in ("query", "key", "value"))
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        x = x + dense(p, name + "attention/output", mixed)
        x = x + dense(p, name + "outer", torch.relu(dense(p, name + "inner", norm(name + "norm1", x))))
        layer += 1
    pooled = norm("norm", x).view(*size, -1).mean(1)
    return F.cross_entropy(dense(p, "logits", pooled), batch["label"])


def same_conv(x, kernel, stride):
    """TensorFlow's SAME: what does not divide evenly is padded behind."""
    size = kernel.shape[2]
    pad = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in x.shape[2:]]
    if all(n % 2 == 0 for n in pad):
        return F.conv2d(x, kernel, stride=stride, padding=[n // 2 for n in pad])
    x = F.pad(x, (pad[1] // 2, pad[1] - pad[1] // 2, pad[0] // 2, pad[0] - pad[0] // 2))
    return F.conv2d(x, kernel, stride=stride)


def resnet18(p, batch):
    def conv(name, x, stride=1):
        return F.batch_norm(same_conv(x, p[name + "/kernel"], stride), p[name + "/mean"], p[name + "/variance"],
                            p[name + "/scale"], p[name + "/offset"], training=True, momentum=0.1, eps=1e-5)

    x = torch.relu(conv("stem/conv", batch["image"]))
    for stage in range(4):
        for block in range(2):
            name, stride = f"stage{stage}_block{block}/", 2 if stage and not block else 1
            y = conv(name + "conv1", torch.relu(conv(name + "conv0", x, stride)))
            x = torch.relu(y + (conv(name + "project", x, stride) if name + "project/kernel" in p else x))
    return F.cross_entropy(dense(p, "logits", x.mean((2, 3))), batch["label"])


MODELS = {f.__name__: f for f in (cnn, dcn_v2, deepfm, din, dlrm, linear_regression, mlp, mmoe, resnet18,
                                  transformer, wide_deep)}


def parameter(value, trainable, by_rows):
    """A variable's value as PyTorch has it."""
    if value.dim() == 4:
        value = value.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    value = value.clone().requires_grad_(trainable)
    value.by_rows = by_rows
    return value


def optimizers(settings, p):
    """The job's optimizer. Tables that are updated by rows have their own, where PyTorch wants that."""
    trained = [v for v in p.values() if v.requires_grad]
    rate, kind = settings["learning_rate"], settings["kind"]
    if kind == "SGD":
        return [torch.optim.SGD(trained, lr=rate)]
    if kind == "MOMENTUM":
        return [torch.optim.SGD(trained, lr=rate, momentum=0.9)]
    dense_ones, tables = [v for v in trained if not v.by_rows], [v for v in trained if v.by_rows]
    if kind == "ADAGRAD":
        options = {"lr": rate, "initial_accumulator_value": settings.get("initial_accumulator", 0.1)}
        made = [torch.optim.Adagrad(dense_ones, **options)]
        return made + ([torch.optim.Adagrad(tables, **options)] if tables else [])
    made = [torch.optim.Adam(dense_ones, lr=rate, fused=True)]
    return made + ([torch.optim.SparseAdam(tables, lr=rate)] if tables else [])


class Model:
    def __init__(self, name, settings, values):
        self.p = {label: parameter(torch.from_numpy(value), label in settings["trainable"],
                                   settings["sparse"] and label.endswith("/table"))
                  for label, value in values.items()}
        self.loss_of = MODELS[name]
        self.optimizers = optimizers(settings["optimizer"], self.p)

    def batch(self, columns):
        """Images are [B, C, H, W] with channels last in memory."""
        made = {column: torch.from_numpy(values) for column, values in columns.items()}
        if "image" in made:
            made["image"] = made["image"].permute(0, 3, 1, 2)
        return made

    def parameters(self):
        return sum(v.numel() for v in self.p.values() if v.requires_grad)

    def loss(self, batch):
        with torch.no_grad():
            return float(self.loss_of(self.p, batch))

    def train_step(self, batch):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.p, batch)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()
