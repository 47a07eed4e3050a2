"""tf.data of programs of TensorFlow 1: datasets whose elements are made where a run, or a stage, needs the next one. Functions
given to map and filter build graphs of Braid's ops."""

import glob as _glob
import random as _random
import threading as _threading
import weakref as _weakref

import numpy as _np

from braid import _braid, dtypes as _dtypes, ops as _ops
from braid.compat.v1 import _input
from braid.dtypes import from_native as _from_native, to_native as _to_native
from braid.graph import Graph as _Graph, Tensor as _Tensor, default_graph as _default_graph
from braid.scopes import placeholder as _placeholder

_current = _threading.local()  # .session: whose sources are being made


# ---------------------------------------------------------------------------------------------------------- structures
def _flat(value):
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in _flat(value[key])]
    if isinstance(value, tuple):
        return [leaf for each in value for leaf in _flat(each)]
    return [value]


def _packed(like, leaves):
    """`leaves`, an iterator, in the structure of `like`."""
    if isinstance(like, dict):
        made = {key: _packed(like[key], leaves) for key in sorted(like)}
        return {key: made[key] for key in like}
    if isinstance(like, tuple):
        return tuple(_packed(each, leaves) for each in like)
    return next(leaves)


class _Spec:
    """Type and shape of a part of an element; None in it: any size."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, shape


def _array(value):
    value = _np.asarray(value)
    return value.astype(object) if value.dtype.kind in "US" else value


def _spec_of(value):
    value = _array(value)
    return _Spec(_dtypes.string if value.dtype == object else _dtypes.as_dtype(value.dtype), list(value.shape))


def _evaluator(specs, function):
    """(the structure of what a function of TensorFlow makes of an element, its specs, a function of values)."""
    with _Graph() as graph:
        given = [_placeholder("element", spec.shape, spec.dtype) for spec in _flat(specs)]
        arguments = _packed(specs, iter(given))
        made = function(*arguments) if isinstance(arguments, tuple) else function(arguments)
        made = tuple(made) if isinstance(made, list) else made
        results = [graph.convert(each) for each in _flat(made)]
    names, feeds = [each.value_name for each in results], [each.value_name for each in given]
    session = _braid.Session(1, "NONE", 1, 1, 3600.0, False, [])

    def evaluate(values):
        fed = [(name, _to_native(_as(value, spec))) for name, value, spec in zip(feeds, values, _flat(specs))]
        return [_array(_from_native(each)) for each in session.run(graph.native, names, [], fed)]

    found = [_Spec(each.dtype, None if each.shape is None else list(each.shape)) for each in results]
    return _packed(made, iter(found)), evaluate


def _as(value, spec):
    value = _array(value)
    return value if spec.dtype == _dtypes.string else _np.asarray(value, spec.dtype.numpy, order="C")


def _stack(values, spec):
    if spec.dtype != _dtypes.string:
        return _np.stack(values)
    made = _np.empty((len(values), *_np.shape(values[0])), dtype=object)
    for row, value in enumerate(values):
        made[row] = value if _np.ndim(value) else value.item() if isinstance(value, _np.ndarray) else value
    return made


# ------------------------------------------------------------------------------------------------------------- datasets
class Dataset:
    """Elements, one after the other: nested tuples and dicts of tensors."""

    def __init__(self, specs, elements):
        self._specs, self._elements = specs, elements  # elements(given): an iterator of lists; given: {Tensor: array}

    @staticmethod
    def from_tensor_slices(tensors):
        """The rows of arrays, or of placeholders that are fed where the iterator is initialised."""
        return _of_arrays(tensors, True)

    @staticmethod
    def from_tensors(tensors):
        return _of_arrays(tensors, False)

    @staticmethod
    def range(*limits, **_):
        limits = [int(each) for each in limits]
        return Dataset(_Spec(_dtypes.int64, []), lambda given: ([_np.int64(i)] for i in range(*limits)))

    @staticmethod
    def from_generator(generator, output_types, output_shapes=None, args=None):
        """What a Python generator gives; None in a shape: any size."""
        types = _flat(output_types)
        shapes = [None] * len(types) if output_shapes is None else _shapes(output_types, output_shapes)
        specs = _packed(output_types, iter(_Spec(_dtypes.as_dtype(kind), shape) for kind, shape in zip(types, shapes)))

        def elements(given):
            for value in generator(*(args or ())):
                parts = _flat(tuple(value) if isinstance(value, list) and isinstance(specs, tuple) else value)
                yield [_as(part, spec) for part, spec in zip(parts, _flat(specs))]

        return Dataset(specs, elements)

    @staticmethod
    def list_files(file_pattern, shuffle=None, seed=None):
        """Names of files, in a random order where it is not said otherwise."""
        patterns = [file_pattern] if isinstance(file_pattern, (str, bytes)) else list(file_pattern)
        names = sorted(name for each in patterns for name in _glob.glob(each if isinstance(each, str) else each.decode()))
        if not names:
            raise _braid.InvalidArgument(f"list_files: no file is called {patterns}")
        made = Dataset.from_tensor_slices(_np.array(names, dtype=object))
        return made if shuffle is False else made.shuffle(len(names), seed)

    @staticmethod
    def zip(datasets):
        parts = _flat(datasets)
        specs = _packed(datasets, iter([each._specs for each in parts]))

        def elements(given):
            for row in zip(*(each._elements(given) for each in parts)):
                yield [value for part in row for value in part]

        return Dataset(specs, elements)

    def _also(self, elements):
        return Dataset(self._specs, elements)

    def map(self, map_func, num_parallel_calls=None, **_):
        specs, evaluate = _evaluator(self._specs, map_func)
        return Dataset(specs, lambda given: (evaluate(each) for each in self._elements(given)))

    def filter(self, predicate):
        _, evaluate = _evaluator(self._specs, predicate)
        return self._also(lambda given: (each for each in self._elements(given) if evaluate(each)[0]))

    def batch(self, batch_size, drop_remainder=False, **_):
        return self._batched(batch_size, drop_remainder, lambda values, spec: _stack(values, spec))

    def padded_batch(self, batch_size, padded_shapes=None, padding_values=None, drop_remainder=False):
        """Parts of an element that have several sizes in a batch are filled to the largest, or to `padded_shapes`."""
        specs = _flat(self._specs)
        wanted = [None] * len(specs) if padded_shapes is None else _shapes(self._specs, padded_shapes)
        fillers = [None] * len(specs) if padding_values is None else _flat(padding_values)

        def fill(values, spec):
            at = specs.index(spec)
            shapes = [_np.shape(each) for each in values]
            size = [max(each[i] for each in shapes) for i in range(len(shapes[0]))]
            for i, asked in enumerate(wanted[at] or []):
                if asked not in (None, -1):
                    if size[i] > asked:
                        raise _braid.InvalidArgument(f"padded_batch: a part of {size[i]} elements, and its padded shape has {asked}")
                    size[i] = asked
            filler = fillers[at] if fillers[at] is not None else b"" if spec.dtype == _dtypes.string else 0
            made = _np.full((len(values), *size), filler, dtype=object if spec.dtype == _dtypes.string else spec.dtype.numpy)
            for row, value in enumerate(values):
                made[(row, *(slice(each) for each in _np.shape(value)))] = value
            return made

        made = self._batched(batch_size, drop_remainder, fill)
        for spec, old, asked in zip(_flat(made._specs), specs, wanted):
            spec.shape = [spec.shape[0], *(asked if asked is not None else [None] * len(old.shape))] if old.shape is not None else None
        return made

    def _batched(self, size, drop, stack):
        size, specs = int(size), _flat(self._specs)

        def elements(given):
            rows = []
            for each in self._elements(given):
                rows.append(each)
                if len(rows) == size:
                    yield [stack(values, spec) for values, spec in zip(zip(*rows), specs)]
                    rows = []
            if rows and not drop:
                yield [stack(values, spec) for values, spec in zip(zip(*rows), specs)]

        first = size if drop else None
        made = [_Spec(spec.dtype, None if spec.shape is None else [first, *spec.shape]) for spec in specs]
        return Dataset(_packed(self._specs, iter(made)), elements)

    def unbatch(self):
        specs = [_Spec(spec.dtype, None if spec.shape is None else spec.shape[1:]) for spec in _flat(self._specs)]
        return Dataset(_packed(self._specs, iter(specs)), lambda given: (
            [part[i] for part in each] for each in self._elements(given) for i in range(len(each[0]))))

    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=None):
        """Elements drawn from `buffer_size` waiting ones, in Braid's order."""
        count = [0]

        def elements(given):
            count[0] += reshuffle_each_iteration is not False
            order, waiting = _random.Random(f"{1 if seed is None else seed} {count[0]}"), []
            for each in self._elements(given):
                waiting.append(each)
                if len(waiting) >= max(1, int(buffer_size)):
                    yield waiting.pop(order.randrange(len(waiting)))
            order.shuffle(waiting)
            yield from waiting

        return self._also(elements)

    def repeat(self, count=None):
        def elements(given):
            turn = 0
            while count is None or count < 0 or turn < count:
                some = False
                for each in self._elements(given):
                    some = True
                    yield each
                turn += 1
                if not some:
                    return

        return self._also(elements)

    def take(self, count):
        def elements(given):
            if count == 0:
                return
            for i, each in enumerate(self._elements(given), 1):
                yield each
                if i == count:
                    return

        return self._also(elements)

    def skip(self, count):
        return self._also(lambda given: (each for i, each in enumerate(self._elements(given)) if i >= count >= 0))

    def shard(self, num_shards, index):
        return self._also(lambda given: (each for i, each in enumerate(self._elements(given)) if i % num_shards == index))

    def concatenate(self, dataset):
        def elements(given):
            yield from self._elements(given)
            yield from dataset._elements(given)

        return self._also(elements)

    def enumerate(self, start=0):
        return Dataset((_Spec(_dtypes.int64, []), self._specs),
                       lambda given: ([_np.int64(i), *each] for i, each in enumerate(self._elements(given), start)))

    def flat_map(self, map_func):
        return self.interleave(map_func, 1)

    def interleave(self, map_func, cycle_length=1, block_length=1, **_):
        """Elements of the datasets that a function makes of each element: of file names, readers of their records."""
        def made_of(each):
            arguments = _packed(self._specs, iter([_plain(value) for value in each]))
            return map_func(*arguments) if isinstance(arguments, tuple) else map_func(arguments)

        first = next(self._elements({}), None)
        if first is None:
            raise _braid.InvalidArgument("interleave: there is no element whose dataset says what elements are")

        def elements(given):
            outer, open_ = self._elements(given), []
            while True:
                while len(open_) < max(1, cycle_length or 1):
                    each = next(outer, None)
                    if each is None:
                        break
                    open_.append(made_of(each)._elements(given))
                if not open_:
                    return
                for inner in list(open_):
                    for _ in range(block_length if cycle_length != 1 else 1 << 62):
                        value = next(inner, None)
                        if value is None:
                            open_.remove(inner)
                            break
                        yield value

        return Dataset(made_of(first)._specs, elements)

    def prefetch(self, buffer_size=None):
        return self

    def cache(self, filename=""):
        kept = []

        def elements(given):
            if not kept:
                kept.append(list(self._elements(given)))
            yield from kept[0]

        return self._also(elements)

    def with_options(self, options):
        return self

    def apply(self, transformation):
        return transformation(self)

    @property
    def output_types(self):
        return _packed(self._specs, iter([spec.dtype for spec in _flat(self._specs)]))

    @property
    def output_shapes(self):
        return _packed(self._specs, iter([spec.shape for spec in _flat(self._specs)]))

    def make_one_shot_iterator(self):
        return Iterator(self)

    def make_initializable_iterator(self, shared_name=None):
        return Iterator(self)


def _plain(value):
    value = value.item() if isinstance(value, _np.ndarray) and value.ndim == 0 else value
    return value.decode() if isinstance(value, bytes) else value


def _shapes(like, shapes):
    """Shapes in the structure of `like`, flat: lists, tuples, or what has as_list()."""
    if isinstance(like, dict):
        return [leaf for key in sorted(like) for leaf in _shapes(like[key], shapes[key])]
    if isinstance(like, tuple):
        return [leaf for each, part in zip(like, shapes) for leaf in _shapes(each, part)]
    return [None if shapes is None else shapes.as_list() if hasattr(shapes, "as_list") else list(shapes)]


def _of_arrays(tensors, slices):
    tensors = tuple(tensors) if isinstance(tensors, list) and any(isinstance(each, _Tensor) for each in tensors) else tensors
    parts = [each if isinstance(each, _Tensor) else _array(each) for each in _flat(tensors)]
    specs = [_Spec(each.dtype, None if each.shape is None else list(each.shape)) if isinstance(each, _Tensor) else _spec_of(each)
             for each in parts]
    lengths = {len(each) for each in parts if not isinstance(each, _Tensor) and slices and each.ndim}
    if len(lengths) > 1:
        raise _braid.InvalidArgument(f"from_tensor_slices: the tensors have {sorted(lengths)} rows")
    if slices:
        specs = [_Spec(spec.dtype, None if spec.shape is None else spec.shape[1:]) for spec in specs]
    tensors_among = [each for each in parts if isinstance(each, _Tensor)]

    def elements(given):
        missing = [each for each in tensors_among if each not in given]
        if missing:
            raise _braid.InvalidArgument(f"the iterator is of a dataset of '{missing[0].value_name}': run iterator.initializer, fed with it")
        values = [given[each] if isinstance(each, _Tensor) else each for each in parts]
        if not slices:
            yield values
            return
        for i in range(len(values[0])):
            yield [value[i] for value in values]

    made = Dataset(_packed(tensors, iter(specs)), elements)
    made._tensors = tensors_among
    _default_graph().collections.setdefault("__dataset_tensors", []).extend(tensors_among)
    return made


class _Records(Dataset):
    def __init__(self, filenames, of_file):
        names = filenames._elements if isinstance(filenames, Dataset) else None
        if isinstance(filenames, (str, bytes)):
            filenames = [filenames]
        if isinstance(filenames, _Tensor):
            value = filenames.graph.native.known_value(filenames.node, filenames.index)
            if value is None:
                raise _braid.InvalidArgument("names of files must be known: a list, not a placeholder")
            filenames = list(_np.ravel(_from_native(value)))

        def elements(given):
            for name in (each[0] for each in names(given)) if names else filenames:
                for record in of_file(_plain(_np.asarray(name, dtype=object))):
                    yield [_np.asarray(record, dtype=object)]

        super().__init__(_Spec(_dtypes.string, []), elements)


class TextLineDataset(_Records):
    """Lines of text files, gzip too."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        super().__init__(filenames, lambda name: (line for _, line in _input.TextLineReader()._of_file(name)))


class TFRecordDataset(_Records):
    """Records of TFRecord files, gzip too."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        super().__init__(filenames, lambda name: (record for _, record in _input.TFRecordReader()._of_file(name)))


# ------------------------------------------------------------------------------------------------------------ iterators
class Iterator:
    """Where a graph's runs are in a dataset. Each session has a place of its own."""

    def __init__(self, dataset, specs=None):
        self._dataset, self._specs = dataset, dataset._specs if specs is None else specs
        self._places = _weakref.WeakKeyDictionary()  # session -> iterator of elements
        self._made = False
        self.initializer = None if dataset is None else self.make_initializer(dataset)

    @staticmethod
    def from_structure(output_types, output_shapes=None, **_):
        """An iterator of any dataset of these types; make_initializer(dataset) is what begins one."""
        types = _flat(output_types)
        shapes = [None] * len(types) if output_shapes is None else _shapes(output_types, output_shapes)
        made = [_Spec(_dtypes.as_dtype(kind), shape) for kind, shape in zip(types, shapes)]
        return Iterator(None, _packed(output_types, iter(made)))

    def make_initializer(self, dataset, name=None):
        """An Operation that begins the dataset."""
        made = _ops.group(name=name or "MakeIterator")
        _default_graph().collections.setdefault("__initializers_of_iterators", {})[made.name] = (self, dataset)
        return made

    def get_next(self, name=None):
        """The next element: tensors that each run gives other values. Once for each iterator."""
        if self._made:
            raise _braid.InvalidArgument("get_next() was called before: use the tensors that it gave")
        self._made = True
        graph, specs = _default_graph(), _flat(self._specs)
        made = [_placeholder(name or "IteratorGetNext", spec.shape, spec.dtype) for spec in specs]
        graph.sources.append((made, self._source))
        return _packed(self._specs, iter(made))

    def begin(self, session, dataset, given):
        self._places[session] = dataset._elements(given)

    def _source(self):
        session, specs = _weakref.ref(_current.session), _flat(self._specs)

        def read(ticket):
            if session() not in self._places:
                if self._dataset is None:
                    raise _braid.InvalidArgument("the iterator has no dataset: run what make_initializer(dataset) gives")
                self.begin(session(), self._dataset, {})
            element = next(self._places[session()])
            return [_to_native(_as(value, spec)) for value, spec in zip(element, specs)]

        return read


def make_one_shot_iterator(dataset):
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset, shared_name=None):
    return dataset.make_initializable_iterator()


def begin_iterators(session, targets, feed_dict, evaluate):
    """Begins the datasets whose initializers are among `targets`. evaluate(tensors): their values in this run."""
    known = session.graph.collections.get("__initializers_of_iterators", {})
    for name in targets:
        if name in known:
            iterator, dataset = known[name]
            tensors = session.graph.collections.get("__dataset_tensors", [])
            fed = [each for each in tensors if each in feed_dict or each.op.type != "Placeholder"]
            values = evaluate(fed) if fed else []
            iterator.begin(session, dataset, {each: _as(value, each) for each, value in zip(fed, values)})


class Options:
    """tf.data.Options: settings of TensorFlow's threads, without effect."""

    def __setattr__(self, name, value):
        pass


AUTOTUNE = -1
