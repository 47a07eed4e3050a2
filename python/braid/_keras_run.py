"""Trainer.fit with callbacks of Keras: an epoch at a time, between which the model has the trained weights, and callbacks may
change them, the learning rate, or end the run."""

import copy
import math

import numpy as np

from braid import _braid
from braid._calls import Calls
from braid.callbacks import Callback, Stop
from braid.settings import History


def are_of_keras(callback):
    """Whether it is one of keras.callbacks."""
    return hasattr(callback, "set_model") and hasattr(callback, "on_epoch_end")


def _wants_batches(callback):
    """Whether it is to be called for each step: by a method of its class, or a function that it was given."""
    import keras
    names = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    return any(name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
               for name in names)


class _Batches(Callback):
    """Tells the callbacks of Keras of each step."""

    def __init__(self, calls, model):
        self.calls, self.model, self.losses, self.first = calls, model, [], None

    def begin(self, first):
        self.first, self.losses = first, []

    def on_step(self, step, loss, seconds):
        self.losses.append(loss)
        batch = step - self.first
        self.calls.on_train_batch_begin(batch)
        self.calls.on_train_batch_end(batch, {"loss": float(np.mean(self.losses))})
        if self.model.stop_training:
            raise Stop


class KerasRun:
    """A run of `trainer` with these callbacks, of Keras and of bd.callbacks."""

    def __init__(self, trainer, callbacks):
        import keras
        self.trainer, self.model = trainer, getattr(trainer.source, "model", None)
        if self.model is None or not hasattr(trainer.source, "variables"):
            raise _braid.InvalidArgument("callbacks of Keras are for models of bd.io.keras; of others those of bd.callbacks")
        if trainer.strategy.kind not in ("LOCAL", "MIRRORED"):
            raise _braid.InvalidArgument(f"callbacks of Keras are for training in one process; the strategy is {trainer.strategy.kind}: "
                                         "use those of bd.callbacks")
        trainer.optimizer = copy.copy(trainer.optimizer)  # whose learning rate callbacks change
        self.own = [each for each in callbacks if not are_of_keras(each)]
        self.calls = keras.callbacks.CallbackList([each for each in callbacks if are_of_keras(each)], add_history=True,
                                                  model=self.model)
        self._tell_rate(keras)
        self._rate = self._told_rate()

    # --------------------------------------------------------------------------------------------------------- the run
    def fit(self, epochs, resume, overwrite):
        """Trains for so many epochs more, or until a callback ends it. Epochs that a checkpoint has already are not told."""
        trainer, model = self.trainer, self.model
        if epochs is None or not (epochs >= 0 and epochs == int(epochs)):
            raise _braid.InvalidArgument("callbacks of Keras count epochs: fit(epochs=3)")
        history = History(loss=[], evaluations=[])
        history.epochs, logs = {}, {}
        batches = _Batches(self.calls, model)
        each_batch = [batches] if any(map(_wants_batches, self.calls.callbacks)) else []
        calls = Calls(trainer, self.own + each_batch, history)
        steps = trainer._steps_per_epoch()
        self.calls.set_params({"verbose": 0, "epochs": int(epochs), "steps": steps})
        model.stop_training = False
        calls.begin()
        self._to_model()
        self.calls.on_train_begin()
        self._from_model()
        start, epoch, is_first = trainer._step, 0, True
        while epoch < epochs:
            self.calls.on_epoch_begin(epoch)
            self._from_model()
            batches.begin(start + epoch * steps)
            before = len(history["loss"])
            trainer._fit(steps - (trainer._step - start) % steps, None, calls, resume and is_first, overwrite and is_first)
            is_first = False
            self._to_model()
            losses = history["loss"][before:]
            done = (trainer._step - start) // steps
            if not losses and done > epoch:  # a checkpoint's
                epoch = done
                continue
            logs = {"loss": float(np.mean(losses)) if losses else math.nan, **self._validated()}
            self.calls.on_epoch_end(epoch, logs)
            self._from_model()
            history.epochs = self.model.history.history
            if model.stop_training or calls.asked_to_stop:
                break
            epoch += 1
        self.calls.on_train_end(logs)
        self._from_model()
        calls.end()
        return history

    def _validated(self):
        trainer = self.trainer
        if trainer.eval_data is None:
            return {}
        logs = trainer.source.validation(trainer._eval_arrays(), trainer.data.rows_per_batch)
        if len(logs) == 1:  # the loss alone: no metrics of Keras
            logs.update((name, value) for name, value in trainer.evaluate().items() if isinstance(value, (int, float)) and
                        name not in logs)
        return {f"val_{name}": float(value) for name, value in logs.items()}

    # ------------------------------------------------------------------------------------------ between Braid and Keras
    def _tell_rate(self, keras):
        """The rate that is trained with stands in the model's optimizer, where callbacks read and set it."""
        rate = self.trainer.optimizer.learning_rate
        if getattr(self.model, "optimizer", None) is None:
            self.model.optimizer = keras.optimizers.SGD(rate)
        own = self.model.optimizer
        follows = isinstance(getattr(own, "inner_optimizer", own)._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        if not follows and self._told_rate() != np.float32(rate):
            own.learning_rate = rate

    def _told_rate(self):
        return float(self.model.optimizer.learning_rate)

    def _to_model(self):
        self.trainer.source.write_back()

    def _from_model(self):
        """What callbacks have made of weights and of the learning rate."""
        trainer = self.trainer
        values = dict(trainer._current_values())
        changed = {name: np.asarray(each.numpy()) for name, each in trainer.source.variables().items() if name in values}
        changed = {name: value for name, value in changed.items() if not np.array_equal(value, values[name], equal_nan=value.dtype.kind == "f")}
        rate = self._told_rate()
        if rate != self._rate:
            if trainer._options["schedule"] is not None:
                raise _braid.InvalidArgument("a callback has set the learning rate, and the Trainer has a schedule: one of the two")
            if trainer.optimizer.kind == "MOMENTUM" and getattr(trainer.optimizer, "is_of_keras", False):
                # Keras' velocity has the rates of its steps in it, Braid's has none.
                changed.update((name, value * np.float32(trainer.optimizer.learning_rate / rate)) for name, value in values.items()
                               if name.endswith("/momentum"))
            trainer.optimizer.learning_rate = self._rate = rate
        if changed:
            trainer._set_values({**values, **changed})
