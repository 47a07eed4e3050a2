#!/usr/bin/env python3
"""Predicts raw rows with NumPy alone, from a checkpoint's exported weights, and compares with `braid predict`.

    predictions_by_numpy.py --format csv|tsv|criteo|tfrecord|criteo_tfrecord --rows FILE --weights W.npz
                            --predictions P.csv [--tolerance 1e-6]

The model is wide_deep. What becomes of a field (hashes, vocabularies, scales) is written down here once more, as
docs/user/data.md says it. SCHEMA is that of the job in predict_test.cc. Prints the rows and the largest
difference; ends with 1 where rows are not as many, or differ by more than the tolerance."""
import argparse
import csv
import struct
import sys

import numpy as np

MASK = 2**64 - 1

# name, kind, how
SCHEMA = [("id", "skip", {}), ("age", "number", {"shift": 40.0, "scale": 12.5}),
          ("income", "number", {"log1p": True, "scale": 3.0, "missing": 50.0}),
          ("city", "category", {"buckets": 50}),
          ("device", "category", {"vocabulary": ["phone", "tablet"], "buckets": 5}),
          ("clicked", "skip", {})]


def stable_hash(text):  # FNV-1a, then SplitMix64's finaliser
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


def text_of(value):
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)


def numbers_and_ids(record):
    numbers, ids = [], []
    for name, kind, how in SCHEMA:
        text = text_of(record.get(name))
        if kind == "number":
            x = how.get("missing", 0.0) if text in ("", "?") else float(text)
            if how.get("log1p"):
                x = np.log1p(max(x, 0.0))
            numbers.append((x - how.get("shift", 0.0)) / how.get("scale", 1.0))
        elif kind == "category":
            words = how.get("vocabulary", [])
            ids.append(words.index(text) if text in words
                       else len(words) + stable_hash(f"{name}={text}") % how["buckets"])
    return numbers, ids


def criteo_numbers_and_ids(record, buckets):
    numbers = []
    for i in range(1, 14):
        text = text_of(record.get(f"I{i}"))
        numbers.append(np.log1p(max(np.float32(text or 0), np.float32(0))))
    ids = []
    for c in range(26):
        value = record.get(f"C{c + 1}")
        text = text_of(value)
        if text == "":
            ids.append(0)
            continue
        if isinstance(value, int):
            h = value & MASK
        else:
            h = int(text, 16) if all(x in "0123456789abcdefABCDEF" for x in text) else stable_hash(text)
        h = (h ^ (c + 1) * 0x9E3779B97F4A7C15 & MASK) * 0xBF58476D1CE4E5B9 & MASK
        h ^= h >> 31
        ids.append(1 + h % (buckets - 1))
    return numbers, ids


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif key & 7 == 5:
            yield key >> 3, data[at:at + 4]
            at += 4
        else:
            raise ValueError(f"wire type {key & 7}")


def first_value(feature):
    for kind, values in fields(feature):
        for number, value in fields(values):
            if number != 1:
                continue
            if kind == 1:
                return value.decode()
            if kind == 2:
                return float(struct.unpack("<f", value[:4])[0])
            if not isinstance(value, int):
                value = varint(value, 0)[0]
            return value - 2**64 if value >= 2**63 else value
    return None


def tfrecords(name):
    with open(name, "rb") as file:
        while head := file.read(12):
            example = file.read(struct.unpack("<Q", head[:8])[0])
            file.read(4)
            record = {}
            for _, features in fields(example):
                for _, entry in fields(features):
                    pair = dict(fields(entry))
                    record[pair[1].decode()] = first_value(pair.get(2, b""))
            yield record


def records(options):
    if options.format.endswith("tfrecord"):
        yield from tfrecords(options.rows)
        return
    with open(options.rows, newline="", encoding="utf-8") as file:
        if options.format == "criteo":
            for row in csv.reader(file, delimiter="\t"):
                row = row[-39:]  # with or without a label
                yield dict(zip([f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)], row))
        else:
            yield from csv.DictReader(file, delimiter="," if options.format == "csv" else "\t")


def table(weights, part, column, name):
    for candidate in (f"{part}/c{column}/table", f"{part}/{name}/table"):
        if candidate in weights:
            return weights[candidate].astype(np.float64)
    raise KeyError(f"no table of column {column} ({name}) among {sorted(weights)}")


def predict(weights, numbers, ids, names):
    dense = np.asarray(numbers, np.float32).astype(np.float64)
    weight = {name: array.astype(np.float64) for name, array in weights.items()}
    wide = dense @ weight["wide/dense/kernel"] + weight["wide/dense/bias"]
    parts = [dense]
    for c, name in enumerate(names):
        wide = wide + table(weights, "wide", c, name)[ids[:, c]]
        parts.append(table(weights, "deep", c, name)[ids[:, c]])
    deep = np.concatenate(parts, 1)
    layer = 0
    while f"deep/mlp/layer{layer}/kernel" in weight:
        deep = np.maximum(deep @ weight[f"deep/mlp/layer{layer}/kernel"] + weight[f"deep/mlp/layer{layer}/bias"], 0)
        layer += 1
    logit = wide + deep @ weight["deep/logit/kernel"] + weight["deep/logit/bias"]
    return 1 / (1 + np.exp(-logit[:, 0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--predictions", required=True)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    weights = dict(np.load(options.weights))
    criteo = options.format.startswith("criteo")
    names = [f"C{c}" for c in range(1, 27)] if criteo else [n for n, kind, _ in SCHEMA if kind == "category"]
    buckets = len(table(weights, "deep", 0, names[0]))
    rows = [criteo_numbers_and_ids(r, buckets) if criteo else numbers_and_ids(r) for r in records(options)]
    expected = predict(weights, [n for n, _ in rows], np.asarray([i for _, i in rows]), names)
    with open(options.predictions, newline="", encoding="utf-8") as file:
        got = np.array([float(row["probability"]) for row in csv.DictReader(file)])
    if len(got) != len(expected):
        sys.exit(f"{len(expected)} rows, but {len(got)} predictions")
    difference = np.abs(got - expected).max()
    print(f"{len(got)} rows, spread {got.std():.4f}, largest difference {difference:.3g}")
    if not difference <= options.tolerance:
        sys.exit(f"differs by {difference:.3g}")


if __name__ == "__main__":
    main()
