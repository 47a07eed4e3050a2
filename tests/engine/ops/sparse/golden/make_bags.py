"""Makes bags.json beside this file: PyTorch's EmbeddingBag on small bags, forward and the gradients of table and
weights. tests/engine/ops/sparse/bag_test.cc compares braid.Bag. Needs PyTorch: python3 make_bags.py"""
import json
import pathlib

import torch
import torch.nn.functional as F

ROWS, DIM = 11, 5


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().reshape(-1).tolist()]


def case(name, mode, lengths, weighted, generator):
    table = torch.randn(ROWS, DIM, generator=generator, requires_grad=True)
    offsets = torch.tensor([0] + torch.tensor(lengths).cumsum(0).tolist())
    ids = torch.randint(0, ROWS, (int(offsets[-1]),), generator=generator)
    weights = torch.rand(ids.shape, generator=generator).requires_grad_() if weighted else None
    out = F.embedding_bag(ids, table, offsets, mode=mode, per_sample_weights=weights, include_last_offset=True)
    gradient = torch.randn(out.shape, generator=generator)
    out.backward(gradient)
    return {"name": name, "pooling": mode, "rows": ROWS, "dim": DIM, "table": numbers(table), "ids": ids.tolist(),
            "offsets": offsets.tolist(), "weights": numbers(weights) if weighted else [], "out": numbers(out),
            "gradient": numbers(gradient), "table_gradient": numbers(table.grad),
            "weights_gradient": numbers(weights.grad) if weighted else []}


generator = torch.Generator().manual_seed(7)
cases = [case("sum", "sum", [3, 0, 1, 7], False, generator), case("mean", "mean", [3, 0, 1, 7], False, generator),
         case("weighted", "sum", [2, 0, 5], True, generator), case("lists", "sum", [4, 4, 4], False, generator),
         case("one bag of many", "mean", [200], False, generator), case("max", "max", [3, 0, 1, 7], False, generator),
         case("max of many", "max", [200, 1], False, generator)]
text = ",\n".join(json.dumps(each) for each in cases)
(pathlib.Path(__file__).parent / "bags.json").write_text(
    f'{{"made_with": "PyTorch {torch.__version__}", "cases": [\n{text}\n]}}\n')
