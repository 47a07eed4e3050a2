"""More Keras models for oracle.py: layers of their own, shared layers, several losses, Keras' own losses."""

import keras
import tensorflow as tf
from keras import layers, ops
from keras_export import KerasProgram
from keras_programs import binary, classes


def keras_unet():
    """Upsampling, transposed and separable convolutions, layer and group norms, cropping, padding."""
    image = keras.Input((8, 8, 1))
    a = layers.Conv2D(4, 3, padding="same", activation="gelu")(layers.ZeroPadding2D(1)(layers.Cropping2D(1)(image)))
    b = layers.GroupNormalization(2)(layers.Conv2D(8, 3, strides=2, padding="same")(a))
    b = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(layers.Activation("silu")(b))
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(b)
    wide = layers.UpSampling2D(2, interpolation="bilinear")(layers.SeparableConv2D(4, 3, padding="same")(b))
    x = layers.Concatenate()([a, up, wide])
    x = layers.LayerNormalization()(layers.SpatialDropout2D(0.0)(x))
    return keras.Model(image, layers.Conv2D(1, 1)(x))


def pixels(label, output):
    truth = tf.cast(tf.reshape(label, [-1, 8, 8, 1]) > 0, tf.float32)
    return (tf.reduce_mean(keras.losses.binary_focal_crossentropy(truth, output, from_logits=True))
            + tf.reduce_mean(keras.losses.dice(truth, tf.sigmoid(output))))


class Ple(keras.Model):
    """Shared and own experts of two tasks by einsum, with gates; subclassed."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(40, 4)
        self.experts = layers.EinsumDense("bi,eio->beo", output_shape=(6, 8), activation="relu")
        self.gates = [layers.Dense(4, activation="softmax") for _ in range(2)]
        self.towers = [keras.Sequential([layers.Dense(4, activation="mish"), layers.Dense(1)]) for _ in range(2)]

    def call(self, inputs, training=False):
        dense, ids = inputs
        x = ops.concatenate([dense, ops.reshape(self.table(ids), (-1, 16))], -1)
        experts = self.experts(tf.stack([x] * 1, 0)[0])
        chosen = [ops.concatenate([experts[:, 2 * i:2 * i + 2], experts[:, 4:]], 1) for i in range(2)]
        ends = [tower(ops.einsum("be,beo->bo", gate(x), mine), training=training)
                for tower, gate, mine in zip(self.towers, self.gates, chosen)]
        return ops.concatenate(ends, -1)


def keras_ple():
    model = Ple()
    model([tf.zeros([2, 6]), tf.zeros([2, 4], tf.int64)])
    return model


def entire_space(label, output):
    click = tf.sigmoid(output[:, 0])
    both = click * tf.sigmoid(output[:, 1])
    return tf.reduce_mean(keras.losses.binary_crossentropy(label[:, :1], click[:, None])) + tf.reduce_mean(
        keras.losses.binary_crossentropy(label[:, 1:], both[:, None], label_smoothing=0.05))


def keras_sequence():
    """BST: masked attention over a history with places, PReLU, a head with unit norms."""
    history, item = keras.Input((5,), dtype="int64"), keras.Input((), dtype="int64")
    table = layers.Embedding(60, 8, mask_zero=True)
    x = table(history)
    y = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))
    pooled = layers.GlobalAveragePooling1D()(x)
    mine = ops.squeeze(table(ops.expand_dims(item, 1)), 1)
    x = layers.Dense(16)(layers.Concatenate()([pooled, mine, layers.Multiply()([pooled, mine])]))
    x = layers.UnitNormalization()(layers.PReLU()(x))
    return keras.Model([history, item], layers.Dense(1, kernel_regularizer="l2")(x))


def keras_text():
    """Convolutions of three widths, a bidirectional layer, a minimum and a maximum, time-distributed layers."""
    words = keras.Input((7,), dtype="int64")
    x = layers.Embedding(60, 8)(words)
    pooled = [layers.GlobalMaxPooling1D()(layers.Conv1D(4, k, dilation_rate=d, padding="causal", activation="elu")(x))
              for k, d in ((2, 1), (3, 2), (1, 1))]
    again = layers.Bidirectional(layers.LSTM(3, return_sequences=True), merge_mode="sum")(layers.TimeDistributed(layers.Dense(4))(x))
    ends = layers.Maximum()([layers.Lambda(lambda t: t[:, 0])(again), layers.Minimum()([again[:, 1], again[:, -1]])])
    return keras.Model(words, layers.Dense(3)(layers.Concatenate()([*pooled, ends])))


class SpectralDense(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 8), name="w")
        self.u = self.add_weight(shape=(1, 8), initializer="ones", trainable=False, name="u")

    def call(self, x, training=False):
        v = ops.normalize(ops.matmul(self.u, ops.transpose(self.w)), axis=-1)
        u = ops.normalize(ops.matmul(v, self.w), axis=-1)
        u, v = ops.stop_gradient(u), ops.stop_gradient(v)
        if training:
            self.u.assign(u)
        sigma = ops.matmul(ops.matmul(v, self.w), ops.transpose(u))
        return ops.matmul(x, self.w / sigma)


def keras_spectral():
    x = dense = keras.Input((6,))
    x = layers.BatchNormalization(momentum=0.9)(SpectralDense()(x))
    x = layers.LeakyReLU(negative_slope=0.1)(x)
    return keras.Model(dense, layers.Dense(2, activation="softplus")(layers.GaussianNoise(0.0)(x)))


def huber(label, output):
    return tf.reduce_mean(keras.losses.huber(label, output, delta=0.5)) + 0.1 * tf.reduce_mean(keras.losses.log_cosh(label, output))


def keras_locally():
    """A VGG-like net with odd sizes, max-out, squeeze and excitation, average pooling with borders."""
    image = keras.Input((7, 9, 1))
    x = layers.Conv2D(6, (2, 3), padding="same", activation="relu6")(image)
    x = layers.AveragePooling2D((3, 2), strides=(2, 2), padding="same")(x)
    s = layers.Dense(6, activation="hard_sigmoid")(layers.Dense(2, activation="tanh")(layers.GlobalMaxPooling2D()(x)))
    x = x * ops.reshape(s, (-1, 1, 1, 6))
    x = layers.Permute((3, 1, 2))(x)
    x = ops.max(ops.reshape(x, (-1, 3, 2, 20)), 2)
    return keras.Model(image, layers.Dense(3)(layers.Flatten()(x)))


IDS = {"dense": ((6,), "float"), "ids": ((4,), 40)}
PROGRAMS = [
    KerasProgram("keras_unet", {"image": ((8, 8, 1), "float"), "label": ((64,), "float")}, keras_unet, pixels, parallel=False),
    KerasProgram("keras_ple", {**IDS, "label": ((2,), "label")}, keras_ple, entire_space),
    KerasProgram("keras_sequence", {"history": ((5,), 60), "item": ((), 60), "label": ((), "label")}, keras_sequence, binary),
    KerasProgram("keras_text", {"words": ((7,), 60), "label": ((), 3)}, keras_text, classes),
    KerasProgram("keras_spectral", {"dense": ((6,), "float"), "label": ((2,), "float")}, keras_spectral, huber, parallel=False),
    KerasProgram("keras_odd_image", {"image": ((7, 9, 1), "float"), "label": ((), 3)}, keras_locally, classes),
]
