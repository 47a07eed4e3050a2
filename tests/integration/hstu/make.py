"""Makes losses.json beside this file: what a plain PyTorch model in float32 loses, step by step, that is HSTU as
MLPerf's reference has it, with cut tables and narrow layers, on rows that braid makes. Initial values are hashes of
names and places, which tests/integration/hstu_test.cc makes likewise; it trains the same with braid. Needs PyTorch
(the file here is 2.15's) on a CPU: python3 make.py PATH/TO/braid"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

BATCH, STEPS = 16, 60
DIM, HEADS, LAYERS, HIDDEN, MAX_ROWS, CONTEXT = 8, 2, 2, 6, 40, 8
PLACES, AGES, BITS = 8192, 2048, 3
BUCKETS = {"items": 9390624, "artists": 1293395, "albums": 3367692, "uid": 1000001, "user_x_artist": 100000000,
           "user_x_album": 40000000, "user_x_hour": 24000000, "item_x_hour": 40000000, "artist_x_hour": 32000000,
           "user_x_is_organic": 2000000, "user_x_artist_x_hour": 40000000}
TOKEN = {"items": "item", "artists": "artist", "albums": "album"}
CONTEXTS = [name for name in BUCKETS if name not in TOKEN]
DATA = ["data", "hstu", "--users", "150", "--seed", "3", "--history", "24", "--samples", "4", "--items", "500", "--artists",
        "50", "--albums", "100"]
HERE = pathlib.Path(__file__).parent
MASK = 2 ** 64 - 1


def stable_hash(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


def cross(name, parts):
    h = stable_hash(name + "=")
    for part in parts:
        h = (h ^ stable_hash(part)) * 0xBF58476D1CE4E5B9 & MASK
        h ^= h >> 31
    return h


def hashed(word, value):
    return stable_hash(f"{word}={value}") % BUCKETS[word] % MAX_ROWS


def initial(name, shape, bound, middle=0.0):
    """middle +- bound, by SplitMix64 of the hash of the name and the place."""
    h = (np.uint64(stable_hash(name)) + np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    h = (h ^ h >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ h >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    h = h ^ h >> np.uint64(31)
    u = (h >> np.uint64(40)).astype(np.float64) * 2.0 ** -23 - 1
    return (middle + bound * u).astype(np.float32).reshape(shape)


def variables():
    """(name, shape, bound, middle)"""
    all_of = []

    def add(name, shape, bound=0.3, middle=0.0):
        all_of.append((name, list(shape), bound, middle))

    def dense(name, inputs, outputs):
        add(f"{name}/kernel", (inputs, outputs), inputs ** -0.5)
        add(f"{name}/bias", (outputs,), 0.1)

    def norm(name, width):
        add(f"{name}/scale", (width,), 0.1, 1.0)
        add(f"{name}/shift", (width,), 0.1)

    def mlp(name, inputs, hidden, outputs):
        dense(f"{name}/inner", inputs, hidden)
        norm(f"{name}/swish", hidden)
        dense(f"{name}/outer", hidden, outputs)
        norm(f"{name}/norm", outputs)

    for name, rows in BUCKETS.items():
        add(f"{name}/table", (min(rows, MAX_ROWS), DIM))
    mlp("first", DIM, HIDDEN, DIM)
    mlp("further", 2 * DIM, HIDDEN, DIM)
    add("action/bits", (BITS, 8))
    add("action/candidate", (1, BITS * 8))
    mlp("action/mlp", BITS * 8, HIDDEN, DIM)
    for name in CONTEXTS:
        dense(f"context/{name}", DIM, DIM)
    add("position/places", (PLACES, DIM))
    add("age/buckets", (AGES + 1, DIM))
    for layer in range(LAYERS):
        norm(f"layer{layer}/norm", DIM)
        dense(f"layer{layer}/uvqk", DIM, 4 * DIM)
        norm(f"layer{layer}/output_norm", DIM)
        add(f"layer{layer}/output/kernel", (3 * DIM, DIM))
    dense("user", DIM + 4, DIM)
    norm("user/norm", DIM)
    mlp("item", 3 * DIM, DIM, DIM)
    dense("head/inner", DIM, DIM)
    norm("head/swish", DIM)
    dense("head/logit", DIM, 1)
    return all_of


def read_rows(braid):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([braid, *DATA, "--out", folder], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([braid, "data", "convert", f"{folder}/train.parquet", "--out", f"{folder}/train.csv"], check=True,
                       stdout=subprocess.DEVNULL)
        csv.field_size_limit(1 << 24)
        with open(f"{folder}/train.csv") as file:
            return [row_of(raw) for raw in csv.DictReader(file)]


def row_of(raw):
    lists = {name: raw[f"history_{name}"].split("|") for name in ("item", "artist", "album", "action", "age")}
    row = {word: [hashed(word, v) for v in lists[name]] + [hashed(word, raw[name])] for word, name in TOKEN.items()}
    row["bits"] = [[int(v) >> bit & 1 for bit in range(BITS)] for v in lists["action"]]
    row["ages"] = [float(v) for v in lists["age"]] + [0.0]
    context = [hashed("uid", raw["uid"])]
    for name, other in (("user_x_artist", "artist"), ("user_x_album", "album")):
        parts = [f"uid={raw['uid']}", f"{other}s={raw[other]}"]
        context.append(cross(name, parts) % BUCKETS[name] % MAX_ROWS)
    row["context"] = context + [hashed(name, raw[name]) for name in CONTEXTS[3:]]
    row["dense"] = [float(raw[name]) for name in ("hour_cos", "hour_sin", "day_cos", "day_sin")]
    row["label"] = float(raw["label"])
    return row


def dense(v, name, x):
    return x @ v[f"{name}/kernel"] + v[f"{name}/bias"]


def norm(v, name, x, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], v[f"{name}/scale"], v[f"{name}/shift"], eps)


def swish(v, name, x):
    return x * torch.sigmoid(norm(v, name, x))


def mlp(v, name, x):
    return norm(v, f"{name}/norm", dense(v, f"{name}/outer", swish(v, f"{name}/swish", dense(v, f"{name}/inner", x))))


def logit(v, row, longest):
    """Of one row of the batch: its sequence alone."""
    rows = [v[f"{word}/table"][torch.tensor(row[word])] for word in TOKEN]
    bits = torch.tensor(row["bits"], dtype=torch.float32)
    action = torch.cat([(bits[:, :, None] * v["action/bits"]).flatten(1), v["action/candidate"]])
    content = mlp(v, "first", rows[0]) + mlp(v, "further", torch.cat(rows[1:], 1)) + mlp(v, "action/mlp", action)
    context = torch.stack([dense(v, f"context/{name}", v[f"{name}/table"][i]) for name, i in zip(CONTEXTS, row["context"])])
    x = torch.cat([context, content])
    n = len(x)
    places = [i if i < CONTEXT else CONTEXT + n - 1 - i for i in range(n)]
    minutes = torch.tensor(row["ages"]).clamp(min=1e-6) / 60
    ages = torch.cat([torch.full((CONTEXT,), AGES), minutes.sqrt().clamp(max=AGES).long()])
    x = DIM ** 0.5 * x + v["position/places"][torch.tensor(places)] + v["age/buckets"][ages]
    for layer in range(LAYERS):
        name = f"layer{layer}"
        u, *vqk = dense(v, f"{name}/uvqk", norm(v, f"{name}/norm", x, 1e-6)).chunk(4, 1)
        values, q, k = (part.view(n, HEADS, -1).transpose(0, 1) for part in vqk)
        scores = F.silu(q @ k.transpose(1, 2) * (DIM // HEADS) ** -0.5) / longest
        o = (scores.tril() @ values).transpose(0, 1).reshape(n, DIM)
        u = F.silu(u)
        y = torch.cat([u, o, u * norm(v, f"{name}/output_norm", o, 1e-6)], 1)
        x = x + y @ v[f"{name}/output/kernel"]
    user = norm(v, "user/norm", dense(v, "user", torch.cat([x[-1], torch.tensor(row["dense"])])))
    item = mlp(v, "item", torch.cat([of_table[-1] for of_table in rows]))
    return dense(v, "head/logit", swish(v, "head/swish", dense(v, "head/inner", user * item)))[0]


def loss_of(v, rows):
    longest = max(CONTEXT + len(row["ages"]) for row in rows)
    logits = torch.stack([logit(v, row, longest) for row in rows])
    return 0.2 * F.binary_cross_entropy_with_logits(logits, torch.tensor([row["label"] for row in rows]))


def descend(v, state, step):
    for p in v.values():
        p.data -= 0.1 * p.grad


def adam_and_row_wise(v, state, step):
    """Adam with the bias corrections in its rate (Kingma and Ba 2015, end of section 2); FBGEMM's row-wise Adagrad."""
    for name, p in v.items():
        if name.endswith("/table"):
            a = state.setdefault(name, torch.zeros(p.shape[0]))
            a += p.grad.square().mean(1)
            p.data -= 0.01 * p.grad / (a.sqrt()[:, None] + 1e-8)
            continue
        m, s = state.setdefault(name, (torch.zeros_like(p.data), torch.zeros_like(p.data)))
        m += 0.05 * (p.grad - m)
        s += 0.001 * (p.grad.square() - s)
        rate = 0.002 * (1 - 0.999 ** (step + 1)) ** 0.5 / (1 - 0.95 ** (step + 1))
        p.data -= rate * m / (s.sqrt() + 1e-4)


def train(rows, update):
    v = {name: torch.nn.Parameter(torch.tensor(initial(name, *rest))) for name, *rest in variables()}
    losses, state = [], {}
    for step in range(STEPS):
        at = step % (len(rows) // BATCH) * BATCH
        for p in v.values():
            p.grad = torch.zeros_like(p)
        loss = loss_of(v, rows[at:at + BATCH])
        loss.backward()
        update(v, state, step)
        losses.append(float(f"{loss.item():.9g}"))
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = read_rows(sys.argv[1])
    # What the shipped job's settings and its group of tables become.
    sets = {"descent": (descend, ["optimizer.kind=SGD", "optimizer.learning_rate=0.1"], "match: '.*/table' learning_rate: 0.1"),
            "its own": (adam_and_row_wise, ["optimizer.learning_rate=0.002", "optimizer.epsilon=1e-4"],
                        "match: '.*/table' kind: ADAGRAD learning_rate: 0.01 epsilon: 1e-8 initial_accumulator: 0 row_wise: true")}
    cases = [{"name": name, "set": said, "group": group, "losses": train(rows, update)}
             for name, (update, said, group) in sets.items()]
    head = {"made_with": f"PyTorch {torch.__version__}", "data": DATA, "rows": len(rows)}
    text = json.dumps(head)[:-1] + ',\n"variables": [\n' + ",\n".join(map(json.dumps, variables()))
    text += '],\n"cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n"
    (HERE / "losses.json").write_text(text)
