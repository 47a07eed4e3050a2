"""The losses of a Keras model's outputs: functions, Keras' losses, their names, or what compile() was given."""

import dataclasses

from braid import _braid


@dataclasses.dataclass
class OutputLoss:
    output: int  # its number
    loss: object  # a function (label, output)
    weight: float
    column: str  # of the label
    shape: tuple  # of the output, or None where it is not known before the model is called

    @property
    def takes_classes(self):
        return "sparse" in getattr(self.loss, "__name__", type(self.loss).__name__).lower()

    def of(self, tf, label, output):
        """The mean over the batch. One label a row meets one number a row."""
        if output.shape.rank == 2 and output.shape[1] == 1 and label.shape.rank == 1:
            label = tf.reshape(label, [-1, 1])
        return tf.reduce_mean(tf.cast(self.loss(label, output), tf.float32))


def _of_outputs(given, names, what):
    """A value for each output of a list, or of a dict by the outputs' names."""
    if isinstance(given, dict):
        unknown = [each for each in given if each not in names]
        if unknown:
            raise _braid.InvalidArgument(f"{what}: the model has no output '{unknown[0]}': it has {names}")
        return [given.get(each) for each in names]
    if isinstance(given, (list, tuple)) or type(given).__name__ == "ListWrapper":
        if len(given) != len(names):
            raise _braid.InvalidArgument(f"{what}: {len(given)} for the {len(names)} outputs {names}")
        return list(given)
    return [given] * len(names)


def as_losses(model, loss, columns):
    """An OutputLoss for each output that has a loss. `loss`: None is what the model was compiled with."""
    import keras
    weights = None
    if loss is None:
        loss = getattr(model, "loss", None)
        weights = getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None)
        if loss is None:
            raise _braid.InvalidArgument("the model has no loss: bd.io.keras(model, loss=...), or compile it with one")
    shapes = [tuple(each.shape) for each in getattr(model, "outputs", None) or []] or [None]
    names = list(getattr(model, "output_names", None) or range(len(shapes)))
    several = isinstance(loss, (dict, list, tuple)) or type(loss).__name__ == "ListWrapper"
    losses = _of_outputs(loss, names, "loss") if several else [loss] + [None] * (len(names) - 1)
    if not several and len(names) > 1 and len(columns) > 1:
        losses = [loss] * len(names)
    weights = [1.0] * len(names) if weights is None else [
        1.0 if each is None else float(each) for each in _of_outputs(weights, names, "loss_weights")]
    wanted = [i for i, each in enumerate(losses) if each is not None]
    if len(columns) == len(names):
        of_output = dict(enumerate(columns))
    elif len(columns) == len(wanted):
        of_output = dict(zip(wanted, columns))
    else:
        raise _braid.InvalidArgument(f"{len(wanted)} outputs of {names} have losses: label=[...] names a column for each, "
                                     "label={\"output\": \"column\"} by their names")
    made = []
    for i in wanted:
        function = keras.losses.get(losses[i]) if isinstance(losses[i], (str, dict)) else losses[i]
        if not callable(function):
            raise _braid.InvalidArgument(f"the loss of output '{names[i]}' is {function!r}: a function (label, output), a "
                                         "loss of Keras, or its name")
        if of_output[i] is None:
            raise _braid.InvalidArgument(f"output '{names[i]}' has a loss and no label: label={{\"{names[i]}\": \"column\"}}")
        made.append(OutputLoss(i, function, weights[i], of_output[i], shapes[i] if i < len(shapes) else None))
    return made


def label_spec(tf, loss, column):
    """The label's TensorSpec: as the data's column is, with classes as integers; without data like the output."""
    kind = tf.int64 if loss.takes_classes else tf.float32
    if column is not None:
        row = column.shape[1:]
    elif loss.shape is None or loss.takes_classes or loss.shape[1:] == (1,):
        row = ()
    else:
        row = loss.shape[1:]
    return tf.TensorSpec([None, *row], kind, name=f"in_{loss.column}")
