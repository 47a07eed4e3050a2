"""PyTorch on the two models of bench/fusion_bench.cc that no pass was written for, on one GPU: microseconds a step
(forward, backward, SGD), inputs fixed on the device. graph: the whole step as one CUDA graph; compile_graph: the
kernels of torch.compile, the whole step captured.

usage: torch_fusion.py [--batches 256,4096]
"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True
DEVICE = "cuda"


def parameters(shapes):
    torch.manual_seed(0)
    made = {}
    for name, shape in shapes.items():
        value = torch.ones(shape, device=DEVICE) if name.endswith("gain") else torch.randn(shape, device=DEVICE) * 0.05
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


def captured(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def time(step, count=50):
    for _ in range(10):
        step()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / count)
    return statistics.median(times)


def measured(loss, shapes, inputs, compiles):
    p = parameters(shapes)
    optimizer = torch.optim.SGD(p.values(), lr=1e-3, foreach=True)
    function = torch.compile(loss) if compiles else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        function(p, *inputs).backward()
        optimizer.step()

    return round(time(captured(step)), 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="256,4096")
    for batch in map(int, parser.parse_args().batches.split(",")):
        x256, x512 = (torch.randn(batch, width, device=DEVICE) for width in (256, 512))
        cases = {
            "gates": (gates, gates_shapes(), (x256, torch.rand(batch, device=DEVICE).round())),
            "glu": (glu, glu_shapes(), (x512, torch.randint(0, 10, [batch], device=DEVICE))),
        }
        for name, (loss, shapes, inputs) in cases.items():
            line = {"model": name, "batch": batch}
            for way, compiles in (("graph", False), ("compile_graph", True)):
                torch._dynamo.reset()
                line[way] = measured(loss, shapes, inputs, compiles)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
