"""tf.data of programs of TensorFlow 1: datasets whose elements are made where a run, or a stage, needs the next one. Functions
given to map and filter build graphs of Braid's ops."""

import glob as _glob
import random as _random

import numpy as _np

from braid import _braid, dtypes as _dtypes
from braid.compat.v1 import _input
from braid.compat.v1._elements import (Spec as _Spec, array as _array, as_of as _as, evaluator as _evaluator, flat as _flat,
                                       flat_shapes as _shapes, packed as _packed, spec_of as _spec_of, stack as _stack)
from braid.compat.v1._iterators import Iterator
from braid.dtypes import from_native as _from_native
from braid.graph import Tensor as _Tensor


class Dataset:
    """Elements, one after the other: nested tuples and dicts of tensors."""

    def __init__(self, specs, elements, of=()):
        self._specs, self._elements = specs, elements  # elements(given): an iterator of lists; given: {Tensor: array}
        self._tensors = [tensor for each in of for tensor in each._tensors]  # of which elements are made

    @staticmethod
    def from_tensor_slices(tensors):
        """The rows of arrays, or of placeholders that are fed where the iterator is initialised."""
        return _of_arrays(tensors, True)

    @staticmethod
    def from_tensors(tensors):
        return _of_arrays(tensors, False)

    @staticmethod
    def range(*limits, output_type=_dtypes.int64, name=None):
        limits, kind = [int(each) for each in limits], _dtypes.as_dtype(output_type)
        return Dataset(_Spec(kind, []), lambda given: ([_np.asarray(i, kind.numpy)] for i in range(*limits)))

    @staticmethod
    def from_generator(generator, output_types, output_shapes=None, args=None):
        """What a Python generator gives; None in a shape: any size."""
        types = _flat(output_types)
        shapes = [None] * len(types) if output_shapes is None else _shapes(output_types, output_shapes)
        specs = _packed(output_types, iter(_Spec(_dtypes.as_dtype(kind), shape) for kind, shape in zip(types, shapes)))

        def elements(given):
            for value in generator(*(args or ())):
                parts = _flat(tuple(value) if isinstance(value, list) and isinstance(specs, tuple) else value)
                if len(parts) != len(types):
                    raise _braid.InvalidArgument(f"from_generator: an element has {len(parts)} parts, and there are {len(types)} types")
                yield [_checked(_as(part, spec), spec) for part, spec in zip(parts, _flat(specs))]

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

        return Dataset(specs, elements, parts)

    def _also(self, elements):
        return Dataset(self._specs, elements, [self])

    def map(self, map_func, num_parallel_calls=None, deterministic=None, name=None):
        specs, evaluate = _evaluator(self._specs, map_func)
        return Dataset(specs, lambda given: (evaluate(each) for each in self._elements(given)), [self])

    def filter(self, predicate, name=None):
        _, evaluate = _evaluator(self._specs, predicate)
        return self._also(lambda given: (each for each in self._elements(given) if evaluate(each)[0]))

    def batch(self, batch_size, drop_remainder=False, num_parallel_calls=None, deterministic=None, name=None):
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
        return Dataset(_packed(self._specs, iter(made)), elements, [self])

    def unbatch(self):
        specs = [_Spec(spec.dtype, None if spec.shape is None else spec.shape[1:]) for spec in _flat(self._specs)]
        return Dataset(_packed(self._specs, iter(specs)), lambda given: (
            [part[i] for part in each] for each in self._elements(given) for i in range(len(each[0]))), [self])

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
        if not 0 <= index < num_shards:
            raise _braid.InvalidArgument(f"shard({num_shards}, {index}): the index must be from 0 to {num_shards - 1}")
        return self._also(lambda given: (each for i, each in enumerate(self._elements(given)) if i % num_shards == index))

    def concatenate(self, dataset):
        def elements(given):
            yield from self._elements(given)
            yield from dataset._elements(given)

        return Dataset(self._specs, elements, [self, dataset])

    def enumerate(self, start=0):
        return Dataset((_Spec(_dtypes.int64, []), self._specs),
                       lambda given: ([_np.int64(i), *each] for i, each in enumerate(self._elements(given), start)), [self])

    def flat_map(self, map_func):
        return self.interleave(map_func, 1)

    def interleave(self, map_func, cycle_length=1, block_length=1, num_parallel_calls=None, deterministic=None, name=None):
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

        return Dataset(made_of(first)._specs, elements, [self])

    def prefetch(self, buffer_size=None):
        return self

    def cache(self, filename=""):
        """Elements of the first time through, in memory, until the iterator is initialised again."""
        kept = []  # (what the iterator was initialised with, elements)

        def elements(given):
            if kept and kept[0][0] is given:
                yield from kept[0][1]
                return
            made = []
            for each in self._elements(given):
                made.append(each)
                yield each
            kept[:] = [(given, made)]

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


def _checked(value, spec):
    shape = value.shape
    if spec.shape is not None and (len(shape) != len(spec.shape) or
                                   any(asked not in (None, -1, size) for asked, size in zip(spec.shape, shape))):
        raise _braid.InvalidArgument(f"from_generator: a part of shape {list(shape)}, and its output_shapes are {spec.shape}")
    return value


def _known(tensor):
    """The value of a constant, or None."""
    value = tensor.graph.native.known_value(tensor.node, tensor.index)
    return None if value is None else _from_native(value)


def _of_arrays(tensors, slices):
    tensors = tuple(tensors) if isinstance(tensors, list) and any(isinstance(each, _Tensor) for each in tensors) else tensors
    parts = [_known(each) if isinstance(each, _Tensor) and _known(each) is not None else each for each in _flat(tensors)]
    parts = [each if isinstance(each, _Tensor) else _array(each) for each in parts]
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
    return made


class _Records(Dataset):
    def __init__(self, filenames, compression_type, of_file):
        if compression_type not in (None, "", "GZIP"):
            raise _braid.InvalidArgument(f"compression_type={compression_type!r}: files are read as they are, or as gzip")
        of = [filenames] if isinstance(filenames, Dataset) else []
        if isinstance(filenames, _Tensor):
            filenames = _known(filenames)
            if filenames is None:
                raise _braid.InvalidArgument("names of files must be known: a list, not a placeholder")
        names = [] if of else list(_np.ravel(_np.asarray(filenames, dtype=object)))

        def elements(given):
            for name in (each[0] for each in of[0]._elements(given)) if of else names:
                for _, record in of_file(_plain(_np.asarray(name, dtype=object))):
                    yield [_np.asarray(record, dtype=object)]

        super().__init__(_Spec(_dtypes.string, []), elements, of)


class TextLineDataset(_Records):
    """Lines of text files, gzip too."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        super().__init__(filenames, compression_type, _input.TextLineReader()._of_file)


class TFRecordDataset(_Records):
    """Records of TFRecord files, gzip too."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        super().__init__(filenames, compression_type, _input.TFRecordReader()._of_file)


def make_one_shot_iterator(dataset):
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset, shared_name=None):
    return dataset.make_initializable_iterator()


class Options:
    """tf.data.Options: settings of TensorFlow's threads, without effect."""

    def __setattr__(self, name, value):
        pass


AUTOTUNE = -1


class _Experimental:
    AUTOTUNE = AUTOTUNE

    def __getattr__(self, name):
        raise AttributeError(f"braid.compat.v1.data.experimental has no '{name}': docs/user/python.md lists what runs")


experimental = _Experimental()


def __getattr__(name):
    raise AttributeError(f"braid.compat.v1.data has no '{name}': docs/user/python.md lists what runs")
