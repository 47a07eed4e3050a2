"""Makes the golden files beside it: TensorFlow checkpoints and NumPy archives, written by TensorFlow 2.15.1 and NumPy 1.26.

Usage: python make.py. The values are those that tensor_bundle_test.cc and npz_test.cc expect.
"""

import os

import numpy as np
import tensorflow as tf

here = os.path.dirname(os.path.abspath(__file__))
v1 = tf.compat.v1

with tf.Graph().as_default(), v1.Session() as session:
    v1.disable_resource_variables()
    v1.get_variable("dense/kernel", initializer=np.arange(12, dtype=np.float32).reshape(3, 4) / 4)
    v1.get_variable("scalar", initializer=np.int64(-7))
    v1.get_variable("half", initializer=np.array([1.5, -2.0], np.float16))
    v1.get_variable("flags", initializer=np.array([True, False, True]))
    v1.get_variable("empty", initializer=np.zeros([0, 3], np.float32))
    v1.get_variable("text", initializer=tf.constant([["a", ""], ["long " * 40, "\0z"]]))
    v1.get_variable("parts", shape=[5, 3], partitioner=v1.fixed_size_partitioner(2, axis=0),
                    initializer=lambda shape, dtype, partition_info: tf.reshape(
                        tf.range(shape[0] * shape[1], dtype=tf.float32)
                        + 3.0 * partition_info.var_offset[0], shape))
    v1.get_variable("wide", shape=[2, 200], partitioner=v1.fixed_size_partitioner(2, axis=1),
                    initializer=lambda shape, dtype, partition_info: tf.fill(
                        shape, float(partition_info.var_offset[1])))
    for i in range(40):
        v1.get_variable("many/variable_%d" % i, initializer=np.full([2], i, np.int32))
    session.run(v1.global_variables_initializer())
    v1.train.Saver(write_version=v1.train.SaverDef.V2).save(
        session, os.path.join(here, "graph.ckpt"), write_meta_graph=False, write_state=False)


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable([[1.0, 2.0]], name="layer/kernel")
        self.count = tf.Variable(3, dtype=tf.int64, name="count")


model = Model()
optimizer = tf.keras.optimizers.legacy.Adam()
optimizer.apply_gradients([(tf.constant([[0.5, 0.25]]), model.kernel)])
tf.train.Checkpoint(model=model, optimizer=optimizer).write(os.path.join(here, "object.ckpt"))

arrays = {
    "dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(24, dtype=np.int64).reshape(2, 3, 4)),
    "big": np.array([1, -2, 3], ">i4"),
    "half": np.array([0.5, -1.5], np.float16),
    "scalar": np.float64(2.5),
    "bytes": np.array([b"a", b"", b"longer"]),
    "text": np.array(["a", "\u00e9\u4e2d\U0001f600"]),
    "flags": np.array([[True], [False]]),
    "none": np.zeros([0, 4], np.uint8),
}
np.savez(os.path.join(here, "stored.npz"), **arrays)
np.savez_compressed(os.path.join(here, "deflated.npz"), **arrays)

# A Keras model with the optimizer of TensorFlow 2.11 and later, and the state of an iterator.
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,), name="dense")])
adam = tf.keras.optimizers.Adam(0.1)
adam.build(model.trainable_variables)
iterator = iter(tf.data.Dataset.range(3))
tf.train.Checkpoint(model=model, optimizer=adam, iterator=iterator).write(os.path.join(here, "keras.ckpt"))
