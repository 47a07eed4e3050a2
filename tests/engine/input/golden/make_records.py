"""Makes examples.json beside this file: tf.train.Examples, and the bytes of the TFRecord files, plain and gzip, that
TensorFlow 2.15.1 wrote of them, in hexadecimal.

Usage: python3 make_records.py. example_test.cc reads the files and compares.
"""

import json
import os
import pathlib
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tensorflow as tf

# Integers as text: JSON's may lose bits.
RECORDS = [
    {"id": ["0"], "score": [0.5, -1.25], "word": ["one"]},
    {"id": ["-6519408338692630574", "1"], "score": [], "word": ["", "zwei", "drei"]},
    {"id": ["9223372036854775807"], "score": [3.0e38], "word": []},
    {"id": [], "score": [-0.0, 1e-40], "word": ["x" * 300]},
]


def example(record):
    return tf.train.Example(features=tf.train.Features(feature={
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, record["id"]))),
        "score": tf.train.Feature(float_list=tf.train.FloatList(value=record["score"])),
        "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[w.encode() for w in record["word"]])),
    })).SerializeToString()


def written(compression):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "records")
        with tf.io.TFRecordWriter(file, tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for record in RECORDS:
                writer.write(example(record))
        return pathlib.Path(file).read_bytes().hex()


result = {"tensorflow": tf.__version__, "records": RECORDS, "plain": written(""), "gzip": written("GZIP")}
(pathlib.Path(__file__).parent / "examples.json").write_text(json.dumps(result, indent=1) + "\n")
