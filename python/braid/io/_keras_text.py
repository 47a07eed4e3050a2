"""Text in Keras models: what StringLookup, Hashing, TextVectorization and other ops make of strings is computed by
TensorFlow, once for all rows, and feeds the graph as columns. So the step sees numbers only. HashedCrossing, whose crosses
are texts too, goes the same way."""

import numpy as np

from braid.io._text import by_rows, no_rows

# Ops that make many numbers of few: they stay in the step.
EXPANDS = {"OneHot", "DenseBincount", "Bincount", "ScatterNd"}
CROSSES = {"SparseCross", "SparseCrossHashed", "SparseCrossV2"}


class TextValues:
    """Values of a traced function that follow from its inputs, tables and constants alone, and from text among them.
    `names`: those that other nodes read, which are to be fed. `columns`: of all inputs, in their order; `texts`: of the
    strings."""

    def __init__(self, tf, function, inputs, columns, variables):
        self._tf, self._function, self._inputs, self.columns = tf, function, list(inputs), list(columns)
        self.texts = [column for each, column in zip(inputs, columns) if each.dtype == tf.string]
        for kept in (EXPANDS, set()):
            self._made = self._boundary(kept, variables)
            bad = [value for value in self._made if value.shape.rank in (None, 0) or value.shape[0] is not None]
            if not bad:
                break
        if bad:
            raise no_rows(bad[0].name, bad[0].shape)
        self.names = [value.name for value in self._made]

    def _boundary(self, kept, variables):
        """Numbers made of text that other nodes read; ops of `kept` are others."""
        graph, fed = self._function.graph, {each.op.name: each.dtype for each in self._inputs}
        outside = {stand_in.op.name: captured for captured, stand_in in graph.captures}
        pure, touched = {}, set()
        for op in graph.get_operations():
            if op.type == "Placeholder":
                captured = outside.get(op.name)
                pure[op.name] = op.name in fed or captured is not None and id(captured) not in variables
                if fed.get(op.name) == self._tf.string:
                    touched.add(op.name)
                continue
            pure[op.name] = op.type not in kept and all(pure[each.op.name] for each in op.inputs)
            if pure[op.name] and (op.type in CROSSES or any(each.op.name in touched for each in op.inputs)):
                touched.add(op.name)
        no_numbers = (self._tf.string, self._tf.resource, self._tf.variant)
        return [value for op in graph.get_operations() if op.name in touched for value in op.outputs
                if value.dtype not in no_numbers and any(each.name not in touched for each in value.consumers())]

    def column_of(self, name):
        return f"text_{self.names.index(name)}"

    def compute(self, arrays):
        """{column: array} of the rows of these columns."""
        tf, graph = self._tf, self._function.graph
        definition = graph.as_graph_def()

        @tf.function(autograph=False, input_signature=[tf.TensorSpec(each.shape, each.dtype) for each in self._inputs])
        def numbers(*values):
            here = tf.compat.v1.get_default_graph()
            fed = {stand_in.name: here.capture(captured) for captured, stand_in in graph.captures}
            fed.update((each.name, value) for each, value in zip(self._inputs, values))
            return tf.graph_util.import_graph_def(definition, input_map=fed, return_elements=self.names)

        given = [np.asarray(arrays[column]) for column in self.columns]
        made = by_rows(len(given[0]), self.names, lambda rows: numbers(
            *(self._as_tensor(each, values[rows]) for each, values in zip(self._inputs, given))))
        return {self.column_of(name): values for name, values in zip(self.names, made)}

    def _as_tensor(self, like, values):
        if like.dtype == self._tf.string:
            return self._tf.constant(values.tolist(), self._tf.string)
        row = [each for each in like.shape[1:]]
        return self._tf.reshape(self._tf.cast(values, like.dtype), [len(values), *row])
