"""Models of PyTorch that no pass was written for: exported as ONNX with their loss, and timed on one GPU.

usage: torch_graphs.py export FOLDER [--models a,b] [--no-dropout]
       torch_graphs.py check FOLDER [--models a,b] [--no-dropout] [--limit 1e-5]
       torch_graphs.py time [--models a,b] [--no-dropout] [--batches 256,4096] [--precision TF32|BF16]

The models are those of graphs_first.py to graphs_tenth.py; --models takes `first` to `tenth` and names. --no-dropout, for
`export` and `check`, leaves out what is random. `export` writes FOLDER/NAME.onnx, whose inputs are the model's columns and
whose outputs are `loss` and `prediction`, and FOLDER/models.json with these columns; it needs onnx and no GPU. `check`
trains these files for 20 steps of SGD with Braid's Python package on the CPU, beside PyTorch on the same rows, and prints
the largest relative difference of the losses. `time` prints a JSON line a model and batch: microseconds of a step (forward,
backward, SGD), inputs fixed on the device. graph: the whole step as one CUDA graph; compile: torch.compile's kernels, the whole step captured; auto:
torch.compile with mode "max-autotune-no-cudagraphs", captured, with --autotune. bench/gpu/graph_models.py trains the
exported graphs.
"""
import argparse
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import graphs_eighth
import graphs_fifth
import graphs_first
import graphs_fourth
import graphs_ninth
import graphs_second
import graphs_seventh
import graphs_sixth
import graphs_tenth
import graphs_third

SETS = {"first": graphs_first, "second": graphs_second, "third": graphs_third, "fourth": graphs_fourth, "fifth": graphs_fifth,
        "sixth": graphs_sixth, "seventh": graphs_seventh, "eighth": graphs_eighth, "ninth": graphs_ninth, "tenth": graphs_tenth}
COLUMNS = {name: columns for models in SETS.values() for name, columns in models.COLUMNS.items()}
MODELS = {name: model for models in SETS.values() for name, model in models.MODELS.items()}
YES_NO = tuple(name for models in SETS.values() for name in models.YES_NO)


class WithLoss(nn.Module):
    """A model and the mean of its loss: its own, of the diagonal for pairs of a batch, else by classes or yes and no, and
    what the model adds to it."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        self.name, self.model = name, MODELS[name]()
        with torch.no_grad():  # values of few bits make files that compress
            for p in self.parameters():
                p.copy_((p * 64).round() / 64)

    def forward(self, label, *columns):
        y = self.model(*columns)
        y, added = y if isinstance(y, tuple) else (y, 0)
        if hasattr(self.model, "loss"):
            loss = self.model.loss(y, label)
        elif self.name == "two_towers":
            loss = -torch.log_softmax(y, 1).diagonal().mean() + 0 * label.float().mean()
        elif y.dim() == 2:
            loss = F.cross_entropy(y, label)
        else:
            loss = F.binary_cross_entropy_with_logits(y, label.float())
        return loss + added, y


def classes_of(name):
    return 2 if name in YES_NO + ("two_towers",) else graphs_first.CLASSES


def batch_of(name, rows, device):
    generator = torch.Generator().manual_seed(1)
    columns = []
    for _, kind, shape, ids in COLUMNS[name]:
        made = torch.randint(0, ids, [rows, *shape], generator=generator) if kind == "id" else torch.randn([rows, *shape], generator=generator)
        columns.append(made.to(device))
    return torch.randint(0, classes_of(name), [rows], generator=generator).to(device), columns


def names_of(args):
    return [name for word in args.models.split(",") for name in (SETS[word].MODELS if word in SETS else [word])]


def norm_by_batch(file):
    """PyTorch 2.15 writes batch norm as for inference, whatever `training` says. Runs here by the batch's statistics."""
    import onnx
    model = onnx.load(file)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
            node.output.extend([node.output[0] + "_mean", node.output[0] + "_var"])
    onnx.save(model, file)


def export(args):
    os.makedirs(args.folder, exist_ok=True)
    for name in names_of(args):
        model = WithLoss(name).train()
        label, columns = batch_of(name, 16, "cpu")
        names = ["label"] + [c[0] for c in COLUMNS[name]]
        file = os.path.join(args.folder, name + ".onnx")
        rows = torch.export.Dim("rows", min=2, max=1 << 20)
        shapes = {"label": {0: rows}, "columns": tuple({0: rows} for _ in columns)}
        torch.onnx.export(model, (label, *columns), file, input_names=names, output_names=["loss", "prediction"],
                          dynamic_shapes=shapes, dynamo=True, external_data=False,
                          training=torch.onnx.TrainingMode.TRAINING, optimize=False)
        norm_by_batch(file)
        print(name, os.path.getsize(file))
    with open(os.path.join(args.folder, "models.json"), "w") as out:
        json.dump({name: {"columns": COLUMNS[name], "classes": classes_of(name)} for name in names_of(args)}, out)


def check(args):
    import braid as bd
    import numpy as np
    torch.set_num_threads(1)
    rows, steps, rate, failed = 16, 20, 0.01, 0
    for name in names_of(args):
        label, columns = batch_of(name, rows * steps, "cpu")
        fed = dict(zip([c[0] for c in COLUMNS[name]], columns), label=label)
        source = bd.io.onnx(os.path.join(args.folder, name + ".onnx"), loss="loss", prediction="prediction")
        data = bd.data.arrays(**{k: v.numpy() for k, v in fed.items()}).batch(rows, shuffle=False)
        ours = np.array(bd.Trainer(source, data, bd.optim.SGD(rate)).fit(steps=steps)["loss"])
        model, theirs = WithLoss(name).train(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for s in range(0, rows * steps, rows):
            optimizer.zero_grad()
            loss = model(label[s : s + rows], *[c[s : s + rows] for c in columns])[0]
            loss.backward()
            optimizer.step()
            theirs.append(loss.item())
        error = float(np.max(np.abs(ours - theirs) / np.abs(theirs)))
        failed |= not error <= args.limit
        print(json.dumps({"model": name, "error": error, "first": theirs[0], "last": theirs[-1]}), flush=True)
    return failed


def time_all(args):
    from torch_steps import captured, time_us
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    for name in names_of(args):
        for rows in map(int, args.batches.split(",")):
            line = {"model": name, "batch": rows, "precision": args.precision}
            for way in ["graph", "compile"] + (["auto"] if args.autotune else []):
                torch._dynamo.reset()
                model = WithLoss(name).cuda().train()
                if COLUMNS[name][0][0] == "image":
                    model = model.to(memory_format=torch.channels_last)
                label, columns = batch_of(name, rows, "cuda")
                if COLUMNS[name][0][0] == "image":
                    columns = [c.contiguous(memory_format=torch.channels_last) for c in columns]
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
                mode = {"compile": "default", "auto": "max-autotune-no-cudagraphs"}
                run = torch.compile(model, mode=mode[way]) if way != "graph" else model

                def step():
                    optimizer.zero_grad(set_to_none=True)
                    with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "BF16"):
                        loss = run(label, *columns)[0]
                    loss.backward()
                    optimizer.step()

                try:
                    line[way] = round(time_us(captured(step), args.steps), 1)
                except Exception as e:  # a way that a model cannot go
                    line[way] = f"{type(e).__name__}: {str(e)[:80]}"
            print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    out = ways.add_parser("export")
    out.add_argument("folder")
    checked = ways.add_parser("check")
    checked.add_argument("folder")
    checked.add_argument("--limit", type=float, default=1e-5)
    timed = ways.add_parser("time")
    timed.add_argument("--batches", default="256,4096")
    timed.add_argument("--steps", type=int, default=30)
    timed.add_argument("--precision", choices=["TF32", "BF16"], default="TF32")
    timed.add_argument("--autotune", action="store_true")
    for way in (out, checked, timed):
        way.add_argument("--models", default=",".join(MODELS))
        way.add_argument("--no-dropout", action="store_true")
    args = parser.parse_args()
    if args.no_dropout:
        graphs_sixth.DROP = 0
    return {"export": export, "check": check, "time": time_all}[args.way](args)


if __name__ == "__main__":
    sys.exit(main())
