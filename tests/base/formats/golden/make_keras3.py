"""Makes keras3.ckpt, with TensorFlow 2.16 or later: a model and an optimizer of Keras 3."""
import os

import tensorflow as tf

here = os.path.dirname(os.path.abspath(__file__))
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2, name="dense")], name="net")
adam = tf.keras.optimizers.Adam(0.1)
adam.build(model.trainable_variables)
tf.train.Checkpoint(model=model, optimizer=adam).write(os.path.join(here, "keras3.ckpt"))
