"""Iterators of tf.data: where runs of a session are in a dataset."""

import threading
import weakref

from braid import _braid, dtypes, ops
from braid.compat.v1._elements import Spec, as_of, flat, flat_shapes, packed
from braid.dtypes import to_native
from braid.graph import default_graph
from braid.scopes import placeholder

current = threading.local()  # .session: a weak reference to that whose sources are being made
_INITIALIZERS = "__initializers_of_iterators"  # the graph's collection: {name: (iterator, dataset)}


class Iterator:
    """Where a graph's runs are in a dataset. Each session has a place of its own."""

    def __init__(self, dataset, specs=None):
        self._dataset, self._specs = dataset, dataset._specs if specs is None else specs
        self._places = weakref.WeakKeyDictionary()  # session -> iterator of elements
        self._made = False
        self.initializer = None if dataset is None else self.make_initializer(dataset)

    @staticmethod
    def from_structure(output_types, output_shapes=None, shared_name=None):
        """An iterator of any dataset of these types; make_initializer(dataset) is what begins one."""
        types = flat(output_types)
        shapes = [None] * len(types) if output_shapes is None else flat_shapes(output_types, output_shapes)
        made = [Spec(dtypes.as_dtype(kind), shape) for kind, shape in zip(types, shapes)]
        return Iterator(None, packed(output_types, iter(made)))

    def make_initializer(self, dataset, name=None):
        """An Operation that begins the dataset."""
        made = ops.group(name=name or "MakeIterator")
        default_graph().collections.setdefault(_INITIALIZERS, {})[made.name] = (self, dataset)
        return made

    def get_next(self, name=None):
        """The next element: tensors that each run gives other values. Once for each iterator."""
        if self._made:
            raise _braid.InvalidArgument("get_next() was called before: use the tensors that it gave")
        self._made = True
        graph, specs = default_graph(), flat(self._specs)
        made = [placeholder(name or "IteratorGetNext", spec.shape, spec.dtype) for spec in specs]
        graph.sources.append((made, self._source))
        return packed(self._specs, iter(made))

    def begin(self, session, dataset, given):
        self._places[session] = dataset._elements(given)

    def _source(self):
        session, specs = current.session, flat(self._specs)

        def read(ticket):
            if session() not in self._places:
                if self._dataset is None:
                    raise _braid.InvalidArgument("the iterator has no dataset: run what make_initializer(dataset) gives")
                self.begin(session(), self._dataset, {})
            element = next(self._places[session()])
            return [to_native(as_of(value, spec)) for value, spec in zip(element, specs)]

        return read


def make_one_shot_iterator(dataset):
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset, shared_name=None):
    return dataset.make_initializable_iterator()


def begin_iterators(session, targets, feeds, evaluate):
    """Begins the datasets whose initializers are among `targets`. feeds(): {Tensor: value}. evaluate(tensors): values of
    tensors in this run."""
    known = session.graph.collections.get(_INITIALIZERS, {})
    for iterator, dataset in [known[name] for name in targets if name in known]:
        fed = feeds()
        given = {each: fed[each] for each in dataset._tensors if each in fed}
        computed = [each for each in dataset._tensors if each not in fed and each.op.type != "Placeholder"]
        given.update(zip(computed, evaluate(computed)) if computed else ())
        iterator.begin(session, dataset, {each: as_of(value, each) for each, value in given.items()})
