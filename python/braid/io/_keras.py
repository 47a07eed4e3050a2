"""Keras models as GraphDefs: captured variables become VarHandleOps, whose values begin as the model's are."""

import os

import numpy as np

from braid import _braid
from braid.data import Word
from braid.io import Source


def _names(model):
    """id of a resource -> (name, TensorFlow variable, Keras variable), names made unique."""
    found, taken = {}, set()
    seeds = [each for layer in model._flatten_layers() for each in getattr(layer, "_seed_generators", [])]
    for variable in [*model.variables, *(each.state for each in seeds)]:
        inner = variable.value
        name = getattr(variable, "path", None) or variable.name
        while name in taken:
            name += "_"
        if id(inner.handle) not in found:
            taken.add(name)
            found[id(inner.handle)] = (name, inner, variable)
    return found


def _graph_def(tf, function, names):
    graph_def = function.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    for captured, stand_in in function.graph.captures:
        node = nodes[stand_in.op.name]
        node.ClearField("attr")
        if captured.dtype == tf.resource:
            if id(captured) not in names:
                raise _braid.InvalidArgument(f"'{stand_in.op.name}' is a resource that is no variable of the model")
            name, variable, _ = names[id(captured)]
            node.op = "VarHandleOp"
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
            node.attr["shared_name"].s = name.encode()
        else:
            node.op = "Const"
            node.attr["dtype"].type = captured.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(captured.numpy()))
    return graph_def


class KerasSource(Source):
    """A Keras model; write_back() sets its weights."""

    def __init__(self, model, loss, label, inputs):
        super().__init__({})
        self.model, self._loss, self._label = model, loss, label
        self._columns = list(inputs) if inputs else [each.name.split(":")[0] for each in model.inputs]
        self._by_name = {}

    def job_fields(self, folder, label):
        import tensorflow as tf
        label = self._label or label
        names = _names(self.model)
        self._by_name = {name: keras for name, _, keras in names.values()}
        specs = [tf.TensorSpec([None, *each.shape[1:]], each.dtype, name=f"in_{name}")
                 for name, each in zip(self._columns, self.model.inputs)]
        out = self.model.outputs[0]
        single = len(out.shape) == 2 and out.shape[1] == 1
        like_output = self._loss_takes_shape_of_output()
        truth = tf.TensorSpec([None, *out.shape[1:]] if like_output and not single else [None],
                              tf.float32 if like_output else tf.int64, name="in_label")
        loss = self._loss or self.model.loss

        def run(training):
            def call(*values):
                *inputs, y = values
                y = tf.reshape(y, [-1, 1]) if single else y
                with tf.name_scope(""):
                    predicted = tf.identity(self.model(inputs if len(inputs) > 1 else inputs[0], training=training),
                                            name="prediction")
                    return tf.identity(tf.reduce_mean(tf.cast(loss(y, predicted), tf.float32)), name="loss"), predicted

            function = tf.function(call, autograph=False).get_concrete_function(*specs, truth)
            definition = _graph_def(tf, function, names)
            path = os.path.join(folder, "model.pb" if training else "inference.pb")
            with open(path, "wb") as file:
                file.write(definition.SerializeToString())
            fed = [each.op.name for each in function.inputs if each.dtype != tf.resource][:len(specs) + 1]
            return path, fed, [each.name for each in function.outputs]

        path, fed, (loss_name, prediction) = run(True)
        inference, _, (_, inference_prediction) = run(False)
        values = os.path.join(folder, "initial.npz")
        np.savez(values, **{name: np.asarray(variable.numpy()) for name, variable, _ in names.values()})
        trained = [name for name, _, keras in names.values() if getattr(keras, "trainable", False)]
        escape = lambda name: "".join(c if c.isalnum() or c in "_/-" else "\\" + c for c in name)
        fields = {"file": path, "inference_file": inference, "loss": loss_name, "prediction": prediction,
                  "label": label, "trainable": "|".join(escape(each) for each in trained),
                  "initial": Word("FILE"), "initial_file": values,
                  "feeds": [{"value": value, "column": column} for value, column in zip(fed, self._columns + [label])]}
        if inference_prediction != prediction:
            raise _braid.InvalidArgument(f"the model's outputs are called '{prediction}' in training and "
                                         f"'{inference_prediction}' without")
        return {"graph": fields}

    def _loss_takes_shape_of_output(self):
        return "sparse" not in type(self._loss or self.model.loss).__name__.lower()

    def write_back(self, file=None):
        """Sets the model's weights to the trained values; with `file` also writes them there."""
        for name, value in self._trained().items():
            if name in self._by_name:
                self._by_name[name].assign(value)
        if file is not None:
            super().write_back(file)
