"""The Keras models that oracle.py trains."""

import keras
import tensorflow as tf
from keras import layers
from keras_export import KerasProgram


def binary(label, output):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=tf.reshape(output, [-1])))


def classes(label, output):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=output))


def squares(label, output):
    return tf.reduce_mean(tf.square(output - label))


def keras_dlrm(rate=0.0):
    numbers, ids = keras.Input((6,)), keras.Input((4,), dtype="int64")
    bottom = layers.Dense(8, activation="relu")(layers.Dense(16, activation="relu")(numbers))
    rows = [layers.Embedding(40, 8)(ids[:, i]) for i in range(4)]
    stacked = keras.ops.stack([bottom, *rows], axis=1)
    dots = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
    x = layers.Concatenate()([bottom, layers.Flatten()(dots)])
    x = layers.Dense(16, activation="relu")(x)
    if rate:
        x = layers.Dropout(rate, seed=5)(x)
    return keras.Model([numbers, ids], layers.Dense(1)(x))


def keras_cnn():
    x = image = keras.Input((8, 8, 1))
    for width in (4, 8):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        x = layers.MaxPooling2D()(x)
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def keras_gru():
    tokens = keras.Input((6,), dtype="int64")
    x = layers.GRU(8, unroll=True)(layers.Embedding(30, 6)(tokens))
    return keras.Model(tokens, layers.Dense(1)(x))


def keras_lstm_loop():
    tokens = keras.Input((6,), dtype="int64")
    return keras.Model(tokens, layers.Dense(1)(layers.LSTM(8)(layers.Embedding(30, 6)(tokens))))


def keras_recurrent(layer):
    """A layer of its own loop over the steps."""

    def build():
        tokens = keras.Input((6,), dtype="int64")
        return keras.Model(tokens, layers.Dense(1)(layer()(layers.Embedding(30, 6)(tokens))))

    return build


def keras_masked():
    tokens = keras.Input((6,), dtype="int64")
    return keras.Model(tokens, layers.Dense(1)(layers.GRU(8)(layers.Embedding(30, 6, mask_zero=True)(tokens))))


def keras_noise():
    x = numbers = keras.Input((6,))
    x = layers.GaussianNoise(0.1, seed=3)(layers.Dense(16, activation="tanh")(x))
    return keras.Model(numbers, layers.Dense(2)(layers.AlphaDropout(0.1, seed=4)(x)))


def keras_autoencoder():
    x = numbers = keras.Input((6,))
    for width in (8, 3, 8):
        x = layers.Dense(width, activation="elu", kernel_regularizer="l2")(x)
    return keras.Model(numbers, layers.Dense(2)(x))


def keras_separable():
    x = image = keras.Input((8, 8, 1))
    for width in (4, 8):
        x = layers.SeparableConv2D(width, 3, padding="same", strides=2, activation="relu")(x)
    return keras.Model(image, layers.Dense(3)(layers.Flatten()(x)))


def keras_two_towers():
    user, item = keras.Input((3,), dtype="int64"), keras.Input((4,), dtype="int64")
    ends = []
    for ids in (user, item):
        x = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(ids))
        ends.append(layers.Dense(8)(layers.Dense(16, activation="relu")(x)))
    return keras.Model([user, item], layers.Dot(axes=1, normalize=True)(ends))


def keras_transformer(rate=0.0):
    tokens = keras.Input((6,), dtype="int64")
    x = layers.Embedding(30, 8)(tokens)
    for _ in range(2):
        attended = layers.MultiHeadAttention(2, 4)(x, x)
        if rate:
            attended = layers.Dropout(rate)(attended)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def keras_text_cnn():
    tokens = keras.Input((10,), dtype="int64")
    x = layers.Embedding(30, 8)(tokens)
    pooled = [layers.GlobalMaxPooling1D()(layers.Conv1D(6, k, activation="relu")(x)) for k in (2, 3)]
    return keras.Model(tokens, layers.Dense(1)(layers.Concatenate()(pooled)))


def keras_mlp(rate=0.0):
    x = numbers = keras.Input((6,))
    for width in (16, 16):
        x = layers.LayerNormalization()(layers.Dense(width, activation="swish")(x))
        if rate:
            x = layers.Dropout(rate)(x)
    return keras.Model(numbers, layers.Dense(2)(x))


KERAS_IDS = {"dense": ((6,), "float"), "ids": ((4,), 40), "label": ((), "label")}
KERAS_IMAGE = {"image": ((8, 8, 1), "float"), "label": ((), 3)}
TOKENS = {"tokens": ((6,), 30), "label": ((), "label")}
TOKEN_CLASSES = {"tokens": ((6,), 30), "label": ((), 3)}
LONG = {"tokens": ((10,), 30), "label": ((), "label")}
VALUES = {"dense": ((6,), "float"), "label": ((2,), "float")}
TOWERS = {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")}

PROGRAMS = [
    *[KerasProgram(f"keras_dlrm_{kind.lower()}", kind, KERAS_IDS, keras_dlrm, binary) for kind in ("SGD", "ADAGRAD", "FTRL")],
    KerasProgram("keras_dlrm_dropout", "ADAGRAD", KERAS_IDS, lambda: keras_dlrm(0.2), binary, parallel=False),
    *[KerasProgram(f"keras_cnn_{kind.lower()}", kind, KERAS_IMAGE, keras_cnn, classes, parallel=False) for kind in ("SGD", "ADAM")],
    *[KerasProgram(f"keras_gru_{kind.lower()}", kind, TOKENS, keras_gru, binary) for kind in ("MOMENTUM", "ADAGRAD")],
    *[KerasProgram(f"keras_transformer_{kind.lower()}", kind, TOKEN_CLASSES, keras_transformer, classes) for kind in ("SGD", "ADAGRAD")],
    KerasProgram("keras_transformer_dropout", "SGD", TOKEN_CLASSES, lambda: keras_transformer(0.1), classes, parallel=False),
    KerasProgram("keras_text_cnn", "ADAGRAD", LONG, keras_text_cnn, binary),
    *[KerasProgram(f"keras_mlp_{kind.lower()}", kind, VALUES, keras_mlp, squares) for kind in ("ADAM", "MOMENTUM")],
    KerasProgram("keras_saved_model", "ADAM", VALUES, keras_mlp, squares, saved_model=True),
    KerasProgram("keras_saved_dropout", "ADAGRAD", VALUES, lambda: keras_mlp(0.2), squares, parallel=False, saved_model=True),
    KerasProgram("keras_lstm_loop", "ADAGRAD", TOKENS, keras_lstm_loop, binary),
    KerasProgram("keras_gru_loop", "SGD", TOKENS, keras_recurrent(lambda: layers.GRU(8)), binary),
    KerasProgram("keras_rnn_loop", "FTRL", TOKENS, keras_recurrent(lambda: layers.SimpleRNN(8)), binary, parallel=False),
    KerasProgram("keras_bilstm_loop", "MOMENTUM", TOKENS, keras_recurrent(lambda: layers.Bidirectional(layers.LSTM(4))), binary),
    KerasProgram("keras_masked_gru", "SGD", TOKENS, keras_masked, binary, parallel=False),
    KerasProgram("keras_noise", "ADAM", VALUES, keras_noise, squares, parallel=False),
    KerasProgram("keras_autoencoder", "MOMENTUM", VALUES, keras_autoencoder, squares),
    KerasProgram("keras_separable", "ADAGRAD", KERAS_IMAGE, keras_separable, classes),
    KerasProgram("keras_two_towers", "FTRL", TOWERS, keras_two_towers, binary),
]
