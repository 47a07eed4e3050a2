"""What a Trainer is told: outputs of models, strategies, checkpoints; and what it tells."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from braid.data import Word


@dataclass
class Outputs:
    """What a model function returns. loss: a scalar, the batch's mean. prediction: logits or values. updates: nodes that
    run in each training step (bd.nn.batch_norm)."""

    loss: object
    prediction: object = None
    updates: list[Any] = field(default_factory=list)


@dataclass
class StepResult:
    """What Trainer.step gives: the loss of the batch, the number of the step (from 0), and its seconds."""

    loss: float
    step: int
    seconds: float


@dataclass
class Checkpoint:
    """checkpoint of a job: where, and how often."""

    directory: str
    every_steps: int = 0
    keep: int = 3
    every_seconds: float = 0
    keep_best: int = 0

    def job_fields(self) -> dict[str, Any]:
        return {"directory": os.path.abspath(self.directory), "every_steps": self.every_steps, "keep": self.keep,
                "every_seconds": self.every_seconds or None, "keep_best": self.keep_best or None}


def _with_words(value: Any) -> Any:
    """The same with names of the job file's enums, which are in capitals, also within messages."""
    if isinstance(value, dict):
        return {key: each if key == "match" else _with_words(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_words(each) for each in value]
    return Word(value) if isinstance(value, str) and value.isupper() else value


class _Strategy:
    kind = "LOCAL"

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def job_fields(self) -> dict[str, Any]:
        return {"kind": Word(self.kind), **_with_words(self.settings)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"


class Local(_Strategy):
    """This process alone."""


class PS(_Strategy):
    """Parameter servers; settings are fields of strategy (consistency="ASP", ...)."""

    kind = "PS"


class AllReduce(_Strategy):
    """Workers that add their gradients."""

    kind = "ALLREDUCE"


class Mirrored(_Strategy):
    """AllReduce among the devices of this process (mirrored={"devices": 2})."""

    kind = "MIRRORED"


class Hybrid(_Strategy):
    """Tables spread over the workers, the rest as AllReduce."""

    kind = "HYBRID"


class Pipeline(_Strategy):
    """Parts of the model on different workers (pipeline={"micro_batches": 8})."""

    kind = "PIPELINE"


class TensorParallel(_Strategy):
    """Layers cut over workers, of which groups may share the rows (mesh={"data": 2, "tensor": 2})."""

    kind = "TENSOR"


class Experts(_Strategy):
    """Experts of sparse mixtures on different workers, the rest as AllReduce (mesh={"data": 2, "experts": 4})."""

    kind = "EXPERTS"


class PSAllReduce(_Strategy):
    """Sparse tables on parameter servers, the rest as AllReduce."""

    kind = "PS_ALLREDUCE"


class History(dict[str, Any]):
    """history["loss"]: of each step of the run; history["evaluations"]: [(done, metrics)]; history.result: the run's
    result line as a dict. history.epochs: with callbacks of Keras, what they were told of each epoch, lists by name."""

    epochs = None
    result = None
    exit = 0

    def __repr__(self) -> str:
        loss, evaluations = self.get("loss", []), self.get("evaluations", [])
        told = f"loss {loss[0]:.4g} to {loss[-1]:.4g}" if loss else "no loss"
        told += f", {len(evaluations)} evaluations, the last {evaluations[-1][1]}" if evaluations else ""
        return f"<braid.History of {len(loss)} steps: {told}>"


def as_strategy(strategy: Any) -> Any:
    if not isinstance(strategy, str):
        return strategy
    if strategy != "auto":
        return {"local": Local, "ps": PS, "allreduce": AllReduce, "mirrored": Mirrored, "hybrid": Hybrid,
                "pipeline": Pipeline, "ps_allreduce": PSAllReduce, "tensor": TensorParallel,
                "experts": Experts}[strategy.lower()]()
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if cluster.get("ps"):
        return PS()
    several = len(cluster.get("worker", [])) + len(cluster.get("chief", [])) > 1
    ranks = max(int(os.environ.get(each) or 1) for each in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE",
                                                            "SLURM_NTASKS"))
    return AllReduce() if several or ranks > 1 else Local()


def words(settings: Any) -> Any:
    return {key: Word(value) if isinstance(value, str) and value.isupper() else value
            for key, value in (settings or {}).items()}
