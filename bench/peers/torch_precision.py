"""PyTorch on the models of bench/precision_bench.cc, on one GPU: microseconds a step (forward, backward, update), the
whole step one CUDA graph, inputs fixed on the device. fp32, tf32, and autocast to bf16 and fp16 (without a gradient
scaler, as the benchmark beside it). compile: the kernels of torch.compile.

usage: torch_precision.py [--models layers,dlrm_v2] [--batches 4096] [--ways bf16,bf16+compile]
"""
import argparse
import json

import torch
import torch.nn.functional as F

from torch_steps import captured, time_us

DEVICE = "cuda"


class Cross(torch.nn.Module):
    def __init__(self, width, rank, layers):
        super().__init__()
        self.v = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(width, rank) * 0.02) for _ in range(layers)])
        self.w = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(rank, width) * 0.02) for _ in range(layers)])
        self.b = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(width)) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for v, w, b in zip(self.v, self.w, self.b):
            x = x0 * (torch.matmul(torch.matmul(x, v), w) + b) + x
        return x


def layers(widths, last_relu=True):
    modules = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        modules.append(torch.nn.Linear(a, b))
        if last_relu or i + 2 < len(widths):
            modules.append(torch.nn.ReLU())
    return torch.nn.Sequential(*modules)


class DlrmV2(torch.nn.Module):
    flops = 6 * (512 * 256 + 256 * 128 + 3 * 2 * 3456 * 512 + 3456 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256) \
        + 4 * 13 * 512

    def __init__(self):
        super().__init__()
        self.bottom = layers([13, 512, 256, 128])
        self.cross = Cross(3456, 512, 3)
        self.top = layers([3456, 1024, 1024, 512, 256, 1], last_relu=False)

    def inputs(self, n):
        return torch.randn(n, 13), torch.randn(n, 26 * 128), torch.rand(n).round()

    def forward(self, x, pooled, y):
        bottom = self.bottom(x)
        x0 = torch.cat([bottom, pooled.to(bottom.dtype)], 1)
        logits = self.top(self.cross(x0))[:, 0]
        return F.binary_cross_entropy_with_logits(logits.float(), y)

    def optimizer(self):
        return Adagrad(self.parameters())


class Layers(torch.nn.Module):
    flops = 4 * 1024 * 4096 + 6 * 5 * 4096 * 4096 + 6 * 4096 * 16

    def __init__(self):
        super().__init__()
        self.body = layers([1024] + [4096] * 6)
        self.head = torch.nn.Linear(4096, 16)

    def inputs(self, n):
        return torch.randn(n, 1024), torch.randint(0, 16, [n])

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.body(x)).float(), y)

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True, capturable=True)


class Adagrad:
    """Without host reads, foreach."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.sums = [torch.full_like(p, 0.1) for p in self.parameters]

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        gradients = [p.grad for p in self.parameters]
        torch._foreach_addcmul_(self.sums, gradients, gradients)
        roots = torch._foreach_sqrt(self.sums)
        torch._foreach_addcdiv_(self.parameters, gradients, roots, value=-1e-3)


def measured(make, batch, way):
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    tf32 = not way.startswith("fp32")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(way[:4])
    model = make().to(DEVICE)
    inputs = [x.to(DEVICE) for x in model.inputs(batch)]
    optimizer = model.optimizer()
    loss = torch.compile(model) if way.endswith("+compile") else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        # Casts of weights are made anew in each step, as the capture needs.
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
            value = loss(*inputs)
        value.backward()
        optimizer.step()

    return time_us(captured(step), 20), torch.cuda.max_memory_allocated()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="layers,dlrm_v2")
    parser.add_argument("--batches", default="4096")
    parser.add_argument("--ways", default="fp32,tf32,bf16,fp16,bf16+compile")
    options = parser.parse_args()
    models = {"layers": Layers, "dlrm_v2": DlrmV2}
    for name in options.models.split(","):
        for batch in map(int, options.batches.split(",")):
            for way in options.ways.split(","):
                line = {"model": name, "batch": batch, "way": way}
                try:
                    torch._dynamo.reset()
                    us, memory = measured(models[name], batch, way)
                    line.update(us=round(us, 1), tflops=round(models[name].flops * batch / us / 1e6, 1),
                                memory_mb=round(memory / 1e6))
                except Exception as error:
                    line["error"] = f"{type(error).__name__}: {str(error)[:100]}"
                torch.cuda.empty_cache()
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
