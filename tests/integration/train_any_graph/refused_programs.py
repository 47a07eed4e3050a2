"""Graphs that cannot be trained, and the words with which `braid graph check --train` must refuse them."""

import dataclasses
from typing import Callable

import tensorflow as tf
from tf1_programs import variable

tf1 = tf.compat.v1


@dataclasses.dataclass
class RefusedProgram:
    """build() makes a graph with the node "loss"; `says` is what `braid graph check --train` answers."""

    name: str
    says: str
    build: Callable
    flags: tuple = ()

    def export(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        graph = tf1.Graph()
        with graph.as_default():
            tf1.enable_resource_variables()
            tf.identity(self.build(), name="loss")
        (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        return folder / "graph.pb"


def safe_lookup():
    ids = tf1.sparse_placeholder(tf.int64, name="ids")
    return tf.reduce_mean(tf.nn.safe_embedding_lookup_sparse([variable("table", [10, 4])], ids))


def own_gradient():
    @tf.custom_gradient
    def act(x):
        return tf.square(x), lambda dy: 7.0 * dy

    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    return tf.reduce_mean(act(tf.matmul(x, variable("w", [3, 1]))))


def data_decides():
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    w = variable("w", [3, 3])
    return tf.reduce_mean(tf.while_loop(lambda v: tf.reduce_sum(v) < 10.0, lambda v: tf.matmul(v, w), [x])[0])


def word2vec():
    ids, labels = tf1.placeholder(tf.int64, [None], name="ids"), tf1.placeholder(tf.int64, [None, 1], name="labels")
    rows = tf.nn.embedding_lookup(variable("table", [50, 8]), ids)
    sampled = tf.random.learned_unigram_candidate_sampler(labels, 1, 4, True, 50)
    return tf.reduce_mean(tf.nn.nce_loss(variable("nce", [50, 8]), variable("nce_bias", [50]), labels, rows, 4, 50, sampled_values=sampled))


def adam_of_tables():
    ids = tf1.placeholder(tf.int64, [None], name="ids")
    loss = tf.reduce_mean(tf.nn.embedding_lookup(variable("table", [50, 8]), ids))
    tf1.train.AdamOptimizer().minimize(loss, name="train")
    return loss


def strings():
    words = tf1.placeholder(tf.string, [None], name="words")
    ids = tf.strings.to_hash_bucket_fast(words, 50)
    return tf.reduce_mean(tf.nn.embedding_lookup(variable("table", [50, 8]), ids))


PROGRAMS = [
    RefusedProgram("ids_fed_as_a_sparse_tensor", "its size or value follows from data", safe_lookup),
    RefusedProgram("custom_gradient", "has a gradient of its own", own_gradient),
    RefusedProgram("while_of_data", "how often the loop turns does not follow from the graph", data_decides),
    RefusedProgram("word2vec_nce", "[LearnedUnigramCandidateSampler]", word2vec),
    RefusedProgram("keep_adam_of_tables", "it changes 'table'", adam_of_tables, ("--train-op", "train")),
    RefusedProgram("strings", "'words' takes strings", strings),
]
