"""Optimizers. In a Trainer they are the job's (the same update formulas on workers and servers); `minimize` adds the
same updates to a graph that a Session runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braid import dtypes, ops
from braid.graph import Operation, Tensor, Variable


def schedule(of: Any, every: int | str = 1) -> Any:
    """A schedule of Trainer(schedule=...): a scheduler of torch.optim.lr_scheduler, or a function of a number from 0 that
    gives the factor of the learning rate. every: the steps between two calls of it, or "epoch"."""
    from braid._optimizers_of import as_schedule
    return as_schedule(of, every)


class Optimizer:
    """A kind of job.proto's Optimizer with its settings, and how it updates a variable of a session's graph."""

    kind = ""
    slots: tuple[tuple[str, Any], ...] = ()  # (name, first value)
    is_of_keras = False  # its formulas are to be Keras'

    def __init__(self, learning_rate: Any, **settings: Any) -> None:
        self.learning_rate, self.settings = learning_rate, {k: v for k, v in settings.items() if v is not None}

    def __repr__(self) -> str:
        settings = {"learning_rate": self.learning_rate, **self.settings}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"

    def job_fields(self) -> dict[str, Any]:
        """Fields of `optimizer` in a job."""
        if isinstance(self.learning_rate, Tensor):
            raise TypeError("a Trainer's learning rate is a number: schedules are Trainer(schedule=...)")
        return {"kind": self.kind, "learning_rate": float(self.learning_rate), **self.settings}

    def compute_gradients(self, loss: Tensor, var_list: Sequence[Variable] | None = None) -> list[Any]:
        """[(gradient, variable)]: a Tensor, (indices, values) of rows, or None where the loss does not depend on it."""
        graph = loss.graph
        found = {each: (dense if dense is not None else rows) for each, dense, rows in graph.add_gradients(loss)}
        wanted = [each for each in graph.variables if each.trainable] if var_list is None else list(var_list)
        return [(found.get(each), each) for each in wanted]

    def apply_gradients(self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None) -> Operation:
        """An Operation that updates the variables, and adds 1 to `global_step`."""
        pairs = [(gradient, each) for gradient, each in grads_and_vars if gradient is not None]
        if not pairs:
            raise ValueError("no gradient to apply: the loss depends on none of the variables")
        graph = pairs[0][1].graph
        with graph.control_dependencies([]):
            updates = [self._update(graph, each, gradient) for gradient, each in pairs]
            extra = self._finish(graph, updates)
        done = updates + extra
        if global_step is not None:
            with graph.control_dependencies(updates):
                done.append(global_step.assign_add(np.asarray(1, global_step.dtype.numpy)))
        return ops.group(*done, name=name or self.kind.lower())

    def minimize(self, loss: Tensor, global_step: Variable | None = None, var_list: Sequence[Variable] | None = None,
                 name: str | None = None, **_: Any) -> Operation:
        """An Operation that runs one step."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

    # --------------------------------------------------------------------------------------------------------------
    def _slot(self, graph: Any, variable: Variable, name: str, first: Any) -> Any:
        key = (variable.variable_name, name)
        made = graph.collections.setdefault("__slots", {})
        if key not in made:
            names, graph._names = graph._names, []
            try:
                made[key] = graph.add_variable(f"{variable.variable_name}/{name}", variable.shape, variable.dtype,
                                               ("constant", first), trainable=False)
            finally:
                graph._names = names
        return made[key].handle

    def _number(self, graph: Any, value: Any, dtype: Any = dtypes.float32) -> Any:
        return value if isinstance(value, Tensor) else graph.constant(np.asarray(value, dtype.numpy))

    def _update(self, graph: Any, variable: Variable, gradient: Any) -> Any:
        handles = [self._slot(graph, variable, name, first) for name, first in self._slot_values()]
        rate = self._number(graph, self.learning_rate)
        beside = gradient[1] if isinstance(gradient, tuple) else gradient
        with graph.colocate(beside):
            if isinstance(gradient, tuple):
                return self._sparse(graph, variable, handles, rate, *gradient)
            return self._dense(graph, variable, handles, rate, gradient)

    def _slot_values(self) -> Any:
        return self.slots

    def _summed(self, graph: Any, variable: Variable, indices: Any, values: Any) -> Any:
        """Rows as a dense gradient."""
        return ops.call("UnsortedSegmentSum", [values, indices, np.int32(variable.shape[0])])

    def _once(self, variable: Variable, indices: Any, values: Any) -> Any:
        """Rows of gradients in which the first of equal indices has their sum, and the others are zeros."""
        rows = np.int32(variable.shape[0])
        places = ops.range(ops.shape(indices)[0])
        first = ops.gather(ops.call("UnsortedSegmentMin", [places, indices, rows]), indices)
        is_first = ops.reshape(ops.call("Equal", [first, places]), [-1] + [1] * (len(values.shape) - 1))
        return ops.where(is_first, ops.gather(ops.call("UnsortedSegmentSum", [values, indices, rows]), indices), 0.0)

    def _rows_alone(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        """The dense update by the summed rows, with all rows that are not named put back."""
        rows = np.int32(variable.shape[0])
        ones = ops.call("OnesLike", [ops.cast(indices, dtypes.float32)])
        named = ops.reshape(ops.call("UnsortedSegmentSum", [ones, indices, rows]) > 0.0,
                            [-1] + [1] * (len(variable.shape) - 1))
        every = [variable.handle, *handles]

        def read(handle: Any) -> Any:
            return graph.add("ReadVariableOp", [handle], {"dtype": variable.dtype}).outputs[0]

        before = [ops.identity(read(each)) for each in every]
        with graph.control_dependencies(before):
            update = self._dense(graph, variable, handles, rate, self._summed(graph, variable, indices, values))
        with graph.control_dependencies([update]):
            return ops.group(*[graph.add("AssignVariableOp", [each, ops.where(named, read(each), was)],
                                         {"dtype": variable.dtype}) for each, was in zip(every, before)])

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return self._dense(graph, variable, handles, rate, self._summed(graph, variable, indices, values))

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        raise NotImplementedError

    def _finish(self, graph: Any, updates: Any) -> Any:
        return []


class SGD(Optimizer):
    """w -= lr * g."""

    kind = "SGD"

    def __init__(self, learning_rate: Any = 0.01, **settings: Any) -> None:
        super().__init__(learning_rate, **settings)

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        return graph.add("ResourceApplyGradientDescent", [variable.handle, rate, gradient])

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return graph.add("ResourceScatterSub", [variable.handle, indices, values * rate])


class Momentum(Optimizer):
    """m = momentum * m + g; w -= lr * m, or lr * (g + momentum * m) with nesterov."""

    kind = "MOMENTUM"
    slots = (("momentum", 0.0),)

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, nesterov: bool = False, **settings: Any) -> None:
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, **settings)

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        return graph.add("ResourceApplyMomentum",
                         [variable.handle, *handles, rate, gradient, self._number(graph, self.settings["momentum"])],
                         {"use_nesterov": self.settings["nesterov"]})

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return self._rows_alone(graph, variable, handles, rate, indices, values)


class Adagrad(Optimizer):
    """a += g^2; w -= lr * g / sqrt(a)."""

    kind = "ADAGRAD"

    def __init__(self, learning_rate: Any = 0.01, initial_accumulator: float = 0.1, **settings: Any) -> None:
        super().__init__(learning_rate, initial_accumulator=initial_accumulator, **settings)

    def _slot_values(self) -> Any:
        return (("accumulator", self.settings["initial_accumulator"]),)

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        return graph.add("ResourceApplyAdagrad", [variable.handle, *handles, rate, gradient])

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return graph.add("ResourceSparseApplyAdagrad",
                         [variable.handle, *handles, rate, self._once(variable, indices, values), indices])


class Adam(Optimizer):
    """Kingma & Ba's, with TensorFlow's epsilon."""

    kind = "ADAM"
    slots = (("m", 0.0), ("v", 0.0))

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7,
                 **settings: Any) -> None:
        super().__init__(learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon, **settings)

    def _powers(self, graph: Any) -> Any:
        made = graph.collections.setdefault("__adam", {})
        if id(self) not in made:
            made[id(self)] = (self, [graph.add_variable(f"adam/{name}", [], init=("constant", self.settings[name]),
                                                        trainable=False) for name in ("beta1", "beta2")])
        return made[id(self)][1]

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        numbers = [self._number(graph, self.settings[name]) for name in ("beta1", "beta2", "epsilon")]
        return graph.add("ResourceApplyAdam",
                         [variable.handle, *handles, *self._powers(graph), rate, *numbers, gradient])

    def _finish(self, graph: Any, updates: Any) -> Any:
        with graph.control_dependencies(updates):
            return [power.assign(power * self.settings[name])
                    for power, name in zip(self._powers(graph), ("beta1", "beta2"))]


class AdamW(Adam):
    """Adam with decoupled weight decay; of Trainers."""

    kind = "ADAMW"

    def __init__(self, learning_rate: Any = 0.001, weight_decay: float = 0.01, **settings: Any) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **settings)

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        factor = 1.0 - self._number(graph, self.learning_rate) * self.settings["weight_decay"]
        decayed = variable.assign(variable * factor)
        with graph.control_dependencies([decayed]):
            return super()._dense(graph, variable, handles, rate, gradient)


class Ftrl(Optimizer):
    """McMahan's FTRL-proximal."""

    kind = "FTRL"

    def __init__(self, learning_rate: Any = 0.1, initial_accumulator: float = 0.1, learning_rate_power: float = -0.5,
                 l1: float = 0.0, l2: float = 0.0, **settings: Any) -> None:
        super().__init__(learning_rate, initial_accumulator=initial_accumulator,
                         learning_rate_power=learning_rate_power, l1=l1, l2=l2, **settings)

    def _slot_values(self) -> Any:
        return (("accumulator", self.settings["initial_accumulator"]), ("linear", 0.0))

    def _numbers(self, graph: Any, rate: Any) -> Any:
        return [rate] + [self._number(graph, self.settings[name]) for name in ("l1", "l2", "learning_rate_power")]

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        return graph.add("ResourceApplyFtrl", [variable.handle, *handles, gradient, *self._numbers(graph, rate)])

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return graph.add("ResourceSparseApplyFtrl",
                         [variable.handle, *handles, self._once(variable, indices, values), indices,
                          *self._numbers(graph, rate)])


class RMSProp(Optimizer):
    """s += (1 - rho)(g^2 - s); w -= lr * g / sqrt(s + eps), with momentum. s begins with initial_accumulator; centered: s less
    the square of the mean gradient."""

    kind = "RMSPROP"

    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.9, momentum: float = 0.0, epsilon: float = 1e-7,
                 centered: bool = False, initial_accumulator: float = 0.0, **settings: Any) -> None:
        super().__init__(learning_rate, rho=rho, momentum=momentum, epsilon=epsilon, centered=centered,
                         initial_accumulator=initial_accumulator, **settings)

    def _slot_values(self) -> Any:
        mean = (("mean_gradient", 0.0),) if self.settings["centered"] else ()
        return (*mean, ("rms", self.settings["initial_accumulator"]), ("momentum", 0.0))

    def _numbers(self, graph: Any) -> Any:
        return [self._number(graph, self.settings[name]) for name in ("rho", "momentum", "epsilon")]

    def _dense(self, graph: Any, variable: Variable, handles: Any, rate: Any, gradient: Any) -> Any:
        op = "ResourceApplyCenteredRMSProp" if self.settings["centered"] else "ResourceApplyRMSProp"
        return graph.add(op, [variable.handle, *handles, rate, *self._numbers(graph), gradient])

    def _sparse(self, graph: Any, variable: Variable, handles: Any, rate: Any, indices: Any, values: Any) -> Any:
        return self._rows_alone(graph, variable, handles, rate, indices, values)
