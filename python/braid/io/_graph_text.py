"""Text in graphs from files: what their hashes, vocabularies and other ops make of strings is computed by Braid's ops, once
for all rows, and feeds the graph as columns. So a step sees numbers only, and ids are those of the program that wrote the
graph."""

import numpy as np

from braid import dtypes
from braid.graph import Graph
from braid.io._text import by_rows, no_rows
from braid.session import Session


# What is chosen of a batch's texts is no value for each row: that stays in the step.
CHOOSES = {"Where", "Shape", "Size", "SparseCross"}


class GraphText:
    """Values of a graph that follow from its placeholders of strings, tables and constants alone, and that other nodes read.
    `placeholders`: {value: column}. `names`: the values that are to be fed, by columns text_0, text_1, ..."""

    def __init__(self, file, roots, placeholders):
        self._graph = Graph.load(file, roots)
        self._given = {value.split(":")[0]: column for value, column in placeholders.items()}
        self.texts = list(dict.fromkeys(placeholders.values()))
        self._made = self._boundary()
        bad = [each for each in self._made if each.shape is None or not each.shape or each.shape[0] is not None]
        if bad:
            raise no_rows(bad[0].name, bad[0].shape)
        self.names = [each.value_name for each in self._made]

    def _boundary(self):
        """Numbers that are made of text and read by nodes that are not."""
        operations = self._graph.get_operations()
        touched, pure = set(), set()
        for each in operations:
            of_text = each.name in self._given or any(value.node in touched for value in each.inputs)
            if each.name in self._given or each.type == "Const":
                pure.add(each.node)
            elif each.inputs and each.type not in CHOOSES and all(value.node in pure for value in each.inputs):
                pure.add(each.node)
            if of_text and each.node in pure:
                touched.add(each.node)
        read = {(value.node, value.index): value for each in operations if each.node not in touched for value in each.inputs}
        return [value for place, value in read.items() if place[0] in touched and value.dtype != dtypes.string]

    def columns(self):
        return [f"text_{i}" for i in range(len(self.names))]

    def compute(self, arrays):
        """{column: array} of the rows of these columns of strings."""
        with self._graph, Session() as session:
            placeholders = {self._graph.find(f"{name}:0"): np.asarray(arrays[column]) for name, column in self._given.items()}
            made = by_rows(len(arrays[self.texts[0]]), self.names, lambda rows: session.run(
                self._made, {each: values[rows] for each, values in placeholders.items()}))
        return dict(zip(self.columns(), made))
