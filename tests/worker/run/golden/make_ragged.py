"""Makes ragged.json beside this file: the losses of dcn_v2 on a ragged column, with PyTorch's EmbeddingBag in the place of its
table, and attention.json: those with pooling by attention, also of a list that 0 fills. tests/worker/run/ragged_losses_test.cc makes the same rows and first values. Needs PyTorch: python3 make_ragged.py"""
import json
import pathlib

import torch
import torch.nn.functional as F

ROWS, BATCH, STEPS, DIM, CITIES, TAGS = 96, 32, 30, 4, 5, 30


class Draws:
    """Numbers that any language makes alike."""

    def __init__(self, state):
        self.state = state % 2**31

    def below(self, n):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return (self.state >> 8) % n


def rows(longest):
    draws, made = Draws(17), []
    for r in range(ROWS):
        x, city = draws.below(1000) / 500 - 1, draws.below(CITIES)
        count = 0 if r == 5 else longest if r == 7 else draws.below(6)
        tags = [(draws.below(TAGS), (1 + draws.below(8)) / 4) for _ in range(count)]
        made.append((x, city, tags, draws.below(2)))
    return made


def initial(name, shape, of_tables):
    draws = Draws(sum((i + 1) * b for i, b in enumerate(name.encode())))
    scale = of_tables if name.endswith("/table") else 0.2
    count = int(torch.Size(shape).numel())
    values = [(draws.below(2001) / 1000 - 1) * scale for _ in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape).requires_grad_()


def pooled(table, bags, pooling, weighted):
    ids = torch.tensor([tag for bag in bags for tag, _ in bag])
    ends = torch.tensor([0] + [len(bag) for bag in bags]).cumsum(0)
    if not weighted and pooling != "sqrtn":
        return F.embedding_bag(ids, table, ends, mode=pooling, include_last_offset=True)
    weights = []
    for bag in bags:  # EmbeddingBag has weights of sums alone
        own = [w if weighted else 1.0 for _, w in bag]
        by = {"sum": 1, "mean": sum(own), "sqrtn": sum(w * w for w in own) ** 0.5}[pooling]
        weights += [w / by for w in own]
    return F.embedding_bag(ids, table, ends, mode="sum", per_sample_weights=torch.tensor(weights), include_last_offset=True)


def attended(table, bags, queries, first_id):
    """Of each bag the rows by the softmax of their products with the bag's query; zeros of none."""
    made = []
    for bag, query in zip(bags, queries):
        if not bag:
            made.append(torch.zeros(DIM))
            continue
        of_bag = F.embedding(torch.tensor([tag + first_id for tag, _ in bag]), table)
        made.append(torch.softmax(of_bag @ query / DIM**0.5, 0) @ of_bag)
    return torch.stack(made)


def losses(pooling, weighted, longest, rate, of_tables=0.003, query="", first_id=0):
    width, hidden = 1 + 2 * DIM, 8
    shapes = {"city/table": (CITIES, DIM), "tags/table": (TAGS + first_id, DIM), "deep/layer0/kernel": (width, hidden),
              "deep/layer0/bias": (hidden,), "logit/kernel": (width + hidden, 1), "logit/bias": (1,)}
    if pooling == "attention" and not query:
        shapes["tags/query"] = (DIM,)
    for layer in range(3):
        shapes[f"cross{layer}/kernel"], shapes[f"cross{layer}/bias"] = (width, width), (width,)
    v = {name: initial(name, shape, of_tables) for name, shape in shapes.items()}
    optimizer = torch.optim.SGD(list(v.values()), lr=rate)
    data, found = rows(longest), []
    for step in range(STEPS):
        batch = [data[(step * BATCH + i) % ROWS] for i in range(BATCH)]
        x = torch.tensor([[row[0]] for row in batch], dtype=torch.float32)
        cities = F.embedding(torch.tensor([row[1] for row in batch]), v["city/table"])
        bags = [row[2] for row in batch]
        if pooling == "attention":
            queries = cities if query else v["tags/query"].expand(BATCH, DIM)
            tags = attended(v["tags/table"], bags, queries, first_id)
        else:
            tags = pooled(v["tags/table"], bags, pooling, weighted)
        x0 = torch.cat([x, cities, tags], 1)
        cross = x0
        for layer in range(3):
            cross = x0 * (cross @ v[f"cross{layer}/kernel"] + v[f"cross{layer}/bias"]) + cross
        deep = torch.relu(x0 @ v["deep/layer0/kernel"] + v["deep/layer0/bias"])
        logits = (torch.cat([cross, deep], 1) @ v["logit/kernel"] + v["logit/bias"]).reshape(-1)
        loss = F.binary_cross_entropy_with_logits(logits, torch.tensor([float(row[3]) for row in batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(f"{loss.item():.9g}"))
    return found


# The sum of 10,000 rows learns in large steps, so its rate is small.
cases = [{"pooling": pooling, "weighted": weighted, "longest": longest, "rate": rate,
          "losses": losses(pooling, weighted, longest, rate)}
         for pooling, longest, rate in (("sum", 30, 0.2), ("sum", 10_000, 1e-4), ("mean", 10_000, 0.2), ("sqrtn", 10_000, 0.2),
                                        ("max", 10_000, 0.2))
         for weighted in (False, True) if not (weighted and pooling == "max")]
attention = [{"list": filled, "query": query, "longest": longest, "rate": 0.2, "tables": 1.0,
              "losses": losses("attention", False, longest, 0.2, 1.0, query, 1 if filled else 0)}
             for filled, longest in ((False, 10_000), (True, 6)) for query in ("", "city")]
for name, made in (("ragged", cases), ("attention", attention)):
    assert all(loss < 2 for case in made for loss in case["losses"])
    text = ",\n".join(json.dumps(case) for case in made)
    (pathlib.Path(__file__).parent / f"{name}.json").write_text(
        f'{{"made_with": "PyTorch {torch.__version__}", "cases": [\n{text}\n]}}\n')
