"""Makes whole_updates.json beside this file: three steps of Adafactor and of Adam with moments of 8 bits.

Usage: python3 make_whole_updates.py. Adafactor is written in PyTorch after the formulas that the class of this name in
Hugging Face's transformers documents, with relative_step off. Adam's moments are quantised after section 2 of Dettmers
et al. 2022, with the dynamic map that bitsandbytes builds, in NumPy. whole_updates_test.cc gives the ops the same weights
and gradients.
"""

import json
import pathlib

import numpy as np
import torch

STEPS, RATE, BLOCK = 3, 0.05, 256


def rms(x):
    return x.norm(2) / x.numel() ** 0.5


class Adafactor:
    def __init__(self, weights, beta1=0.0, weight_decay=0.0, clip_threshold=1.0, scale_by_weights=True, decay=0.8,
                 epsilon=1e-30, least_scale=1e-3):
        self.p = torch.tensor(weights)
        self.beta1, self.weight_decay, self.clip = beta1, weight_decay, clip_threshold
        self.scales, self.decay, self.eps, self.least = scale_by_weights, decay, epsilon, least_scale
        self.m = torch.zeros_like(self.p)
        self.factored = self.p.dim() >= 2
        if self.factored:
            self.row, self.column = torch.zeros(self.p.shape[:-1]), torch.zeros(self.p.shape[:-2] + self.p.shape[-1:])
        else:
            self.square = torch.zeros_like(self.p)

    def step(self, gradient, number):
        g = torch.tensor(gradient)
        rate = RATE * (max(self.least, rms(self.p).item()) if self.scales else 1.0)
        b = 1.0 - (number + 1) ** -self.decay
        q = g**2 + self.eps
        if self.factored:
            self.row.mul_(b).add_(q.mean(-1), alpha=1 - b)
            self.column.mul_(b).add_(q.mean(-2), alpha=1 - b)
            r = (self.row / self.row.mean(-1, keepdim=True)).rsqrt_().unsqueeze(-1)
            u = r * self.column.unsqueeze(-2).rsqrt() * g
        else:
            self.square.mul_(b).add_(q, alpha=1 - b)
            u = self.square.rsqrt() * g
        u = u / (rms(u) / self.clip).clamp(min=1.0) * rate
        if self.beta1 > 0:
            self.m.mul_(self.beta1).add_(u, alpha=1 - self.beta1)
            u = self.m
        self.p -= self.weight_decay * rate * self.p
        self.p -= u

    def values(self):
        states = [self.row, self.column] if self.factored else [self.square]
        return [v.flatten().tolist() for v in [self.p] + ([self.m] if self.beta1 > 0 else []) + states]


def dynamic_map(signed):
    """256 values: for each power of ten the middles of equal parts of [0.1, 1], twice as many as of the one below."""
    values = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, (2**i if signed else 2 ** (i + 1)) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (i - 6)
        values += [*middles, *-middles] if signed else [*middles]
    return np.sort(np.array(values)).astype(np.float32)


class Adam8Bit:
    def __init__(self, weights, beta1=0.9, beta2=0.999, epsilon=1e-7, weight_decay=0.0):
        self.p = np.array(weights, np.float32)
        self.b1, self.b2, self.eps, self.weight_decay = map(np.float32, (beta1, beta2, epsilon, weight_decay))
        self.maps = dynamic_map(True), dynamic_map(False)
        n = len(weights)
        self.codes = [np.full(n, np.searchsorted(m, 0.0)) for m in self.maps]
        self.scales = [np.zeros(-(-n // BLOCK), np.float32) for _ in self.maps]

    def step(self, gradient, number):
        g, t = np.array(gradient, np.float32), number + 1
        m, v = (np.repeat(s, BLOCK)[: len(g)] * table[c] for s, table, c in zip(self.scales, self.maps, self.codes))
        m = m + (1 - self.b1) * (g - m)
        v = v + (1 - self.b2) * (g * g - v)
        rate = np.float32(RATE * np.sqrt(1 - float(self.b2) ** t) / (1 - float(self.b1) ** t))
        self.p = self.p - np.float32(RATE) * self.weight_decay * self.p
        self.p = self.p - rate * m / (np.sqrt(v) + self.eps)
        for k, x in enumerate((m, v)):
            table = self.maps[k]
            middles = (table[:-1] + table[1:]) / 2
            for b in range(len(self.scales[k])):
                part = slice(b * BLOCK, (b + 1) * BLOCK)
                self.scales[k][b] = np.abs(x[part]).max()
                self.codes[k][part] = np.searchsorted(middles, x[part] / self.scales[k][b], side="right")

    def values(self):
        stored = [(c - np.searchsorted(m, 0.0)) % 256 for c, m in zip(self.codes, self.maps)]
        return [v.tolist() for v in [self.p, *stored, *self.scales]]


CASES = [
    ("ADAFACTOR", [7], {}),
    ("ADAFACTOR", [5, 20], {"weight_decay": 0.1}),
    ("ADAFACTOR", [40, 3], {"beta1": 0.9, "clip_threshold": 0.5}),
    ("ADAFACTOR", [2, 3, 4, 5], {"scale_by_weights": False, "decay": 0.6}),
    ("ADAM_8BIT", [300], {}),
    ("ADAM_8BIT", [2, 20], {"beta1": 0.8, "beta2": 0.9, "weight_decay": 0.1}),
]


def rounded(values):
    return [[float(f"{x:.9g}") for x in v] for v in values]


def main():
    cases = []
    for number, (kind, shape, spec) in enumerate(CASES):
        random = np.random.default_rng(number)
        weights = random.normal(0, 0.3, shape).astype(np.float32)
        run = Adafactor(weights.tolist(), **spec) if kind == "ADAFACTOR" else Adam8Bit(weights.flatten().tolist(), **spec)
        steps = []
        for t in range(STEPS):
            # Sizes of gradients differ widely.
            gradient = (random.normal(0, 1, shape) * 10.0 ** random.uniform(-4, 0, shape)).astype(np.float32)
            run.step(gradient.tolist() if kind == "ADAFACTOR" else gradient.flatten().tolist(), t)
            steps.append({"gradient": rounded([gradient.flatten()])[0], "values": rounded(run.values())})
        cases.append({"kind": kind, "shape": shape, "spec": spec, "weights": rounded([weights.flatten()])[0],
                      "steps": steps})
    file = pathlib.Path(__file__).with_name("whole_updates.json")
    file.write_text(json.dumps({"learning_rate": RATE, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
