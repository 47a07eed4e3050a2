"""Queue-style input: what queue runners and readers would do happens where a run, or a stage, needs the next record."""

import gzip
import random
import struct

import numpy as np

from braid import _braid, dtypes
from braid.dtypes import from_native, to_native
from braid.graph import Tensor, default_graph
from braid.scopes import placeholder


class _Names:
    """string_input_producer: file names, epoch after epoch."""

    def __init__(self, names, num_epochs, shuffle, seed):
        self.names, self.num_epochs, self.shuffle = list(names), num_epochs, shuffle
        self.seed = 1 if seed is None else seed

    def __iter__(self):
        order, epoch = random.Random(self.seed), 0
        while self.num_epochs is None or epoch < self.num_epochs:
            names = list(self.names)
            if self.shuffle:
                order.shuffle(names)
            yield from (each.decode() if isinstance(each, bytes) else str(each) for each in names)
            epoch += 1


def _open(name):
    file = open(name, "rb")
    if file.read(2) == b"\x1f\x8b":
        file.close()
        return gzip.open(name, "rb")
    file.seek(0)
    return file


class _Reader:
    """A reader op: read(queue) gives (key, value), a record further in each run."""

    def read(self, queue, name=None):
        graph = default_graph()
        key, value = placeholder("ReaderRead/key", [], "string"), placeholder("ReaderRead/value", [], "string")
        source = _Source(graph, [key, value], lambda: self._records(queue))
        return source.placeholders

    def _records(self, queue):
        found = False
        for name in queue:
            for key, value in self._of_file(name):
                found = True
                yield [((), [key]), ((), [value])]
            if not found and len(queue.names) == 1:
                raise _braid.InvalidArgument(f"'{name}' has no records")


class TextLineReader(_Reader):
    """Lines of text files, gzip too; keys are "file:line"."""

    def __init__(self, skip_header_lines=0, name=None):
        self._skip = skip_header_lines or 0

    def _of_file(self, name):
        with _open(name) as lines:
            for number, line in enumerate(lines, 1):
                if number > self._skip:
                    yield f"{name}:{number}".encode(), line.rstrip(b"\n").removesuffix(b"\r")


class WholeFileReader(_Reader):
    """Whole files; keys are their names."""

    def __init__(self, name=None):
        pass

    def _of_file(self, name):
        with open(name, "rb") as file:
            yield name.encode(), file.read()


class TFRecordReader(_Reader):
    """Records of TFRecord files; keys are "file:byte"."""

    def __init__(self, name=None, options=None):
        pass

    def _of_file(self, name):
        at = 0
        with _open(name) as file:
            while head := file.read(12):
                (length,) = struct.unpack("<Q", head[:8])
                record = file.read(length)
                if len(record) < length or len(file.read(4)) < 4:
                    raise _braid.DataLoss(f"{name}: truncated record at byte {at}")
                yield f"{name}:{at}".encode(), record
                at += 16 + length


class _Source:
    """Placeholders that come with records. A source whose records another one batches is read by that one alone."""

    def __init__(self, graph, placeholders, records):
        self.graph, self.placeholders, self.records = graph, list(placeholders), records
        graph.sources.append((self.placeholders, self._make))
        graph.collections.setdefault("__records", {}).update({each: self for each in placeholders})

    def _make(self):
        records = self.records()
        return lambda ticket: next(records)

    def take_over(self):
        self.graph.sources[:] = [each for each in self.graph.sources if each[0] is not self.placeholders]


def _sources_above(graph, tensors):
    """The sources whose placeholders these values are made of."""
    known, found, seen = graph.collections.get("__records", {}), [], set()
    todo = list(tensors)
    while todo:
        tensor = todo.pop()
        if tensor in known:
            if known[tensor] not in found:
                found.append(known[tensor])
        elif tensor.node not in seen:
            seen.add(tensor.node)
            todo.extend(tensor.op.inputs)
    return found


class _Elements:
    """Evaluates tensors for one record after the other, in a session of its own."""

    def __init__(self, graph, tensors):
        self.graph, self.tensors = graph, tensors
        self.sources = _sources_above(graph, tensors)
        for source in self.sources:
            source.take_over()

    def __iter__(self):
        feeds = [each for source in self.sources for each in source.placeholders]
        records = [source.records() for source in self.sources]
        plain = all(each in feeds for each in self.tensors)
        session = None if plain else _braid.Session(1, "NONE", 1, 1, 3600.0, False, [])
        names = [each.value_name for each in self.tensors]
        while True:
            try:
                values = [each for record in records for each in next(record)]
            except StopIteration:
                return
            if plain:
                yield [from_native(values[feeds.index(each)]) for each in self.tensors]
                continue
            fed = [(each.value_name, value) for each, value in zip(feeds, values)]
            yield [from_native(each) for each in session.run(self.graph.native, names, [], fed)]


def _batched(tensors, batch_size, enqueue_many, allow_smaller, draw, name):
    structure = tensors
    keys = sorted(tensors) if isinstance(tensors, dict) else None
    flat = [tensors[key] for key in keys] if keys else list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    graph = default_graph()
    flat = [graph.convert(each) for each in flat]
    elements = _Elements(graph, flat)
    shapes = [list(each.shape[1:] if enqueue_many else each.shape) for each in flat]
    first = None if allow_smaller else batch_size
    made = [placeholder(name, [first, *shape], each.dtype) for each, shape in zip(flat, shapes)]

    def rows():
        for element in elements:
            if enqueue_many:
                yield from ([part[i] for part in element] for i in range(len(element[0])))
            else:
                yield element

    def batches():
        batch = []
        for row in draw(rows()):
            batch.append(row)
            if len(batch) == batch_size:
                yield [_stack(each, tensor) for each, tensor in zip(zip(*batch), flat)]
                batch = []
        if batch and allow_smaller:
            yield [_stack(each, tensor) for each, tensor in zip(zip(*batch), flat)]

    _Source(graph, made, batches)
    if keys:
        return dict(zip(keys, made))
    return made if isinstance(structure, (list, tuple)) and len(made) > 1 else made[0]


def _stack(values, tensor):
    if tensor.dtype == dtypes.string:
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
        return to_native(array if not isinstance(values[0], np.ndarray) else np.stack(values))
    return to_native(np.stack(values))


def string_input_producer(string_tensor, num_epochs=None, shuffle=True, seed=None, capacity=32, name=None, **_):
    """File names for a reader, shuffled in each epoch (in Braid's order, not TensorFlow's)."""
    if isinstance(string_tensor, Tensor):
        value = string_tensor.graph.native.known_value(string_tensor.node, string_tensor.index)
        string_tensor = list(from_native(value)) if value is not None else []
    return _Names([string_tensor] if isinstance(string_tensor, (str, bytes)) else string_tensor, num_epochs, shuffle, seed)


def batch(tensors, batch_size, num_threads=1, capacity=32, enqueue_many=False, shapes=None, dynamic_pad=False,
          allow_smaller_final_batch=False, name=None, **_):
    """Batches of `batch_size` elements, in their order."""
    return _batched(tensors, batch_size, enqueue_many, allow_smaller_final_batch, iter, name or "batch")


def shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, num_threads=1, seed=None, enqueue_many=False,
                  shapes=None, allow_smaller_final_batch=False, name=None, **_):
    """Batches of elements that are drawn from `capacity` waiting ones (in Braid's order, not TensorFlow's)."""

    def draw(rows):
        order, waiting = random.Random(1 if seed is None else seed), []
        for row in rows:
            waiting.append(row)
            if len(waiting) >= capacity:
                yield waiting.pop(order.randrange(len(waiting)))
        order.shuffle(waiting)
        yield from waiting

    return _batched(tensors, batch_size, enqueue_many, allow_smaller_final_batch, draw, name or "shuffle_batch")
