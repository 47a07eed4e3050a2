"""Makes initial.npz and losses.json beside this file: what a plain PyTorch model loses, step by step, that is DLRM-v2
as MLPerf's reference has it, with cut tables and narrow layers, from given values and on rows that braid makes.
tests/integration/dlrm_v2_test.cc trains the same with braid. Needs PyTorch (the files here are 2.15's) on a CPU:
python3 make.py PATH/TO/braid"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

ROWS, BATCH, STEPS, SEED = 512, 32, 200, 3
DIM, MAX_ROWS, BOTTOM, TOP, LAYERS, RANK = 4, 20, [8], [12, 6], 3, 3
LR, EPSILON = 0.004, 1e-8
TABLES = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4,
          976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36]
HOTS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
HERE = pathlib.Path(__file__).parent


def make_initial(rng):
    values = {}

    def add(name, shape, bound):
        values[name] = rng.uniform(-bound, bound, size=shape).astype(np.float32)

    def layers(name, width, widths):
        for i, out in enumerate(widths):
            add(f"{name}/layer{i}/kernel", (width, out), width ** -0.5)
            add(f"{name}/layer{i}/bias", (out,), width ** -0.5)
            width = out
        return width

    layers("bottom", 13, BOTTOM + [DIM])
    for c, rows in enumerate(TABLES):
        add(f"c{c}/table", (min(rows, MAX_ROWS), DIM), min(rows, MAX_ROWS) ** -0.5)
    width = DIM * 27
    for l in range(LAYERS):
        for name, shape in (("v", (width, RANK)), ("w", (RANK, width))):
            values[f"cross{l}/{name}"] = rng.normal(0, (2 / (width + RANK)) ** 0.5, size=shape).astype(np.float32)
        values[f"cross{l}/bias"] = np.zeros(width, np.float32)
    width = layers("top", width, TOP)
    add("logit/kernel", (width, 1), width ** -0.5)
    add("logit/bias", (1,), width ** -0.5)
    return values


def read_rows(braid):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([braid, "data", "mlperf-dlrm", "--rows", str(ROWS), "--seed", str(SEED), "--out", folder],
                       check=True, stdout=subprocess.DEVNULL)
        raw = np.fromfile(f"{folder}/train_data.bin", np.int32).reshape(ROWS, 228)
    return raw[:, 0].astype(np.float32), raw[:, 1:14].copy().view(np.float32), raw[:, 14:]


def logits(v, dense, ids):
    def layers(name, x, count):
        for i in range(count):
            x = torch.relu(x @ v[f"{name}/layer{i}/kernel"] + v[f"{name}/layer{i}/bias"])
        return x

    parts, first = [layers("bottom", dense, len(BOTTOM) + 1)], 0
    for c, hot in enumerate(HOTS):
        table = v[f"c{c}/table"]
        parts.append(F.embedding_bag(ids[:, first:first + hot] % table.shape[0], table, mode="sum"))
        first += hot
    x = x0 = torch.cat(parts, 1)
    for l in range(LAYERS):
        x = x0 * ((x @ v[f"cross{l}/v"]) @ v[f"cross{l}/w"] + v[f"cross{l}/bias"]) + x
    return (layers("top", x, len(TOP)) @ v["logit/kernel"] + v["logit/bias"])[:, 0]


def row_wise(name, parameter, state):
    """FBGEMM's EXACT_ROWWISE_ADAGRAD."""
    accumulator = state.setdefault(name, torch.zeros(parameter.shape[0]))
    accumulator += parameter.grad.square().mean(1)
    parameter.data -= LR * parameter.grad / (accumulator.sqrt()[:, None] + EPSILON)


def train(initial, rows, by_rows):
    v = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in initial.items()}
    tables = [name for name in v if by_rows and name.endswith("/table")]
    optimizer = torch.optim.Adagrad([p for name, p in v.items() if name not in tables], lr=LR, eps=EPSILON)
    label, dense, ids = (torch.tensor(each) for each in rows)
    losses, state = [], {}
    for step in range(STEPS):
        at = slice(step * BATCH % ROWS, step * BATCH % ROWS + BATCH)
        for p in v.values():
            p.grad = None
        loss = F.binary_cross_entropy_with_logits(logits(v, dense[at], ids[at].long()), label[at])
        loss.backward()
        optimizer.step()
        for name in tables:
            row_wise(name, v[name], state)
        losses.append(float(f"{loss.item():.9g}"))
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    initial, rows = make_initial(np.random.default_rng(5)), read_rows(sys.argv[1])
    np.savez_compressed(HERE / "initial.npz", **initial)
    cases = [{"name": name, "set": said, "losses": train(initial, rows, by_rows)} for name, said, by_rows in (
        ("per_element", [], False), ("row_wise", ["optimizer.row_wise=true"], True))]
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "losses.json").write_text(f'{{"made_with": "PyTorch {torch.__version__}", "cases": [\n{text}\n]}}\n')
