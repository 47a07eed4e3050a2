"""PyTorch on the models of bench/fusion_bench.cc that no pass was written for, on one GPU: microseconds a step
(forward, backward, SGD), inputs fixed on the device. graph: the whole step as one CUDA graph; compile_graph: the
kernels of torch.compile, the whole step captured.

usage: torch_fusion.py [--batches 256,4096] [--models gates,glu,branches,two_towers]
"""
import argparse
import json

import torch
import torch.nn.functional as F

from torch_steps import captured, time_us

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
DEVICE = "cuda"


def parameters(shapes):
    torch.manual_seed(0)
    made = {}
    for name, shape in shapes.items():
        value = torch.ones(shape, device=DEVICE) if name.endswith("gain") else torch.randn(shape, device=DEVICE) * 0.05
        if len(shape) == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        made[name] = value.requires_grad_(True)
    return made


def layer(shapes, name, inputs, outputs):
    shapes[name + "/kernel"] = (inputs, outputs)
    shapes[name + "/bias"] = (outputs,)


def norm(shapes, name, width):
    shapes[name + "/gain"] = (width,)
    shapes[name + "/bias"] = (width,)


def dense(p, name, x):
    return torch.addmm(p[name + "/bias"], x, p[name + "/kernel"])


def layer_norm(p, name, x):
    return F.layer_norm(x, x.shape[1:], p[name + "/gain"], p[name + "/bias"])


WIDTHS = [512, 384, 320, 256]


def gates_shapes():
    shapes = {}
    layer(shapes, "gate", 256, 4)
    for i, width in enumerate(WIDTHS):
        layer(shapes, f"branch{i}/a", 256, width)
        norm(shapes, f"branch{i}/norm", width)
        layer(shapes, f"branch{i}/b", width, 128)
    norm(shapes, "norm", 128)
    layer(shapes, "head", 128, 1)
    return shapes


def gates(p, x, y):
    gate = torch.softmax(dense(p, "gate", x), 1)
    mixed = 0
    for i, act in enumerate((F.gelu, F.silu, F.mish, torch.tanh)):
        h = act(layer_norm(p, f"branch{i}/norm", dense(p, f"branch{i}/a", x)))
        mixed = mixed + act(dense(p, f"branch{i}/b", h)) * gate[:, i:i + 1]
    return F.binary_cross_entropy_with_logits(dense(p, "head", layer_norm(p, "norm", mixed))[:, 0], y)


def glu_shapes():
    shapes = {}
    for i in range(4):
        norm(shapes, f"block{i}/norm", 512)
        layer(shapes, f"block{i}/gate", 512, 768)
        layer(shapes, f"block{i}/up", 512, 768)
        layer(shapes, f"block{i}/down", 768, 512)
    norm(shapes, "norm", 512)
    layer(shapes, "head", 512, 10)
    return shapes


def glu(p, h, y):
    for i in range(4):
        normed = layer_norm(p, f"block{i}/norm", h)
        inner = dense(p, f"block{i}/up", normed) * F.silu(dense(p, f"block{i}/gate", normed))
        h = h + dense(p, f"block{i}/down", inner)
    return F.cross_entropy(dense(p, "head", layer_norm(p, "norm", h)), y)


BRANCHES = ((32, 48, 24), (64, 96, 48))


def branches_shapes():
    shapes, inputs = {}, 3
    for block, widths in enumerate(BRANCHES):
        for size, width in zip((1, 3, 5), widths):
            shapes[f"block{block}/{size}/kernel"] = (width, inputs, size, size)
            shapes[f"block{block}/{size}/bias"] = (width,)
        inputs = sum(widths)
    layer(shapes, "head", inputs, 10)
    return shapes


def branches(p, h, y):
    for block in range(2):
        parts = [act(F.conv2d(h, p[f"block{block}/{size}/kernel"], p[f"block{block}/{size}/bias"], padding=size // 2))
                 for size, act in ((1, F.gelu), (3, F.silu), (5, torch.tanh))]
        # SAME of an even size under windows of 3 with stride 2: a row and a column behind.
        h = F.max_pool2d(F.pad(torch.cat(parts, 1), (0, 1, 0, 1), value=float("-inf")), 3, 2)
    return F.cross_entropy(dense(p, "head", h.mean((2, 3))), y)


TOWERS = {"user": (16, 64, 2, F.gelu), "item": (8, 48, 1, F.silu)}


def two_towers_shapes():
    shapes = {}
    for tower, (_, dim, layers, _) in TOWERS.items():
        for i in range(layers):
            name = f"{tower}/layer{i}"
            for what in ("query", "key", "value", "output"):
                layer(shapes, f"{name}/{what}", dim, dim)
            layer(shapes, name + "/inner", dim, 4 * dim)
            layer(shapes, name + "/outer", 4 * dim, dim)
            norm(shapes, name + "/norm0", dim)
            norm(shapes, name + "/norm1", dim)
        norm(shapes, tower + "/norm", dim)
    for i in range(3):
        layer(shapes, f"cross{i}", 112, 112)
    layer(shapes, "head", 112, 1)
    return shapes


def two_towers(p, user, item, y):
    means = []
    for (tower, (length, dim, layers, act)), x in zip(TOWERS.items(), (user, item)):
        x = x.reshape(-1, dim)
        for i in range(layers):
            name = f"{tower}/layer{i}"
            normed = layer_norm(p, name + "/norm0", x)
            q, k, v = (dense(p, f"{name}/{what}", normed).view(-1, length, 4, dim // 4).transpose(1, 2)
                       for what in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, dim)
            x = x + dense(p, name + "/output", mixed)
            x = x + dense(p, name + "/outer", act(dense(p, name + "/inner", layer_norm(p, name + "/norm1", x))))
        means.append(layer_norm(p, tower + "/norm", x).view(-1, length, dim).mean(1))
    x0 = x = torch.cat(means, 1)
    for i in range(3):
        x = x0 * dense(p, f"cross{i}", x) + x
    return F.binary_cross_entropy_with_logits(dense(p, "head", x)[:, 0], y)


def measured(loss, shapes, inputs, compiles):
    p = parameters(shapes)
    optimizer = torch.optim.SGD(p.values(), lr=1e-3, foreach=True)
    function = torch.compile(loss) if compiles else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        function(p, *inputs).backward()
        optimizer.step()

    return round(time_us(captured(step), 50), 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="256,4096")
    parser.add_argument("--models", default="gates,glu,branches,two_towers")
    arguments = parser.parse_args()
    for batch in map(int, arguments.batches.split(",")):
        x256, x512 = (torch.randn(batch, width, device=DEVICE) for width in (256, 512))
        cases = {
            "gates": (gates, gates_shapes(), (x256, torch.rand(batch, device=DEVICE).round())),
            "glu": (glu, glu_shapes(), (x512, torch.randint(0, 10, [batch], device=DEVICE))),
            "branches": (branches, branches_shapes(),
                         (torch.randn(batch, 3, 32, 32, device=DEVICE).contiguous(memory_format=torch.channels_last),
                          torch.randint(0, 10, [batch], device=DEVICE))),
            "two_towers": (two_towers, two_towers_shapes(),
                           (torch.randn(batch, 16, 64, device=DEVICE), torch.randn(batch, 8, 48, device=DEVICE),
                            torch.rand(batch, device=DEVICE).round())),
        }
        for name, (loss, shapes, inputs) in cases.items():
            if name not in arguments.models.split(","):
                continue
            line = {"model": name, "batch": batch}
            for way, compiles in (("graph", False), ("compile_graph", True)):
                torch._dynamo.reset()
                line[way] = measured(loss, shapes, inputs, compiles)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
