"""What sources that take arrays of strings share: text is made into numbers row by row, once for all rows."""

import numpy as np

from braid import _braid

ROWS = 4096  # that are computed at a time


def is_text(values):
    """Whether an array is of strings."""
    if values.dtype.kind in "US":
        return True
    return values.dtype.kind == "O" and values.size > 0 and isinstance(values.reshape(-1)[0], (str, bytes))


def no_rows(name, shape):
    """The error of a value made of strings that has not one row for each row of the text."""
    return _braid.InvalidArgument(f"'{name}' follows from strings and is no value for each row: {shape}. Text is made into "
                                  "numbers row by row")


def by_rows(rows, names, compute):
    """An array of all rows for each of `names`. compute(slice) gives those of some rows, in the order of `names`. Throws:
    InvalidArgument for one whose rows have several sizes."""
    parts = [[] for _ in names]
    for first in range(0, rows, ROWS):
        for part, value in zip(parts, compute(slice(first, first + ROWS))):
            part.append(np.asarray(value))
    for name, part in zip(names, parts):
        if len({each.shape[1:] for each in part}) != 1:
            raise _braid.InvalidArgument(f"'{name}' has rows of other sizes for other rows of text: give its layer a "
                                         "length (TextVectorization: output_sequence_length)")
    return [np.concatenate(part) for part in parts]
