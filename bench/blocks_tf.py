"""Reads train.tfrecord and train.tsv of blocks.py by tf.data on one thread: records alone, records parsed into the 40 features
in batches of 2048, and lines as 40 columns. A JSON line each; rates are by the CPU time of the process.

    python blocks_tf.py DIR [ROUNDS]
"""
import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
numbers = [f"I{i}" for i in range(1, 14)]
words = [f"C{i}" for i in range(1, 27)]
features = {name: tf.io.FixedLenFeature([], tf.int64, -1) for name in ["label", *numbers]}
features |= {name: tf.io.FixedLenFeature([], tf.string, "") for name in words}
options = tf.data.Options()
options.threading.private_threadpool_size = 1
options.autotune.enabled = False


def cpu():
    return sum(os.times()[:2])


def measure(what, name, make):
    file = os.path.join(folder, name)
    rates = []
    for _ in range(rounds):
        begin, rows = cpu(), 0
        for batch in make(file).with_options(options):
            rows += int(tf.shape(tf.nest.flatten(batch)[0])[0])
        rates.append((cpu() - begin, rows))
    seconds, rows = sorted(rates)[len(rates) // 2]
    print(json.dumps({"bench": "tf.data", "format": what, "rows": rows, "rows_per_s": round(rows / seconds),
                      "mb_per_s": round(os.path.getsize(file) / 1e6 / seconds, 1)}), flush=True)


measure("tfrecord framing", "train.tfrecord", lambda file: tf.data.TFRecordDataset(file).batch(2048))
measure("tfrecord", "train.tfrecord",
        lambda file: tf.data.TFRecordDataset(file).batch(2048).map(lambda x: tf.io.parse_example(x, features)))
defaults = [tf.constant([-1], tf.int64)] * 14 + [tf.constant([""], tf.string)] * 26
measure("criteo", "train.tsv",
        lambda file: tf.data.experimental.CsvDataset(file, defaults, field_delim="\t").batch(2048))
