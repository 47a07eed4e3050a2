"""Ragged inputs of Keras models. A column of rows of different lengths feeds two placeholders: its rows filled to one
length, and how many elements count. Within the traced graph these become a tf.RaggedTensor again, by choosing what counts:
sizes that follow from data, of which the trainer knows the bound."""

import contextlib

import numpy as np

from braid import _braid
from braid.data import Ragged


def lengths_of(column):
    """The name of the column that has the lengths of a ragged one."""
    return f"{column}_lengths"


def as_columns(arrays, lengths):
    """The columns, with ragged ones as two. lengths: {column: what its rows are filled to}."""
    made = {}
    for name, value in arrays.items():
        if name not in lengths:
            made[name] = value
            continue
        rows = value if isinstance(value, Ragged) else Ragged(value)
        if rows.longest > lengths[name]:
            raise _braid.InvalidArgument(f"column '{name}' has a row of {rows.longest} elements, and the model was made for "
                                         f"{lengths[name]} at most: bd.data.ragged(rows, length={rows.longest}) in its data")
        made[name], made[lengths_of(name)] = rows.filled(lengths[name]), rows.lengths
    return made


class RaggedInputs:
    """The ragged tensors of a graph that is traced, and what is asked of them there that has no known size."""

    def __init__(self, tf):
        self._tf, self._of = tf, {}  # by the reference of the row splits: row ids, places, shape of the filled rows

    def tensor(self, filled, lengths):
        """A RaggedTensor of what counts in `filled` [rows, length]."""
        tf = self._tf
        shape = tf.shape(filled, tf.int64)
        counts = tf.range(shape[1])[None, :] < lengths[:, None]
        places = tf.where(tf.reshape(counts, [-1]))[:, 0]
        row_of = tf.reshape(tf.zeros_like(counts, tf.int64) + tf.range(shape[0])[:, None], [-1])
        made = tf.RaggedTensor.from_row_lengths(tf.gather(tf.reshape(filled, [-1]), places), lengths, validate=False)
        self._of[made.row_splits.ref()] = (tf.gather(row_of, places), places, shape, counts)
        return made

    @contextlib.contextmanager
    def traced(self):
        """Within, rows are known by what chose them; TensorFlow would compute them anew from where rows end."""
        from tensorflow.python.ops.ragged import segment_id_ops
        ids, dense, known = segment_id_ops.row_splits_to_segment_ids, self._tf.RaggedTensor.to_tensor, self._of

        def row_ids(splits, *args, **kwargs):
            found = known.get(splits.ref()) if self._tf.is_tensor(splits) else None
            return found[0] if found else ids(splits, *args, **kwargs)

        def to_tensor(ragged, default_value=None, name=None, shape=None):
            found = known.get(ragged.row_splits.ref())
            return self._dense(ragged, default_value, shape, found) if found else dense(ragged, default_value, name, shape)

        segment_id_ops.row_splits_to_segment_ids, self._tf.RaggedTensor.to_tensor = row_ids, to_tensor
        try:
            yield
        finally:
            segment_id_ops.row_splits_to_segment_ids, self._tf.RaggedTensor.to_tensor = ids, dense

    def _dense(self, ragged, default, shape, known):
        tf = self._tf
        _, places, size, counts = known
        width = None if shape is None else tf.TensorShape(shape).as_list()[1]
        if width is None:
            raise _braid.InvalidArgument("to_tensor() of a ragged input is as wide as the batch's longest row, a size that "
                                         "follows from data: to_tensor(shape=[None, length])")
        values, most = ragged.flat_values, counts.shape[1]
        rest = values.shape[1:]
        full = tf.math.unsorted_segment_sum(values, places, size[0] * size[1])
        full = tf.reshape(full, tf.concat([size, tf.constant(rest.as_list(), tf.int64)], 0)) if rest.rank else tf.reshape(
            full, size)
        default = tf.cast(0 if default is None else default, values.dtype)
        full = tf.where(tf.reshape(counts, tf.concat([size, tf.ones([rest.rank], tf.int64)], 0)), full, default)
        if width <= most:
            return full[:, :width]
        ends = [[0, 0], [0, width - most]] + [[0, 0]] * rest.rank
        return tf.pad(full, ends, constant_values=default)


def spec_of(tf, column, rows, dtype=None):
    """TensorSpecs of the two placeholders of a ragged column."""
    kind = np.dtype(rows.kind)
    if kind.kind not in "fiub":
        raise _braid.InvalidArgument(f"column '{column}' is ragged and of text: make numbers of its texts before, as with "
                                     "keras.layers.StringLookup(...)(rows)")
    dtype = dtype or (tf.float32 if kind.kind == "f" else tf.int64)
    return [(column, tf.TensorSpec([None, rows.length], dtype, name=f"in_{column}")),
            (lengths_of(column), tf.TensorSpec([None], tf.int64, name=f"in_{lengths_of(column)}"))]
