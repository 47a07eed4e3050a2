"""The losses of a Keras model's outputs: functions, Keras' losses, their names, or what compile() was given."""

import dataclasses
import inspect

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
        return "sparse" in self._name

    def of_values(self, labels):
        """Whether it has labels that are values, which its formula alone does not tell. `labels`: the data's, or None."""
        is_signed = labels is not None and labels.size > 0 and labels.dtype.kind in "if" and labels.min() < 0
        return "poisson" in self._name or "hinge" in self._name and bool(is_signed)

    @property
    def _name(self):
        return getattr(self.loss, "__name__", type(self.loss).__name__).lower()

    def of(self, tf, label, output, weight):
        """The mean over the batch, of rows with these weights. One label a row meets one number a row."""
        if output.shape.rank == 2 and output.shape[1] == 1 and label.shape.rank == 1:
            label = tf.reshape(label, [-1, 1])
        return tf.reduce_mean(tf.cast(self.loss(label, output, weight), tf.float32))


def _as_object(keras, function):
    """A function as compile() takes it: a loss of Keras, which leaves out places that a mask of the output leaves out."""
    class OfFunction(keras.losses.Loss):
        __name__ = getattr(function, "__name__", type(function).__name__)

        def call(self, label, output):
            return function(*_of_one_rank(keras, label, output))

    return function if isinstance(function, keras.losses.Loss) else OfFunction()


def _of_one_rank(keras, label, output):
    """[..., 1] beside [...]: the last axis goes from one, or comes to the other where that is a number a row."""
    def fitted(longer, shorter):
        if len(longer.shape) != len(shorter.shape) + 1 or longer.shape[-1] != 1:
            return longer, shorter
        if len(shorter.shape) == 1:
            return longer, keras.ops.expand_dims(shorter, -1)
        return keras.ops.squeeze(longer, -1), shorter

    if len(label.shape) < len(output.shape):
        return fitted(output, label)[::-1]
    return fitted(label, output)


def has_own(model, method):
    """Whether the model's class has this method of its own, in place of keras.Model's."""
    import keras
    return getattr(type(model), method, None) is not getattr(keras.Model, method)


@dataclasses.dataclass
class OwnLoss:
    """compute_loss() of a model's class. `label`: the columns of labels as it takes them: one, a list or a dict."""
    model: object
    label: object
    has_weights: bool

    def specs(self, tf, columns):
        """[(column, TensorSpec)] of the labels: as the data has them."""
        def of(name):
            column = columns.get(name)
            row, floats = ((), True) if column is None else (column.shape[1:], column.dtype.kind == "f")
            return name, tf.TensorSpec([None, *row], tf.float32 if floats else tf.int64, name=f"in_{name}")

        return [of(name) for name in tf.nest.flatten(self.label)]

    def column_of(self, tf, names, output):
        """The label of an output: of a dict the one of its name, else that of its number."""
        if isinstance(self.label, dict) and names[output] in self.label:
            return self.label[names[output]]
        columns = tf.nest.flatten(self.label)
        return columns[min(output, len(columns) - 1)]

    def total(self, tf, x, labels, outputs, training):
        """The loss of a batch. As in Keras, what layers add is in it only where compute_loss adds it."""
        labels = list(labels)
        weight = labels.pop() if self.has_weights else None
        given = {"x": x, "y": tf.nest.pack_sequence_as(self.label, labels), "y_pred": outputs, "sample_weight": weight,
                 "training": training}
        takes = inspect.signature(self.model.compute_loss).parameters
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes.values()):
            given = {name: value for name, value in given.items() if name in takes}
        return tf.reduce_mean(tf.cast(self.model.compute_loss(**given), tf.float32))


def of_outputs(given, names, what):
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


def ends_of(tf, model, called):
    """Names and shapes of the outputs. `called`: what a model of a class of its own gave for one row."""
    if called is None:
        shapes = [tuple(each.shape) for each in getattr(model, "outputs", None) or []] or [None]
        return list(getattr(model, "output_names", None) or range(len(shapes))), shapes
    flat = tf.nest.flatten(called)
    names = sorted(called) if isinstance(called, dict) and len(called) == len(flat) else list(range(len(flat)))
    return names, [(None, *each.shape[1:]) for each in flat]


def as_losses(model, loss, columns, names, shapes):
    """An OutputLoss for each output that has a loss. `loss`: None is what the model was compiled with. `columns`: of the
    labels, of all outputs or of those with a loss."""
    import keras
    weights = None
    if loss is None:
        loss = getattr(model, "loss", None)
        weights = getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None)
        if loss is None:
            raise _braid.InvalidArgument("the model has no loss: bd.io.keras(model, loss=...), or compile it with one")
    several = isinstance(loss, (dict, list, tuple)) or type(loss).__name__ == "ListWrapper"
    losses = of_outputs(loss, names, "loss") if several else [loss] + [None] * (len(names) - 1)
    if not several and len(names) > 1 and len(columns) > 1:
        losses = [loss] * len(names)
    weights = [1.0] * len(names) if weights is None else [
        1.0 if each is None else float(each) for each in of_outputs(weights, names, "loss_weights")]
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
        try:
            function = keras.losses.get(losses[i]) if isinstance(losses[i], (str, dict)) else losses[i]
        except ValueError:
            raise _braid.InvalidArgument(f"the loss of output '{names[i]}' is {losses[i]!r}, which is no loss of Keras that "
                                         "can be had by that name: give the function or the object") from None
        if not callable(function):
            raise _braid.InvalidArgument(f"the loss of output '{names[i]}' is {function!r}: a function (label, output), a "
                                         "loss of Keras, or its name")
        if of_output[i] is None:
            raise _braid.InvalidArgument(f"output '{names[i]}' has a loss and no label: label={{\"{names[i]}\": \"column\"}}")
        if isinstance(function, keras.losses.Loss) and function.reduction in (None, "none"):
            raise _braid.InvalidArgument(f"the loss of output '{names[i]}' has reduction=None, of which Keras trains the sum of all "
                                         "elements and tells their mean: say reduction=\"sum\" or \"sum_over_batch_size\"")
        made.append(OutputLoss(i, _as_object(keras, function), weights[i], of_output[i], shapes[i] if i < len(shapes) else None))
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
