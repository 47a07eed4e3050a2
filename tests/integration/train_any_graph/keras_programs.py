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


def keras_deepfm():
    numbers, ids = keras.Input((6,)), keras.Input((4,), dtype="int64")
    rows = layers.Embedding(40, 8)(ids)
    total, squares = keras.ops.sum(rows, 1), keras.ops.sum(rows * rows, 1)
    second = 0.5 * keras.ops.sum(total * total - squares, 1, keepdims=True)
    first = keras.ops.sum(layers.Embedding(40, 1)(ids), 1)
    deep = layers.Dense(16, activation="relu")(layers.Concatenate()([layers.Flatten()(rows), numbers]))
    return keras.Model([numbers, ids], first + second + layers.Dense(1)(deep))


def keras_experts():
    """Mixture of experts with a gate."""
    numbers = keras.Input((6,))
    experts = keras.ops.stack([layers.Dense(8, activation="relu")(numbers) for _ in range(3)], axis=1)
    gate = layers.Dense(3, activation="softmax")(numbers)
    mixed = keras.ops.sum(experts * keras.ops.expand_dims(gate, -1), axis=1)
    return keras.Model(numbers, layers.Dense(2)(layers.Dense(8, activation="relu")(mixed)))


def keras_attention():
    """A query over a history, ids 0 masked."""
    history = keras.Input((6,), dtype="int64")
    rows = layers.Embedding(30, 8, mask_zero=True)(history)
    mixed = layers.Attention(use_scale=True)([rows, rows])
    other = layers.AdditiveAttention()([rows, rows])
    return keras.Model(history, layers.Dense(1)(layers.GlobalAveragePooling1D()(layers.Concatenate()([mixed, other]))))


def keras_residual():
    x = image = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, padding="same")(x)
    for stride in (1, 2):
        y = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        y = layers.Conv2D(4, 3, strides=stride, padding="same", use_bias=False)(y)
        y = layers.Conv2D(4, 3, padding="same", kernel_regularizer="l2")(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(y)))
        x = layers.Add()([layers.Conv2D(4, 1, strides=stride)(x), y])
    return keras.Model(image, layers.Dense(3)(layers.Flatten()(layers.AveragePooling2D(2)(x))))


def keras_dilated():
    tokens = keras.Input((10,), dtype="int64")
    x = layers.Embedding(30, 8)(tokens)
    for rate in (1, 2, 4):
        x = x + layers.Conv1D(8, 2, padding="causal", dilation_rate=rate, activation="tanh")(x)
    return keras.Model(tokens, layers.Dense(1)(layers.GlobalMaxPooling1D()(x)))


def keras_encoding():
    """Preprocessing layers: how often each id is there, and buckets of numbers."""
    numbers, ids = keras.Input((6,)), keras.Input((4,), dtype="int64")
    counts = layers.CategoryEncoding(40, output_mode="count")(ids)
    hot = layers.CategoryEncoding(40, output_mode="multi_hot")(ids)
    buckets = layers.Embedding(4, 3)(layers.Discretization([-1.0, 0.0, 1.0])(numbers))
    return keras.Model([numbers, ids], layers.Dense(1)(layers.Concatenate()([counts, hot, layers.Flatten()(buckets)])))


KERAS_IDS = {"dense": ((6,), "float"), "ids": ((4,), 40), "label": ((), "label")}
KERAS_IMAGE = {"image": ((8, 8, 1), "float"), "label": ((), 3)}
TOKENS = {"tokens": ((6,), 30), "label": ((), "label")}
TOKEN_CLASSES = {"tokens": ((6,), 30), "label": ((), 3)}
LONG = {"tokens": ((10,), 30), "label": ((), "label")}
VALUES = {"dense": ((6,), "float"), "label": ((2,), "float")}
TOWERS = {"user": ((3,), 50), "item": ((4,), 50), "label": ((), "label")}

LOOP = "gradients of a loop"

PROGRAMS = [
    KerasProgram("keras_dlrm", KERAS_IDS, keras_dlrm, binary),
    KerasProgram("keras_dlrm_dropout", KERAS_IDS, lambda: keras_dlrm(0.2), binary, parallel=False),
    KerasProgram("keras_cnn", KERAS_IMAGE, keras_cnn, classes, parallel=False),
    KerasProgram("keras_gru", TOKENS, keras_gru, binary),
    KerasProgram("keras_transformer", TOKEN_CLASSES, keras_transformer, classes),
    KerasProgram("keras_transformer_dropout", TOKEN_CLASSES, lambda: keras_transformer(0.1), classes, parallel=False),
    KerasProgram("keras_text_cnn", LONG, keras_text_cnn, binary),
    KerasProgram("keras_mlp", VALUES, keras_mlp, squares),
    KerasProgram("keras_saved_model", VALUES, keras_mlp, squares, saved_model=True),
    KerasProgram("keras_saved_dropout", VALUES, lambda: keras_mlp(0.2), squares, parallel=False, saved_model=True),
    KerasProgram("keras_lstm_loop", TOKENS, keras_lstm_loop, binary),
    KerasProgram("keras_gru_loop", TOKENS, keras_recurrent(lambda: layers.GRU(8)), binary),
    KerasProgram("keras_rnn_loop", TOKENS, keras_recurrent(lambda: layers.SimpleRNN(8)), binary, parallel=False),
    KerasProgram("keras_bilstm_loop", TOKENS, keras_recurrent(lambda: layers.Bidirectional(layers.LSTM(4))), binary),
    KerasProgram("keras_masked_gru", TOKENS, keras_masked, binary, parallel=False),
    KerasProgram("keras_noise", VALUES, keras_noise, squares, parallel=False),
    KerasProgram("keras_autoencoder", VALUES, keras_autoencoder, squares),
    KerasProgram("keras_separable", KERAS_IMAGE, keras_separable, classes),
    KerasProgram("keras_two_towers", TOWERS, keras_two_towers, binary),
    KerasProgram("keras_deepfm", KERAS_IDS, keras_deepfm, binary),
    KerasProgram("keras_experts", VALUES, keras_experts, squares),
    KerasProgram("keras_attention", TOKENS, keras_attention, binary),
    KerasProgram("keras_residual", KERAS_IMAGE, keras_residual, classes, parallel=False),
    KerasProgram("keras_dilated", LONG, keras_dilated, binary),
    KerasProgram("keras_encoding", KERAS_IDS, keras_encoding, binary),
]
