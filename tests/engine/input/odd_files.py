"""Odd small files, read whole and as a stream, beside what they hold as pyarrow and Python's csv read them.

    odd_files.py PRINT_ROWS

A case has the values that a column must have, or says that the file must be refused: nothing may be read as
something else without a word. Texts are compared by the hash that docs/user/data.md has. Exit code 77: no pyarrow.
"""
import csv
import datetime
import decimal
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    print("SKIPPED: no pyarrow")
    sys.exit(77)

csv.field_size_limit(1 << 24)
MISSING = -777.0
REFUSED = "refused"
cases = []


def stable_hash(text):
    h = 0xCBF29CE484222325
    for byte in text:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    h = (h ^ h >> 27) * 0x94D049BB133111EB % 2**64
    return (h ^ h >> 31) % 2**61


def lines(text, expected, columns=("x:n", "c:c"), form="csv"):
    cases.append((form, text if isinstance(text, bytes) else text.encode(), columns, expected))


def parquet(array, expected, column="x:n", **options):
    table = array if isinstance(array, pa.Table) else pa.table({"x": array, "c": pa.array(["a"] * len(array))})
    columns = (column,) if isinstance(array, pa.Table) else (column, "c:c")
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    cases.append(("parquet", out.getvalue(), columns, expected))


def as_csv(text):
    """Numbers and words as Python's csv has them."""
    rows = list(csv.reader(io.StringIO(text)))
    lines(text, {"x": [float(row[0]) for row in rows if row], "c": [row[1] for row in rows if row]})


def texts():
    for text in ("1,a\n2,b\n", "1,a\r\n2,b\r\n", '1,"a\nb"\n2,c\n', '1,"a\r\nb"\n2,c\r\n', '1,"a""b"\n', "1,a\"b\n",
                 "1,a\n2,b", "\n1,a\n\n2,b\n\n", "\r\n1,a\r\n", '1," a "\n', '1,"a,b"\n', '1,""\n', "1,münchen\n2,東京\n",
                 "1,007\n", "007,a\n", ".5,a\n5.,a\n", "1e-400,a\n-0,a\n", "1e30,a\n1" + "0" * 30 + ",b\n",
                 "0." + "123456789" * 9 + ",a\n", "".join(f'{i},"a\n\n{i}"\n' for i in range(50)),
                 "1," + "z" * (1 << 20) + "\n2,b\n", "+5,a\n"):
        as_csv(text)
    lines("\ufeff1,a\n2,b\n", {"x": [1, 2], "c": ["a", "b"]})
    lines("\ufeff", {"x": []})
    lines("\ufeff\n1,a\n", {"x": [1]})
    lines("", {"x": []})
    for text in ("x,c\n", "x,c", "\ufeffx,c\n"):
        lines(text, {"x": []}, form="csv_header")
    for text in ("\ufeffx,c\n1,a\n", '\ufeff"x","c"\n1,a\n', "c,x\na,1\n", "x,z,z,c\n1,2,3,a\n", "\nx,c\n\n1,a\n"):
        lines(text, {"x": [1], "c": ["a"]}, form="csv_header")
    for text in ("x,x,c\n1,2,a\n", "X,c\n1,a\n", "x\n1\n"):
        lines(text, REFUSED, form="csv_header")
    lines(",a\n?,b\n\"\",c\n", {"x": [MISSING] * 3, "c": ["a", "b", "c"]})
    lines("  1 , a b \n", {"x": [1], "c": ["a b"]})
    lines(b"1,a\x00b\n2,\xe9\n", {"c": [b"a\x00b", b"\xe9"]})
    for number in ("1e400", "-1e400", "1e39", "0x10", "1_000", '"1,000"', "inf", "nan", "NA", "null", "true", "1e", "--1", "+-1",
                   "1 2", "1f", "1d5", "１", "\u00a01", "−1", "1;a", "1.2.3", "$1", "1%"):
        lines(number + ",a\n", REFUSED)
    for text in ("1,a\r2,b\r", '1,"a\n2,b\n', '1,"a"b\n', "1,a\n   \n2,b\n", "1,a\n2\n", "1,a,9\n", "1,a,\n", "1;a\n", "1,a\n\x1a",
                 b"\0" * 100, "1,a\n2,b\n".encode("utf-16")):
        lines(text, REFUSED)
    for number in ("nan", "inf", "", "yes"):
        lines(number + ",a\n", REFUSED, ("y:l", "c:c"))
    for number in ("1.5", "9223372036854775808", "", "a"):
        lines(number + ",a\n", REFUSED, ("y:k", "c:c"))
    lines("1099511627776,a\n", {"label": [1 << 40]}, ("y:k", "c:c"))
    for number in ("-1", "nan", "inf", ""):
        lines("1," + number + "\n", REFUSED, ("y:l", "w:w"))
    lines("1||3\n|2\n\n?|5|6|7\n", {"x": [1, MISSING, 3, MISSING, 2, MISSING, MISSING, 5, 6]}, ("x:n:3",))
    lines("a||b\n|\n", {"x/x": ["a", "b"], "x/x@": [0, 2, 2]}, ("x:c:r",))
    lines(b"\xef\xbb\xbfhello\r\nworld\r\n\r\n", {"line": ["hello", "world", ""]}, ("line:c",), "text")


def packed():
    good = gzip.compress(b"1,a\n2,b\n")
    lines(good, {"x": [1, 2]})
    lines(gzip.compress(b"1,a\n") + gzip.compress(b"2,b\n"), {"x": [1, 2]})
    noise = gzip.compress(b"1," + os.urandom(4000).hex().encode() + b"\n")
    for cut in (len(noise) // 2, len(noise) - 1, len(noise) - 8, 30):
        lines(noise[:cut], REFUSED)
    lines(good + b"garbage", REFUSED)
    lines(good[:-8] + bytes([good[-8] ^ 1]) + good[-7:], REFUSED)


def parquet_types():
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        parquet(pa.array([1, 2, None], kind), {"x": [1, 2, MISSING]})
        parquet(pa.array([1, 2, None], kind), {"x": ["1", "2", ""]}, "x:c")
    large = pa.array([2**64 - 1], pa.uint64())
    parquet(large, {"x": [str(2**64 - 1)]}, "x:c")
    parquet(large, {"x": [2.0**64]})
    parquet(large, REFUSED, "x:k")
    parquet(pa.array([2**32 - 1], pa.uint32()), {"x": [2.0**32]})
    parquet(pa.array([[2**32 - 1]], pa.list_(pa.uint32())), {"x": [2.0**32, MISSING]}, "x:n:2")
    parquet(pa.array([[2**64 - 1]], pa.list_(pa.uint64())), {"x": [2.0**64, MISSING]}, "x:n:2")
    parquet(pa.array([np.float16(1.5), np.float16(-2)], pa.float16()), {"x": [1.5, -2]})
    parquet(pa.array([1.5, float("nan"), None], pa.float32()), {"x": [1.5, MISSING, MISSING]})
    for number in (float("inf"), 1e300):
        parquet(pa.array([number]), REFUSED)
    parquet(pa.array([True, False, None]), {"x": [1, 0, MISSING]})
    for text, kind in (("1.25", pa.decimal128(10, 2)), ("-1.25", pa.decimal128(38, 10)), ("1.25", pa.decimal128(5, 2)),
                       ("123456789012345678901234567890.5", pa.decimal256(50, 2))):
        parquet(pa.array([decimal.Decimal(text), None], kind), {"x": [float(text), MISSING]})
    parquet(pa.array([decimal.Decimal("1.25")], pa.decimal128(5, 2)), {"x": [1.25]}, store_decimal_as_integer=True)
    parquet(pa.array([datetime.date(1970, 1, 3)]), {"x": [2]})
    second = datetime.datetime(1970, 1, 1, 0, 0, 5)
    parquet(pa.array([second], pa.timestamp("us")), {"x": [5e6]})
    parquet(pa.array([second], pa.timestamp("ms", tz="Europe/Berlin")), {"x": [5e3]})
    parquet(pa.array([datetime.time(0, 0, 5)], pa.time32("ms")), {"x": [5e3]})
    for words in (pa.array(["a", "ü", None, ""]), pa.array(["a", "ü", None, ""], pa.large_string()),
                  pa.array(["a", "ü", None, ""], pa.string_view()), pa.array(["a", "ü", None, ""]).dictionary_encode()):
        parquet(words, {"x": ["a", "ü", "", ""]}, "x:c")
    parquet(pa.array([b"a\xff", None], pa.binary()), {"x": [b"a\xff", ""]}, "x:c")
    parquet(pa.array([b"ab", None], pa.binary(2)), {"x": ["ab", ""]}, "x:c")
    parquet(pa.nulls(2), {"x": [MISSING] * 2})
    for array, column in ((pa.array(["1", "x"]), "x:n"), (pa.array(["1", "x"]), "x:l"), (pa.array([1.5]), "x:c"),
                          (pa.array([decimal.Decimal("1.25")], pa.decimal128(5, 2)), "x:c"), (pa.array([1.5]), "x:k"),
                          (pa.array([1.0, None]), "x:l"), (pa.array([float("nan")]), "x:l"), (pa.array([float("inf")]), "x:l"),
                          (pa.array([1, None]), "x:k"), (pa.array([1.0, None]), "x:w"), (pa.array([float("nan")]), "x:w"),
                          (pa.array([-1.0]), "x:w"), (pa.array([{"a": 1}]), "x:n"), (pa.array([[1, 2]]), "x:c"),
                          (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "x:c:r"), (pa.array([[[1]]]), "x:c:r"),
                          (pa.array([[{"a": 1}]]), "x:c:r")):
        parquet(array, REFUSED, column)


def parquet_lists():
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64())):
        parquet(pa.array([[1, 2], [], None, [3]], kind), {"x/x": ["1", "2", "3"], "x/x@": [0, 2, 2, 2, 3]}, "x:c:r")
    parquet(pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), {"x/x": ["1", "2", "3", "4"], "x/x@": [0, 2, 2, 4]}, "x:c:r")
    parquet(pa.array([[1.0], [3.0, 4.0], None, []]), {"x": [1, MISSING, 3, 4] + [MISSING] * 4}, "x:n:2")
    for kind in (pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.uint8(), pa.decimal128(5, 0), pa.float16()):
        values = [[1, None, 3], [None], None, [None, 5]]
        if kind == pa.decimal128(5, 0):
            values = [v and [i and decimal.Decimal(i) for i in v] for v in values]
        if kind == pa.float16():
            values = [v and [i and np.float16(i) for i in v] for v in values]
        parquet(pa.array(values, pa.list_(kind)), {"x": [1, MISSING, 3] + [MISSING] * 7 + [5, MISSING]}, "x:n:3")
    parquet(pa.array([[1.0, float("nan"), 3.0]]), {"x": [1, MISSING, 3]}, "x:n:3")
    parquet(pa.array([["a", "b"], ["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))), {"x/x": ["a", "b", "a"]}, "x:c:r")
    parquet(pa.array([[True, False]]), {"x/x": ["1", "0"]}, "x:c:r")
    rows = [None if i % 7 == 0 else [None if j == 2 else i + j for j in range(i % 5)] for i in range(2000)]
    flat = [MISSING if row is None or j >= len(row) or row[j] is None else row[j] for row in rows for j in range(4)]
    parquet(pa.array(rows), {"x": flat}, "x:n:4", row_group_size=13, data_page_size=64)


def parquet_files():
    def groups(tables, column, expected):
        out = io.BytesIO()
        with pq.ParquetWriter(out, tables[0].schema) as writer:
            for table in tables:
                writer.write_table(table)
        cases.append(("parquet", out.getvalue(), (column,), expected))

    def of(values, kind=None):
        return pa.table({"x": pa.array(values, kind)})

    groups([of([1]), of([], pa.int64()), of([2])], "x:n", {"x": [1, 2]})
    groups([pa.table({"x": pa.array(words).dictionary_encode()}) for words in (["a", "b", "a"], ["z", "b"])], "x:c",
           {"x": ["a", "b", "a", "z", "b"]})
    many = [str(i) for i in range(3000)]
    parquet(of(many), {"x": many}, "x:c")
    numbers = list(range(1000))
    for options in ({"compression": c} for c in ("snappy", "gzip", "zstd", "lz4", "brotli", "none")):
        parquet(of(numbers), {"x": numbers}, **options)
    for encoding in ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"):
        parquet(of(numbers), {"x": numbers}, use_dictionary=False, column_encoding={"x": encoding})
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        parquet(of(many), {"x": many}, "x:c", use_dictionary=False, column_encoding={"x": encoding})
    parquet(of([1, None, 3]), {"x": [1, MISSING, 3]}, data_page_version="2.0")
    parquet(of(numbers), {"x": numbers}, data_page_size=100, row_group_size=77)
    parquet(pa.table([[1, 2], [3, 4]], names=["x", "x"]), REFUSED)
    parquet(pa.table([[1, 2], [3, 4], [5, 6]], names=["x", "z", "z"]), {"x": [1, 2]})
    parquet(pa.table({"a.b": [1, 2]}), {"a.b": [1, 2]}, "a.b:n")
    parquet(pa.table({"a": [{"b": 1}]}), REFUSED, "a.b:n")
    parquet(pa.table({"X": [1]}), REFUSED)
    out = io.BytesIO()
    pq.write_table(of(numbers), out, write_page_checksum=True, compression="none", use_dictionary=False)
    whole = out.getvalue()
    for damaged in (whole[: len(whole) // 2], whole[:-1], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        cases.append(("parquet", damaged, ("x:n",), REFUSED))


def differs(expected, got):
    if expected == REFUSED:
        return None if "error" in got else f"was read: {str(got)[:150]}"
    if "error" in got:
        return got["error"][:200]
    for name, values in expected.items():
        has = got["columns"].get(name)
        word = name.split("/")[-1].rstrip("@").encode() + b"="
        wanted = [stable_hash(word + (v if isinstance(v, bytes) else v.encode())) if isinstance(v, (str, bytes)) else v for v in values]
        if not values and not has:
            continue
        if has is None or len(has) != len(wanted):
            return f"'{name}' has {str(has)[:100]}, not {str(values)[:100]}"
        for a, b in zip(has, wanted):
            if a != b and not (isinstance(b, float) or isinstance(a, float)) or abs(a - b) > 1e-6 * max(1, abs(b)):
                return f"'{name}' has {str(has)[:100]}, not {str(values)[:100]}"
    return None


def main():
    for part in (texts, packed, parquet_types, parquet_lists, parquet_files):
        part()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (form, content, columns, expected) in enumerate(cases):
            file = os.path.join(folder, f"{number}.{form}")
            with open(file, "wb") as out:
                out.write(content)
            ran = subprocess.run([sys.argv[1], form, file, *columns], capture_output=True, text=True)
            answers = ran.stdout.splitlines() if ran.returncode == 0 else []
            if answers and all("no Apache Arrow" in answer or "needs a build" in answer for answer in answers):
                continue
            problems = [differs(expected, json.loads(answer)) for answer in answers] or [f"exit code {ran.returncode}: {ran.stderr[-200:]}"]
            for how, problem in zip(("whole", "as a stream"), problems):
                if problem:
                    wrong += 1
                    print(f"case {number} {form} {columns} {content[:60]} {how}: {problem}")
    print(f"{len(cases)} files, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
