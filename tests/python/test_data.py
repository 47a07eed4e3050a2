"""Data: arrays as columns, and what is refused of them."""

import numpy as np
import pytest

import braid as bd
from braid import _braid


def test_columns_of_arrays_keep_their_memory():
    value = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    before = _braid.bytes_in()
    rows = bd.data.arrays(x=value).rows()
    assert _braid.bytes_in()[0] - before[0] == value.nbytes and len(rows) == 1000
    assert rows.arrays()["x"].ctypes.data == value.ctypes.data


def test_other_types_become_the_engines():
    rows = bd.data.arrays(a=np.ones(3), b=np.arange(3, dtype=np.int32), c=np.array([True, False, True])).rows()
    kinds = {name: value.dtype for name, value in rows.arrays().items()}
    assert kinds == {"a": np.float32, "b": np.int64, "c": np.int64}


def test_halves_and_uint64_become_the_engines():
    values = np.arange(12).reshape(4, 3)
    made = bd.data.arrays(half=(values / 8).astype("f2"), large=values.astype("u8")).rows().arrays()
    assert made["half"].dtype == np.float32 and made["large"].dtype == np.int64
    np.testing.assert_array_equal(made["half"], values / 8)
    np.testing.assert_array_equal(made["large"], values)
    with pytest.raises(bd.InvalidArgument, match="array 'large': 18446744073709551615 is beyond int64"):
        bd.data.arrays(large=np.full(4, -1).view("u8")).rows()


def test_masked_values_are_refused():
    masked = np.ma.masked_array(np.ones(3), [False, True, False])
    with pytest.raises(bd.InvalidArgument, match="array 'x' is masked"):
        bd.data.arrays(x=masked)
    assert len(bd.data.arrays(x=np.ma.masked_array(np.ones(3))).rows()) == 3


def test_arrays_must_have_as_many_rows():
    with pytest.raises(bd.InvalidArgument, match="'b' has 2 rows, 'a' 3"):
        bd.data.arrays(a=np.ones(3), b=np.ones(2)).rows()


def test_views_and_other_orders_are_taken():
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows = bd.data.arrays(x=value.T, y=value.T[:, ::2]).rows()
    np.testing.assert_array_equal(rows.arrays()["x"], value.T)


def test_a_trainer_needs_batches():
    with pytest.raises(bd.InvalidArgument, match="batch"):
        bd.Trainer(lambda x, t: None, bd.data.arrays(x=np.ones(3)), bd.optim.SGD())


def test_generator_of_rows():
    data = bd.data.generator(({"x": np.float32(i), "y": np.ones(2, np.float32)} for i in range(5)))
    assert len(data.rows()) == 5 and data.rows().arrays()["y"].shape == (5, 2)


def test_rows_of_different_lengths_are_padded():
    made = bd.data.padded([[1, 2, 3], [], [4]])
    assert made.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]] and made.dtype == np.int64
    assert bd.data.padded([[1, 2, 3], [4]], length=2, value=-1).tolist() == [[1, 2], [4, -1]]
    assert bd.data.padded([np.array([0.5], np.float32)], length=2).dtype.kind == "f"
    assert bd.data.padded([]).shape == (0, 0)
    for rows in ([[1, 2], [3]], np.array([[1, 2], [3]], dtype=object)):
        with pytest.raises(bd.InvalidArgument, match="array 'ids' has rows of different lengths: bd.data.padded"):
            bd.data.arrays(ids=rows)
