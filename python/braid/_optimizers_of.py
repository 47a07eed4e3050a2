"""Optimizers and schedules of Keras and PyTorch as those of bd.optim: by their formulas, or refused with what to write."""

import copy
import math
import numbers
import re
import warnings

import numpy as np

from braid import _braid, optim
from braid.data import Word

LARGEST_EPSILON = 1e-6  # of Adam, that may stand in another place
MOVE_ALL_ROWS = {"ADAM", "ADAMW", "MOMENTUM", "RMSPROP"}
MOST_FACTORS = 1_000_000  # of a schedule that is a table of rates


class Factors:
    """A schedule that is what another program's says of each step. of(number) is the factor of the learning rate: of step
    number * every and those behind it."""

    def __init__(self, of, every=1):
        if every != "epoch" and not (isinstance(every, numbers.Integral) and every >= 1):
            raise _braid.InvalidArgument(f"schedule(..., every={every!r}): a number of steps of at least 1, or \"epoch\"")
        self.of, self.every, self._made = of, every, []

    def rates(self, steps, steps_per_epoch):
        """(the factors of so many steps, the steps that each of them is for). steps_per_epoch(): their number."""
        every = steps_per_epoch() if self.every == "epoch" else int(self.every)
        wanted = max(1, math.ceil(steps / every))
        if wanted > MOST_FACTORS:
            raise _braid.InvalidArgument(f"the schedule has {wanted} rates for {steps} steps, and {MOST_FACTORS} are taken: one for "
                                         "each of several steps, bd.optim.schedule(..., every=100)")
        for number in range(len(self._made), wanted):
            self._made.append(float(self.of(number)))
        return self._made[:wanted], every


def as_optimizer(given, source):
    """(Optimizer of bd.optim, schedule or None). `given`: one of bd.optim, of Keras or of PyTorch; None is that of the
    compiled model of a source. Throws: InvalidArgument for what has no counterpart."""
    if isinstance(given, optim.Optimizer):
        return given, None
    if given is None:
        given = getattr(source, "own_optimizer", lambda: None)()
        if given is None:
            raise _braid.InvalidArgument("there is no optimizer: one of bd.optim, as in bd.optim.Adam(1e-3), or of a Keras model "
                                         "that was compiled with one")
    module = type(given).__module__.split(".")[0]
    family = {each.__module__.split(".")[0] for each in type(given).__mro__}
    if "keras" in family:
        return _of_keras(given, source)
    if "torch" in family:
        return _of_torch(given, source), None
    raise _braid.InvalidArgument(f"the optimizer is {given!r} of {module}: one of bd.optim, of Keras or of PyTorch")


def _refused(what, instead):
    return _braid.InvalidArgument(f"{what}: {instead}")


# ---------------------------------------------------------------------------------------------------------------- Keras
def _of_keras(given, source):
    name = type(given).__name__
    inner = getattr(given, "inner_optimizer", None)
    if inner is not None:  # LossScaleOptimizer: Braid's gradients of float16 casts are not scaled
        return _of_keras(inner, source)
    for setting, instead in (("use_ema", "leave it out; averages of weights are not kept"),
                             ("clipnorm", "global_clipnorm=..., the norm of all gradients together"),
                             ("gradient_accumulation_steps", "batches of so many times the rows, and Trainer(set=['optimizer."
                              "accumulate_steps=...']), which computes them in parts"),
                             ("amsgrad", "leave it out, or bd.optim.Adam")):
        if getattr(given, setting, None):
            raise _refused(f"Keras' {name}({setting}={getattr(given, setting)}) is not taken", instead)
    makers = {"SGD": _keras_sgd, "Adam": _keras_adam, "AdamW": _keras_adam, "Adagrad": _keras_adagrad,
              "RMSprop": _keras_rmsprop, "Ftrl": _keras_ftrl}
    if name not in makers or not type(given).__module__.startswith("keras."):
        raise _refused(f"Keras' optimizer {name} has no counterpart", f"one of {', '.join(makers)}, or of bd.optim")
    rate, schedule = _keras_rate(given)
    if schedule is not None and name == "Ftrl" and given.beta:
        raise _refused(f"Keras' Ftrl(beta={given.beta}) divides beta by the rate of each step, so it does not go with a schedule",
                       "beta=0, or one learning rate")
    if schedule is not None and name == "SGD" and given.momentum:
        raise _refused("Keras' SGD keeps a momentum of steps that are multiplied by their rates already, so with a schedule "
                       "its formula is another one than Braid's, where the rate multiplies the momentum",
                       "bd.optim.Momentum(rate, momentum) and Trainer(schedule=...), as in PyTorch")
    settings = {"clip_value": given.clipvalue, "clip_norm": given.global_clipnorm, "weight_decay": given.weight_decay or None}
    made = makers[name](given, rate, settings)
    made.is_of_keras = True
    tables = getattr(source, "tables", list)()
    if tables and made.kind in MOVE_ALL_ROWS:
        warnings.warn(f"'{tables[0]}' is a table, which is trained by rows: Keras' {name} moves also the rows that no batch names, "
                      "and sums the squares of a row's gradients one by one; losses differ from Keras' by that")
    kept = _without_decay(given, source) if given.weight_decay else []
    if kept:
        made.settings["group"] = [{"match": each, "weight_decay": 0.0} for each in kept]
    return made, schedule


def _without_decay(given, source):
    """Patterns of variables that exclude_from_weight_decay() has left out."""
    variables = source.variables() if hasattr(source, "variables") else {}
    return [re.escape(name) for name, each in variables.items() if each.trainable and not given._use_weight_decay(each)]


def _keras_sgd(given, rate, settings):
    if given.momentum:
        return optim.Momentum(rate, given.momentum, given.nesterov, **settings)
    return optim.SGD(rate, **settings)


def _keras_adam(given, rate, settings):
    kind = optim.AdamW if settings["weight_decay"] else optim.Adam
    return kind(rate, beta1=given.beta_1, beta2=given.beta_2, epsilon=given.epsilon, **settings)


def _keras_adagrad(given, rate, settings):  # Keras' epsilon is added to the sum of squares
    return optim.Adagrad(rate, given.initial_accumulator_value + given.epsilon, **settings)


def _keras_rmsprop(given, rate, settings):
    return optim.RMSProp(rate, given.rho, given.momentum, given.epsilon, given.centered, **settings)


def _keras_ftrl(given, rate, settings):
    l2 = given.l2_regularization_strength + given.beta / (2.0 * rate)
    return optim.Ftrl(rate, given.initial_accumulator_value, given.learning_rate_power, given.l1_regularization_strength, l2,
                      l2_shrinkage=given.l2_shrinkage_regularization_strength or None, **settings)


def _keras_rate(given):
    """(the first rate, the schedule or None)."""
    rate = given._learning_rate
    if not hasattr(rate, "get_config") or not callable(rate):
        return float(given.learning_rate), None
    kind, of = type(rate).__name__, rate
    if not type(rate).__module__.startswith("keras."):
        kind = ""
    if kind == "ExponentialDecay":
        factor = of.decay_rate if of.staircase else of.decay_rate ** (1.0 / of.decay_steps)
        return float(of.initial_learning_rate), {"kind": Word("STEP_DECAY"), "factor": float(factor),
                                                 "every": int(of.decay_steps) if of.staircase else 1}
    first = float(of(0))
    base = first or 1.0
    return base, Factors(lambda step: float(of(step)) / base)


# -------------------------------------------------------------------------------------------------------------- PyTorch
def _of_torch(given, source):
    name = type(given).__name__
    makers = {"SGD": _torch_sgd, "Adam": _torch_adam, "AdamW": _torch_adam, "Adagrad": _torch_adagrad}
    if name not in makers or not type(given).__module__.startswith("torch."):
        raise _refused(f"PyTorch's optimizer {name} has no counterpart", f"one of {', '.join(makers)}, or of bd.optim")
    for group in given.param_groups:
        if name.startswith("Adam") and group["eps"] > LARGEST_EPSILON:
            raise _refused(f"PyTorch's {name}(eps={group['eps']}) adds it behind the correction of the bias, Braid before",
                           f"eps of {LARGEST_EPSILON} at most, which makes no difference, or bd.optim.{name}")
        for setting in ("maximize", "amsgrad", "lr_decay", "dampening"):
            if group.get(setting):
                raise _refused(f"PyTorch's {name}({setting}={group[setting]}) is not taken", "leave it out, or bd.optim")
    parts = [makers[name](name, group, _torch_rate(group)) for group in given.param_groups]
    names = source.names_of_parameters() if hasattr(source, "names_of_parameters") else {}
    held = {id(each) for group in given.param_groups for each in group["params"]}
    left = [each for at, each in names.items() if at not in held and source.is_trained(each)]
    if left and held & set(names):
        raise _refused(f"PyTorch's {name} does not hold parameter '{left[0]}', which the program trains",
                       f"bd.io.torch(..., freeze={re.escape(left[0])!r}), or requires_grad_(False) before the export")
    if len(parts) == 1:
        return parts[0]
    groups = []
    for part, group in zip(parts, given.param_groups):
        known = [names[id(each)] for each in group["params"] if id(each) in names]
        if not known and group["params"]:
            raise _refused(f"group {len(groups)} of PyTorch's {name} has parameters that are none of the program",
                           "make the optimizer of the parameters of the module that was exported, or bd.optim with "
                           "group=[{'match': ..., 'learning_rate': ...}]")
        settings = {key: value for key, value in part.job_fields().items() if key != "kind"}
        if part.kind != parts[0].kind:
            settings["kind"] = Word(part.kind)
        groups.append({"match": "|".join(re.escape(each) for each in known), **settings})
    first = parts[0]
    first.settings["group"] = groups[1:]
    return first


def _torch_rate(group):
    return float(group.get("initial_lr", group["lr"]))


def _torch_sgd(name, group, rate):
    settings = {"l2": group["weight_decay"] or None}
    if group["momentum"]:
        return optim.Momentum(rate, group["momentum"], group["nesterov"], **settings)
    return optim.SGD(rate, **settings)


def _torch_adam(name, group, rate):
    decoupled = name == "AdamW" or group.get("decoupled_weight_decay")
    betas = dict(beta1=group["betas"][0], beta2=group["betas"][1], epsilon=group["eps"])
    if decoupled:
        return optim.AdamW(rate, weight_decay=group["weight_decay"] or None, **betas) if group["weight_decay"] else optim.Adam(
            rate, **betas)
    return optim.Adam(rate, l2=group["weight_decay"] or None, **betas)


def _torch_adagrad(name, group, rate):
    return optim.Adagrad(rate, group["initial_accumulator_value"], epsilon=group["eps"], l2=group["weight_decay"] or None)


def _of_scheduler(scheduler):
    """The factor of each step of a scheduler of torch.optim, which a copy is asked for."""
    import torch
    own = copy.deepcopy(scheduler, {id(each): torch.nn.Parameter(torch.zeros(1)) for group in
                                    scheduler.optimizer.param_groups for each in group["params"]})
    rates, groups = [], own.optimizer.param_groups
    base = _torch_rate(groups[0])

    def others():
        return [[group.get(name) for name in ("momentum", "betas", "weight_decay")] for group in groups]

    begin = others()

    def factors():
        return [group["lr"] / (_torch_rate(group) or 1.0) for group in groups]

    def of(step):
        while len(rates) <= step:
            if rates:
                with warnings.catch_warnings():  # that a copy's step is not the one that the scheduler has counted
                    warnings.simplefilter("ignore")
                    own.optimizer.step()
                    own.step()
            each = factors()
            if others() != begin:
                raise _braid.InvalidArgument("the scheduler changes the momentum, too, and a job's stays: cycle_momentum=False")
            if not np.allclose(each, each[0], rtol=1e-6, atol=0):
                raise _braid.InvalidArgument(f"the scheduler has other factors for other groups of parameters, {each}: a job has "
                                             "one schedule for all")
            rates.append(each[0])
        return rates[step]

    if not base:
        raise _braid.InvalidArgument("the scheduler's first learning rate is 0")
    return of


def as_schedule(given, every=1):
    """A dict of a job's fields, or Factors, of what Trainer(schedule=...) is given."""
    if given is None or isinstance(given, (dict, Factors)):
        if given is not None and every != 1:
            raise _braid.InvalidArgument(f"every={every!r} is of functions and schedulers, not of {type(given).__name__}")
        return given
    if hasattr(given, "get_config") and any(each.__name__ == "LearningRateSchedule" for each in type(given).__mro__):
        raise _braid.InvalidArgument(f"schedule: Keras' {type(given).__name__} says rates, not factors: give it to the optimizer, as in "
                                     "keras.optimizers.Adam(schedule)")
    if hasattr(given, "optimizer") and hasattr(given, "step"):
        if type(given).__name__ == "ReduceLROnPlateau":
            raise _braid.InvalidArgument("ReduceLROnPlateau follows from evaluations: keras.callbacks.ReduceLROnPlateau of a Keras "
                                         "model, or fit again with another trainer.optimizer.learning_rate")
        return Factors(_of_scheduler(given), every)
    if callable(given):
        return Factors(given, every)
    raise _braid.InvalidArgument(f"schedule: {given!r} is no dict of fields, no scheduler of PyTorch and no function (step) that "
                                 "gives the factor of the learning rate")
