"""Keras models as GraphDefs: captured variables become VarHandleOps, whose values begin as the model's are."""

import os

import numpy as np

from braid import _braid
from braid.data import Ragged, Word
from braid.io import Source
from braid.io._keras_losses import OwnLoss, as_losses, ends_of, has_own, label_spec, of_outputs
from braid.io._keras_ragged import RaggedInputs, as_columns, spec_of
from braid.io._keras_tables import table_nodes, tables_of
from braid.io._keras_text import TextValues
from braid.io._text import is_text


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


def _graph_def(tf, function, names, tables):
    graph_def = function.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    for captured, stand_in in function.graph.captures:
        node = nodes[stand_in.op.name]
        node.ClearField("attr")
        if id(captured) in tables:
            table_nodes(tf, graph_def, node, tables[id(captured)])
        elif captured.dtype == tf.resource:
            if id(captured) not in names:
                raise _braid.InvalidArgument(f"'{stand_in.op.name}' is a resource that is no variable of the model: state that a "
                                             "layer keeps between batches, as stateful=True does, is not trained with")
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


def _as_tensor(tf, values, spec):
    if spec.dtype == tf.string:
        return tf.constant(values.tolist(), tf.string)
    return tf.reshape(tf.cast(values, spec.dtype), [len(values), *spec.shape[1:]])


def _escaped(name):
    return "".join(c if c.isalnum() or c in "_/-" else "\\" + c for c in name)


class KerasSource(Source):
    """A Keras model; write_back() sets its weights."""

    def __init__(self, model, loss, label, inputs, output, weight):
        super().__init__({})
        self.model, self._loss, self._label = model, loss, label
        self._inputs, self._output, self._weight = inputs, output, weight
        self._by_name = {}
        self._text = None  # what is made of strings
        self._ragged = {}  # column -> what its rows are filled to
        self._check_constraints()

    def _check_constraints(self):
        bound = [each.path for each in self.model.trainable_variables if getattr(each, "constraint", None) is not None]
        if bound:
            raise _braid.InvalidArgument(
                f"the variable '{bound[0]}' has a constraint, which Keras' optimizers apply behind each step and Braid's "
                f"do not: build the layer without it ({len(bound)} in all)")

    # -------------------------------------------------------------------------------------------------------- the ends
    def _own_columns(self, symbols, labels):
        """The columns of the inputs by their names; a single input has the single column that is no label, whatever its name."""
        names = [each.name.split(":")[0] for each in symbols]
        others = [each for each in self.columns if each not in labels and each != self._weight]
        return others if len(names) == 1 == len(others) else names

    def _input_specs(self, tf, labels):
        """[(column, TensorSpec)] of the inputs, and what makes the model's argument of their values."""
        symbols = getattr(self.model, "inputs", None)
        if symbols:
            columns = list(self._inputs) if self._inputs else self._own_columns(symbols, labels)
            if len(columns) != len(symbols):
                raise _braid.InvalidArgument(f"the model has {len(symbols)} inputs, and inputs= names {len(columns)}")
            specs = [spec for column, each in zip(columns, symbols) for spec in self._specs_of(tf, column, each)]
            struct = getattr(self.model, "_inputs_struct", None)
            if isinstance(struct, (dict, list, tuple)) and len(tf.nest.flatten(struct)) == len(symbols):
                import keras
                return specs, lambda values: keras.tree.pack_sequence_as(struct, list(values))
            return specs, lambda values: list(values) if len(values) > 1 else values[0]
        if not self._inputs:
            raise _braid.InvalidArgument(
                f"the model '{self.model.name}' is a class of its own, whose inputs are not known: inputs=[\"column\", ...] "
                "names the columns that it is called with, inputs={\"key\": \"column\"} those of a dict")
        keys = list(self._inputs) if isinstance(self._inputs, dict) else None
        columns = list(self._inputs.values()) if keys else list(self._inputs)
        specs = [spec for column in columns for spec in self._specs_of(tf, column)]
        if keys:
            return specs, lambda values: dict(zip(keys, values))
        return specs, lambda values: list(values) if len(values) > 1 else values[0]

    def _specs_of(self, tf, column, symbol=None):
        """[(column, TensorSpec)] of one input: two of a ragged one."""
        is_ragged = isinstance(self.columns.get(column), Ragged)
        if symbol is not None and getattr(symbol, "ragged", False) and not is_ragged:
            raise _braid.InvalidArgument(f"the model's input '{column}' is ragged: bd.data.ragged(rows), or a "
                                         "tf.RaggedTensor, as its column")
        if is_ragged:
            self._ragged[column] = self.columns[column].length
            return spec_of(tf, column, self.columns[column], None if symbol is None else symbol.dtype)
        if symbol is not None:
            return [(column, tf.TensorSpec([None, *symbol.shape[1:]], symbol.dtype, name=f"in_{column}"))]
        return [(column, self._spec_of(tf, column))]

    def _check_columns(self, inputs, ends):
        for says, columns in (("inputs=[...] names the columns of the model's inputs, by their order", inputs),
                              ("label= names the column of the labels", ends)):
            missing = [each for each in columns if self.columns and each not in self.columns]
            if missing:
                raise _braid.InvalidArgument(f"the data has no column '{missing[0]}': it has {sorted(self.columns)}; "
                                             f"bd.io.keras(model, ...): {says}")

    def _inputs_of(self, tf, specs, values, ragged):
        """The model's inputs of the placeholders' values, ragged ones of two."""
        inputs, at = [], 0
        while at < len(specs):
            is_ragged = specs[at][0] in self._ragged
            inputs.append(ragged.tensor(values[at], values[at + 1]) if is_ragged else values[at])
            at += 2 if is_ragged else 1
        return inputs

    def _spec_of(self, tf, column):
        if column not in self.columns:
            raise _braid.InvalidArgument(f"the data has no column '{column}': it has {sorted(self.columns)}")
        value = self.columns[column]
        kind = tf.string if is_text(value) else tf.float32 if value.dtype.kind == "f" else tf.int64
        return tf.TensorSpec([None, *value.shape[1:]], kind, name=f"in_{column}")

    def _labels(self, label, names):
        """Columns of the labels: for each output, of a dict by their names, or for each loss."""
        if isinstance(label, dict):
            return of_outputs(label, names, "label")
        return list(label) if isinstance(label, (list, tuple)) else [label]

    # ------------------------------------------------------------------------------------------------------- the graphs
    def job_fields(self, folder, label):
        import tensorflow as tf
        specs, argument = self._input_specs(tf, set(tf.nest.flatten(self._label or label)))
        called = None
        # A model of a class of its own has its variables when it has been called.
        if not self.model.built or not getattr(self.model, "inputs", None):
            zeros = [tf.zeros([1, *spec.shape[1:]], spec.dtype) for _, spec in specs]
            called = self.model(argument(self._inputs_of(tf, specs, zeros, RaggedInputs(tf))), training=False)
            self._check_constraints()
        names, tables = _names(self.model), tables_of(tf, self.model)
        self._columns_of_inputs = {column for column, _ in specs}
        self._by_name = {name: keras for name, _, keras in names.values()}
        ends, loss_of, predicted, truth = self._losses(tf, self._label or label, called)
        fed = self._fed = [*specs, *ends]
        self._check_columns([column for column, _ in specs], [column for column, _ in ends])

        def run(training):
            def call(*values):
                ragged = RaggedInputs(tf)
                with tf.name_scope(""), ragged.traced():
                    x = argument(self._inputs_of(tf, specs, values[:len(specs)], ragged))
                    outputs = self.model(x, training=training)
                    flat = tf.nest.flatten(outputs)
                    loss = loss_of(x, values[len(specs):], outputs, training)
                    return tf.identity(loss, name="loss"), tf.identity(flat[predicted], name="prediction")

            function = tf.function(call, autograph=False).get_concrete_function(*(spec for _, spec in fed))
            path = os.path.join(folder, "model.pb" if training else "inference.pb")
            placeholders = [each for each in function.inputs if each.dtype != tf.resource][:len(fed)]
            text = self._text_of(tf, function, placeholders[:len(specs)], specs, names)
            with open(path, "wb") as file:
                file.write(_graph_def(tf, function, names, tables).SerializeToString())
            feeds = {each.op.name: column for each, (column, spec) in zip(placeholders, fed) if spec.dtype != tf.string}
            feeds.update((name, text.column_of(name)) for name in text.names)
            self._called = (function, lambda values: argument(self._inputs_of(tf, specs, values, RaggedInputs(tf))), len(specs))
            return path, feeds, text, [each.name for each in function.outputs]

        path, feeds, self._text, (loss_name, prediction) = run(True)
        inference, _, text, (_, inference_prediction) = run(False)
        if text.names != self._text.names:
            raise _braid.InvalidArgument(f"the model reads other values of text in training, {self._text.names}, than "
                                         f"without, {text.names}")
        if inference_prediction != prediction:
            raise _braid.InvalidArgument(f"the model's outputs are called '{prediction}' in training and "
                                         f"'{inference_prediction}' without")
        values = os.path.join(folder, "initial.npz")
        np.savez(values, **{name: np.asarray(variable.numpy()) for name, variable, _ in names.values()})
        trained = [name for name, _, keras in names.values() if getattr(keras, "trainable", False)]
        return {"graph": {
            "file": path, "inference_file": inference, "loss": loss_name, "prediction": prediction,
            "label": truth, "trainable": "|".join(map(_escaped, trained)),
            "initial": Word("FILE"), "initial_file": values,
            "feeds": [{"value": value, "column": column} for value, column in feeds.items()]}}

    def _losses(self, tf, label, called):
        """[(column, TensorSpec)] of the labels that the loss takes, a function that makes the loss, the number of the output
        that is the prediction, and the column of its label. By default that is the first output with a loss."""
        if self._loss is None and has_own(self.model, "train_step"):
            raise _braid.InvalidArgument(
                f"the class {type(self.model).__name__} has a train_step of its own, which Keras alone runs: say what it "
                "minimises as a function, bd.io.keras(model, loss=...), or write a compute_loss in its place")
        names, shapes = ends_of(tf, self.model, called)
        if self._loss is None and has_own(self.model, "compute_loss"):
            own = OwnLoss(self.model, label, self._weight is not None)
            self._targets = lambda tf, values: tf.nest.pack_sequence_as(label, list(values))
            at = self._output or 0
            return [*own.specs(tf, self.columns), *self._weight_spec(tf)], lambda x, values, outputs, training: own.total(
                tf, x, values, outputs, training), at, own.column_of(tf, names, at)
        losses = as_losses(self.model, self._loss, self._labels(label, names), names, shapes)
        self._targets = lambda tf, values: values[0] if len(names) == 1 else self._by_output(losses, names, values)
        ends = [(each.column, label_spec(tf, each, self.columns.get(each.column))) for each in losses]
        ends += self._weight_spec(tf)
        at = losses[0].output if self._output is None else self._output
        of_prediction = next((each for each in losses if each.output == at), losses[0])
        if of_prediction.output == at and of_prediction.of_values(self.columns.get(of_prediction.column)):
            self.metric = "RMSE"
        return ends, lambda x, values, outputs, training: self._total(
            tf, losses, tf.nest.flatten(outputs), values), at, of_prediction.column

    def _weight_spec(self, tf):
        """[(column, TensorSpec)] of the rows' weights."""
        if self._weight is None:
            if "weight" in self.columns and "weight" not in self._columns_of_inputs:
                raise _braid.InvalidArgument("the data has a column 'weight', which the model does not read: bd.io.keras(model, "
                                             "weight=\"weight\") makes it the weights of the rows; leave it out of the data else")
            return []
        if self._weight not in self.columns:
            raise _braid.InvalidArgument(f"weight: the data has no column '{self._weight}': it has {sorted(self.columns)}")
        return [(self._weight, tf.TensorSpec([None], tf.float32, name=f"in_{self._weight}"))]

    def _by_output(self, losses, names, values):
        """Labels as Keras takes them of a model of several outputs."""
        of_output = {each.output: value for each, value in zip(losses, values)}
        if isinstance(getattr(self.model, "loss", None), dict):
            return {names[number]: value for number, value in of_output.items()}
        return [of_output.get(number) for number in range(len(names))]

    # -------------------------------------------------------------------------------------------------------------- text
    def _text_of(self, tf, function, placeholders, specs, names):
        variables = {id(handle) for handle, _ in function.graph.captures if id(handle) in names}
        return TextValues(tf, function, placeholders, [column for column, _ in specs], variables)

    def numbers(self, arrays):
        """The columns, with what the model makes of strings in their places, and ragged ones as two."""
        if self._ragged:
            arrays = as_columns(arrays, self._ragged)
        if self._text is None or not self._text.names:
            return arrays
        missing = [each for each in self._text.columns if each not in arrays]
        if missing:
            raise _braid.InvalidArgument(f"the data has no column '{missing[0]}': it has {sorted(arrays)}")
        made = {name: value for name, value in arrays.items() if name not in self._text.texts}
        return {**made, **self._text.compute(arrays)}

    def _total(self, tf, losses, outputs, labels):
        """The weighted sum of the outputs' losses, and what layers add: regularizers, add_loss."""
        weight = labels[-1] if self._weight is not None else None
        parts = [each.weight * each.of(tf, label, outputs[each.output], weight) for each, label in zip(losses, labels)]
        parts += [tf.reduce_sum(tf.cast(each, tf.float32)) for each in self.model.losses]
        return tf.add_n(parts) if len(parts) > 1 else parts[0]

    def validation(self, arrays, rows):
        """What Keras says of these columns, by name: the loss, and metrics that the model was compiled with. `rows`: of a
        batch."""
        import tensorflow as tf
        function, argument, inputs = self._called
        arrays = as_columns(arrays, self._ragged)
        values = [_as_tensor(tf, arrays[column], spec) for column, spec in self._fed]
        if self._loss is None and getattr(self.model, "compiled", False):
            weights = [] if self._weight is None else [values.pop()]
            pair = (argument(values[:inputs]), self._targets(tf, values[inputs:]), *weights)
            batches = tf.data.Dataset.from_tensor_slices(pair).batch(rows)
            return {name: float(value) for name, value in self.model.evaluate(batches, verbose=0, return_dict=True).items()}
        count = len(values[0])
        parts = [[each[first:first + rows] for each in values] for first in range(0, count, rows)]
        return {"loss": sum(float(function(*part)[0]) * len(part[0]) for part in parts) / count}

    def variables(self):
        """Variables of Keras by name, behind job_fields()."""
        return self._by_name

    def tables(self):
        """Names of variables of Embedding layers, which are trained by rows."""
        import keras
        found = [each.embeddings for each in self.model._flatten_layers() if isinstance(each, keras.layers.Embedding)]
        return [name for name, each in self._by_name.items() if each.trainable and any(each is other for other in found)]

    def own_optimizer(self):
        """What the model was compiled with, or None."""
        return getattr(self.model, "optimizer", None)

    def write_back(self, file=None):
        """Sets the model's weights to the trained values; with `file` also writes them there."""
        for name, value in self._trained().items():
            if name in self._by_name:
                self._by_name[name].assign(value)
        if file is not None:
            super().write_back(file)
