"""How the models of torch_models.py are exported, made into jobs by bd.io.torch, and trained by PyTorch."""

import dataclasses
from typing import Callable

import numpy as np
import torch
import torch_models
import torch_more_models
from jobs import Exported, batches, random_data, write_csv, write_job


class Ftrl(torch.optim.Optimizer):
    """TensorFlow's formula with a power of -1/2 and without regularisation; PyTorch has none."""

    def __init__(self, parameters, lr, accumulator):
        super().__init__(parameters, {"lr": lr, "accumulator": accumulator})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad.coalesce().to_dense() if p.grad.is_sparse else p.grad
                state = self.state[p]
                if not state:
                    state["n"], state["z"] = torch.full_like(p, group["accumulator"]), torch.zeros_like(p)
                grown = state["n"] + g * g
                z = state["z"] + g - (grown.sqrt() - state["n"].sqrt()) / group["lr"] * p
                moved = -z * group["lr"] / grown.sqrt()
                if p.grad.is_sparse:  # rows that the batch does not name are left alone
                    rows = p.grad.coalesce().indices()[0]
                    p[rows], state["n"][rows], state["z"][rows] = moved[rows], grown[rows], z[rows]
                else:
                    p.copy_(moved), state.update(n=grown, z=z)


class Adam(torch.optim.Optimizer):
    """Braid's and TensorFlow's formula: epsilon stands beside the root that is not corrected for its bias."""

    def __init__(self, parameters, lr, eps):
        super().__init__(parameters, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"].lerp_(p.grad, 1 - 0.9)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                rate = group["lr"] * (1 - 0.999 ** state["t"]) ** 0.5 / (1 - 0.9 ** state["t"])
                p.sub_(rate * state["m"] / (state["v"].sqrt() + group["eps"]))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "MOMENTUM": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9),
    "ADAGRAD": lambda p: torch.optim.Adagrad(p, 0.05, initial_accumulator_value=0.1, eps=0.0),
    "ADAM": lambda p: Adam(p, 0.002, 1e-5),
    "FTRL": lambda p: Ftrl(p, 0.05, 0.1),
}
FUNCTIONS = {"cross_entropy": torch.nn.functional.cross_entropy, "binary_cross_entropy_with_logits":
             torch.nn.functional.binary_cross_entropy_with_logits}


@dataclasses.dataclass
class TorchProgram:
    name: str
    model: Callable
    columns: dict
    loss: object

    clip = 0
    form = "torch.export"
    ways = ("REDO",)

    @property
    def parallel(self):
        return self.loss is not None and not any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in self.model().modules())

    @property
    def tables(self):
        return any(getattr(each, "sparse", False) for each in self.model().modules())

    def refuses(self, optimizer):
        if self.name == "torch_contrast" and optimizer == "FTRL":
            return "makes rows of zeros, and where these are normalised gradients are divided by 1e-12"
        return "PyTorch's takes no gradients of rows" if self.tables and optimizer in ("ADAM", "MOMENTUM") else ""

    def export(self, folder, kind):
        import braid as bd
        from braid.data import fields
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(11)
        data = random_data(self.columns, np.random.default_rng(len(self.name)))
        model = self.model()
        source = bd.io.torch(torch_models.exported(model, self.columns), loss=self.loss)
        source.columns = data
        graph = fields(source.job_fields(str(folder), "label")["graph"], "  ")
        job = write_job(folder, write_csv(folder, data, self.columns), kind, graph)
        loss_of, losses = FUNCTIONS.get(self.loss, self.loss), []
        optimizer = OPTIMIZERS[kind](model.parameters())
        for batch in batches(data):
            values = [torch.from_numpy(value) for name, value in batch.items() if name != "label"]
            optimizer.zero_grad()
            loss = model(*values)
            if loss_of:
                loss = loss_of(loss, torch.from_numpy(batch["label"]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        changes = {*dict(model.named_parameters()), *source.program.graph_signature.buffers_to_mutate.values()}
        kept = {name: value.numpy() for name, value in model.state_dict().items() if value.is_floating_point() and name in changes}
        return Exported(job, "", np.array(losses), kept)


PROGRAMS = [TorchProgram(name, *what) for name, what in {**torch_models.MODELS, **torch_more_models.MODELS}.items()]
