"""What the programs of oracle.py share: their random data, and the job files that train them."""

import dataclasses
import pathlib

import numpy as np

BATCH, STEPS = 32, 20

JOB_OPTIMIZERS = {
    "SGD": "kind: SGD learning_rate: 0.05",
    "MOMENTUM": "kind: MOMENTUM learning_rate: 0.02 momentum: 0.9",
    "ADAGRAD": "kind: ADAGRAD learning_rate: 0.05 initial_accumulator: 0.1",
    "ADAM": "kind: ADAM learning_rate: 0.002 epsilon: 1e-5",
    "FTRL": "kind: FTRL learning_rate: 0.05 initial_accumulator: 0.1",
}


@dataclasses.dataclass
class Exported:
    job: pathlib.Path
    train_op: str
    losses: np.ndarray
    variables: dict


def random_data(columns, rng):
    """columns: name -> (shape of a row, "float" | "label" | number of ids)."""
    rows = BATCH * STEPS
    data = {}
    for name, (shape, kind) in columns.items():
        if kind == "float":
            data[name] = rng.standard_normal((rows, *shape)).astype(np.float32)
        elif kind == "label":
            data[name] = rng.integers(0, 2, (rows, *shape)).astype(np.float32)
        else:
            data[name] = rng.integers(0, kind, (rows, *shape)).astype(np.int64)
    return data


def has_ids(columns):
    """Whether embeddings are read, which are trained by rows."""
    return any(isinstance(kind, int) and name != "label" for name, (_, kind) in columns.items())


def write_csv(folder, data, columns):
    """The rows, and the schema of a job: a field for each number of a row."""
    schema, fields, texts = [], [], []
    for name, (shape, kind) in columns.items():
        flat = data[name].reshape(len(data[name]), -1)
        job_kind = {"float": "NUMERIC", "label": "LABEL"}.get(kind, "CLASS")
        for i in range(flat.shape[1]):
            field = f"{name}_{i}"
            fields.append(field)
            schema.append(f'  columns {{ name: "{field}" kind: {job_kind} output: "{name}" }}')
            texts.append([format(v, ".9g") if kind == "float" else str(int(v)) for v in flat[:, i]])
    with open(folder / "data.csv", "w") as out:
        out.write(",".join(fields) + "\n")
        for row in zip(*texts):
            out.write(",".join(row) + "\n")
    return "\n".join(schema)


def write_job(folder, schema, optimizer, graph):
    job = folder / "job.pbtxt"
    job.write_text(
        f"""seed: 7 steps: {STEPS}
model {{ graph {{
{graph}
}} }}
input {{
  format: CSV train_files: "data.csv" global_batch_size: {BATCH} shuffle: false csv {{ header: true }}
{schema}
}}
optimizer {{ {JOB_OPTIMIZERS[optimizer]} }}
evaluation {{ enabled: false }}
"""
    )
    return job


def batches(data):
    for step in range(STEPS):
        yield {name: values[step * BATCH : (step + 1) * BATCH] for name, values in data.items()}
