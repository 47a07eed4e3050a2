"""Makes types.parquet with pyarrow 26.0.1: a column of each type that is read, and nulls; and dates.parquet, whose columns
records have all. parquet_files_test.cc has what is in them.   python3 make_parquet.py types.parquet dates.parquet"""
import datetime
import decimal
import sys

import pyarrow as pa
import pyarrow.parquet as pq

day = datetime.date(1970, 1, 11)
table = pa.table({
    "int8": pa.array([1, -2, None, 4], pa.int8()),
    "uint16": pa.array([1, 65535, 3, None], pa.uint16()),
    "uint32": pa.array([1, 4294967295, 3, 4], pa.uint32()),
    "int64": pa.array([1, -2, 9007199254740993, 4], pa.int64()),
    "uint64": pa.array([1, 18446744073709551615, None, 9223372036854775808], pa.uint64()),
    "half": pa.array([0.5, -2.0, 65504.0, 0.0]).cast(pa.float16()),
    "float": pa.array([0.5, None, float("nan"), 4], pa.float32()),
    "double": pa.array([0.5, -2, 3, 4], pa.float64()),
    "bool": pa.array([True, False, True, None], pa.bool_()),
    "date": pa.array([day, day, None, day], pa.date32()),
    "stamp": pa.array([0, 1_000_000, 2, 3], pa.timestamp("us")),
    "old": pa.array([-3_600_000, 0, 97_445_000, None], pa.timestamp("ms")),
    "edges": pa.array([0.7, 0.3, 0.1, None], pa.float64()),
    "epoch": pa.array([1772368231.0, 1772368231.0, 1772368300.0, None], pa.float64()),
    "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-2.50"), None, decimal.Decimal("0.01")],
                        pa.decimal128(20, 2)),
    "small_decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-7.5"), decimal.Decimal("0.0")],
                              pa.decimal128(5, 1)),
    "text": pa.array(["Rome", None, "", "Oslo"]),
    "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "binary": pa.array([b"\x00\x01", b"x", b"", None], pa.binary()),
    "fixed": pa.array([b"ab", b"cd", None, b"ef"], pa.binary(2)),
    "list": pa.array([[1, 2, 3], [], None, [4, None, 5]], pa.list_(pa.int64())),
    "floats": pa.array([[0.5], [1.5, 2.5], [], None], pa.list_(pa.float32())),
    "texts": pa.array([["a", "b"], ["c"], None, []], pa.list_(pa.string())),
    "nested": pa.array([[[1]], [], None, [[2, 3]]], pa.list_(pa.list_(pa.int64()))),
    "struct": pa.array([{"a": 1}] * 4),
    "structs": pa.array([[{"a": 1}]] * 4),
    "label": pa.array([1, 0, 0, 1], pa.int32()),
})
pq.write_table(table, sys.argv[1], row_group_size=3, compression="zstd", write_page_checksum=True)

dates = pa.table({
    "date": pa.array([datetime.date(2026, 3, 1), datetime.date(1969, 12, 31), None, day], pa.date32()),
    "days": pa.array([[datetime.date(2000, 2, 29), datetime.date(1900, 1, 1)], [], None, [datetime.date(1970, 1, 1)]],
                     pa.list_(pa.date32())),
})
pq.write_table(dates, sys.argv[2])
