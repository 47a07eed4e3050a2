"""More PyTorch models for oracle.py: language, ranking, images, densities, with losses of their own."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """A causal language model with scaled_dot_product_attention, RMS norm, rotary places, SwiGLU and tied weights."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(30, 8), nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)
        self.gain = nn.Parameter(torch.ones(2, 8))
        self.up, self.gate, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        angles = torch.arange(6)[:, None] * (0.1 ** torch.arange(2))[None]
        self.register_buffer("cos", angles.cos()), self.register_buffer("sin", angles.sin())

    def norm(self, x, i):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain[i]

    def turn(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.norm(x, 0)).split(8, dim=-1))
        mixed = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        h = self.norm(x, 1)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return x @ self.table.weight.T


def next_token(output, label):
    return F.cross_entropy(output[:, :-1].reshape(-1, 30), label[:, 1:].reshape(-1), label_smoothing=0.1)


class DcnMix(nn.Module):
    """Low-rank crosses with gated experts by einsum, features by gather and one_hot."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 4)
        self.u, self.v, self.c = (nn.Parameter(torch.randn(*s) * 0.2) for s in ((2, 3, 22, 5), (2, 3, 22, 5), (2, 3, 5, 5)))
        self.gates, self.bias = nn.Linear(22, 3, bias=False), nn.Parameter(torch.zeros(2, 22))
        self.out = nn.Linear(22 + 7, 1)

    def forward(self, dense, ids):
        x = first = torch.cat([dense, self.table(ids).flatten(1)], 1)
        for i in range(2):
            low = torch.tanh(torch.einsum("bi,eir->ber", x, self.v[i]))
            low = torch.tanh(torch.einsum("ber,ers->bes", low, self.c[i]))
            high = first[:, None] * (torch.einsum("bes,eis->bei", low, self.u[i]) + self.bias[i])
            x = x + torch.einsum("be,bei->bi", self.gates(x).softmax(-1), high)
        hot = F.one_hot(ids[:, 0] % 7, 7).to(x.dtype)
        return self.out(torch.cat([x, hot], 1)).squeeze(-1)


def focal(output, label):
    p = torch.sigmoid(output)
    pt = torch.where(label > 0.5, p, 1 - p)
    return (F.binary_cross_entropy_with_logits(output, label, reduction="none") * (1 - pt) ** 2).mean()


class Unet(nn.Module):
    """Interpolation, instance norm, dilated and strided convolutions, padding by reflection, pixel shuffle, Mish."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.back = nn.ConvTranspose2d(8, 3, 3, stride=2, padding=1, output_padding=1)
        self.out = nn.Conv2d(4 + 8 + 2 + 3 + 8, 1, 1)

    def forward(self, image):
        a = F.mish(self.a(image.unsqueeze(1)))
        b = F.hardswish(self.wide(self.norm(self.b(a))))
        up = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        near = F.interpolate(b, size=(8, 8), mode="nearest")
        return self.out(torch.cat([a, up, F.pixel_shuffle(b, 2), self.back(b), near], 1)).squeeze(1)


def dice(output, label):
    p, t = output.sigmoid().flatten(1), (label > 0.2).float().flatten(1)
    return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean() + 0.1 * F.l1_loss(output, label)


class Ranker(nn.Module):
    """Lists of five: ListMLE by sort, gather and logcumsumexp; PReLU, GLU, hinge."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.GLU(), nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, 1, bias=False))

    def forward(self, items):
        return self.body(items).squeeze(-1)


def list_mle(output, label):
    order = label.argsort(dim=1, descending=True)
    ordered = output.gather(1, order)
    tail = ordered.flip(1).logcumsumexp(1).flip(1)
    pairs = F.relu(0.1 - (output[:, :, None] - output[:, None]) * torch.sign(label[:, :, None] - label[:, None]))
    return (tail - ordered).sum(1).mean() + 0.1 * torch.triu(pairs, 1).mean()


class Mixture(nn.Module):
    """Densities: a mixture of gaussians by logsumexp; softplus, clamp, softmin, log1p, expm1, erf, roll, cumprod."""

    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Sequential(nn.Linear(6, 16), nn.Softsign(), nn.Linear(16, 12), nn.Hardtanh()), nn.Linear(12, 9)

    def forward(self, dense):
        x = torch.sign(dense) * torch.log1p(dense.abs())
        x = torch.addcmul(x, x.roll(1, 1), torch.erf(dense), value=0.5)
        return self.out(self.body(x))


def mixture_loss(output, label):
    weights, means, scales = output.chunk(3, 1)
    scales = F.softplus(scales).clamp(min=1e-2)
    z = (label.unsqueeze(1) - means) / scales
    stick = torch.cumprod(1 - torch.sigmoid(weights) + 1e-6, 1)
    return -torch.logsumexp(F.log_softmax(weights, 1) - 0.5 * z.square() - scales.log(), 1).mean() + 0.01 * stick.sum(1).mean()


class Contrast(nn.Module):
    """Two towers with in-batch negatives, a temperature, masked means, cosine, top-k of mined negatives."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(50, 8), nn.Embedding(60, 8)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, user, item):
        there = (user != 0).unsqueeze(-1)
        u = (self.user(user) * there).sum(1) / there.sum(1).clamp(min=1)
        u, v = F.normalize(u, dim=-1), F.normalize(self.item(item), dim=-1)
        scores = self.scale.exp() * u @ v.mT
        same = item[:, None] == item[None]
        scores = scores.masked_fill(same & ~torch.eye(item.shape[0], dtype=torch.bool), -1e4)
        hard = scores.masked_fill(same, -1e4).topk(3, dim=1).values
        own = self.scale.exp() * (u * v).sum(-1)
        return F.cross_entropy(scores, torch.arange(item.shape[0])) + F.relu(0.2 + hard - own[:, None]).mean()


class ConvText(nn.Module):
    """One-dimensional convolutions, transposed too, adaptive and average pools, layer scale, ELU family."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 6)
        self.convs = nn.ModuleList(nn.Conv1d(6, 5, k, padding="same", dilation=d) for k, d in ((3, 1), (3, 2), (1, 1)))
        self.down, self.up = nn.Conv1d(15, 6, 3, stride=2), nn.ConvTranspose1d(6, 4, 3, stride=2)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.table(tokens).transpose(1, 2)
        x = torch.cat([F.celu(conv(x)) for conv in self.convs], 1)
        x = F.selu(self.up(F.avg_pool1d(F.hardsigmoid(self.down(x)), 1)))
        return self.out(torch.cat([x.amax(2), F.adaptive_avg_pool1d(x, 1).squeeze(2)], 1))


class Sequence(nn.Module):
    """BST: a transformer layer before the norm, with a mask of padded places, and an RNN over it."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(30, 8, padding_idx=0), nn.Embedding(6, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.rnn, self.out = nn.RNN(8, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, tokens):
        x = self.table(tokens) + self.places(torch.arange(6))
        x = self.layer(x, src_key_padding_mask=tokens == 0)
        return self.out(self.rnn(x)[1][-1]).squeeze(1)


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.up, self.out = nn.Conv2d(1, 4, 3), nn.ConvTranspose2d(4, 3, 2, stride=2), nn.Linear(39, 2)

    def forward(self, image):
        x = self.up(F.max_pool2d(torch.relu(self.a(image.unsqueeze(1))), 2))
        x = torch.cat([F.avg_pool2d(x, 3).flatten(1), F.max_pool2d(x, 5, ceil_mode=True).flatten(1),
                       F.avg_pool2d(x, 3, stride=3, padding=1, count_include_pad=False).flatten(1)], 1)
        return self.out(F.pad(x, (1, 2), mode="circular"))


NUMBERS = {"dense": ((6,), "float")}
TOKENS = {"tokens": ((6,), 30)}
MODELS = {
    "torch_language": (Attention, {**TOKENS, "label": ((6,), 30)}, next_token),
    "torch_dcn_mix": (DcnMix, {**NUMBERS, "ids": ((4,), 40), "label": ((), "label")}, focal),
    "torch_unet": (Unet, {"image": ((8, 8), "float"), "label": ((8, 8), "float")}, dice),
    "torch_ranker": (Ranker, {"items": ((5, 4), "float"), "label": ((5,), "float")}, list_mle),
    "torch_mixture": (Mixture, {**NUMBERS, "label": ((), "float")}, mixture_loss),
    "torch_contrast": (Contrast, {"user": ((3,), 50), "item": ((), 60)}, None),
    "torch_conv_text": (ConvText, {**TOKENS, "label": ((), 3)}, F.cross_entropy),
    "torch_sequence": (Sequence, {**TOKENS, "label": ((), "label")}, "binary_cross_entropy_with_logits"),
    "torch_transposed": (Transposed, {"image": ((8, 8), "float"), "label": ((), 2)}, "cross_entropy"),
}
