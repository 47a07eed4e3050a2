// Windows, Fourier transforms and the mel scale. A transform is a product with the matrices of cosines and
// sines; complex numbers are pairs in the last axis, as ONNX has them.
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N), N the size or, not periodic, one less.
void window(OnnxNode& n, double a0, double a1, double a2) {
  const Val size = cast(reshape(n.in(0), Ints{}), DType::Int64);
  const Val length = cast(n.i("periodic", 1) != 0 ? size : size - 1.0, DType::Float64);
  const Val phase = cast(range(size), DType::Float64) * kTurn / length;
  const Val y = a0 - tf("Cos", {phase}) * a1 + tf("Cos", {phase * 2.0}) * a2;
  n.out(0, cast(y, dtype_of_onnx(n.i32("output_datatype", TensorProto::FLOAT))));
}

void hann_window(OnnxNode& n) { window(n, 0.5, 0.5, 0); }
void hamming_window(OnnxNode& n) { window(n, 25.0 / 46, 21.0 / 46, 0); }
void blackman_window(OnnxNode& n) { window(n, 0.42, 0.5, 0.08); }

/// cos and sin of 2 pi i k / length, [points, bins].
struct Waves {
  Val cosines, sines;
};

Waves waves(Val points, Val bins, Val length, DType dtype) {
  const Val turns = tf("FloorMod", {expand_dims(range(points), 1) * expand_dims(range(bins), 0), length});
  const Val phase = cast(turns, DType::Float64) * kTurn / cast(length, DType::Float64);
  return {cast(tf("Cos", {phase}), dtype), cast(tf("Sin", {phase}), dtype)};
}

/// x[..., points] of real or complex signals times the waves, [..., bins, 2].
Val transformed(Val re, Val im, const Waves& w, bool inverse, int last) {
  const auto times = [](Val x, Val m) { return tf("BatchMatMulV2", {x, m}); };
  // e^(-i t) = cos t - i sin t; the inverse turns the other way.
  const Val sines = inverse ? -w.sines : w.sines;
  Val y_re = times(re, w.cosines), y_im = -times(re, sines);
  if (im) {
    y_re = y_re + times(im, sines);
    y_im = y_im + times(im, w.cosines);
  }
  return pack({y_re, y_im}, last + 1);
}

/// The first `length` elements of the last axis, with zeros where it ends before.
Val fitted(Val x, Val length) {
  const Val at = range(length), size = size_of(x, -1);
  const Val taken = gather(x, minimum(at, size - 1.0), x.rank() - 1);
  return where(tf("Less", {at, size}), taken, like(0, x));
}

/// The permutation of `rank` axes that moves `axis`, a scalar that need not be known, to the end.
Val to_the_end(Val axis, int rank) {
  const Val others = ints(axis, all_axes(rank - 1));
  return concat({where(tf("Less", {others, axis}), others, others + 1.0), reshape(axis, Ints{1})}, 0);
}

void dft(OnnxNode& n) {
  const Val x = n.in(0);  // [..., 1 or 2]
  const int rank = x.rank();
  Val axis = n.b.number(static_cast<double>(n.i("axis", 1)), DType::Int64);
  if (n.opset >= 20) axis = n.has(2) ? cast(reshape(n.in(2), Ints{}), DType::Int64) : like(-2, axis);
  axis = where(tf("Less", {axis, like(0, axis)}), axis + static_cast<double>(rank), axis);
  const bool inverse = n.i("inverse", 0) != 0, onesided = n.i("onesided", 0) != 0, complex = x.dim(-1) == 2;
  const Val order = to_the_end(axis, rank - 1);
  const auto part = [&](int i) {
    return tf("Transpose", {squeeze(slice(x, rank - 1, i, i + 1), {rank - 1}), order});
  };
  Val re = part(0), im = complex ? part(1) : Val();
  Val length = n.has(1) ? cast(reshape(n.in(1), Ints{}), DType::Int64) : size_of(re, -1);
  if (!n.has(1) && inverse && onesided) length = (length - 1.0) * 2.0;
  if (inverse && onesided) {
    // The other half of the spectrum of a real signal mirrors this one.
    const Val bins = tf("FloorDiv", {length, like(2, length)}) + 1.0;
    re = fitted(re, bins);
    if (im) im = fitted(im, bins);
    const Val index = range(length), mirrored = where(tf("Less", {index, bins}), index, length - index);
    const Val sign = where(tf("Less", {index, bins}), like(1, re), like(-1, re));
    re = gather(re, mirrored, rank - 2);
    if (im) im = gather(im, mirrored, rank - 2) * sign;
  } else if (n.has(1)) {
    re = fitted(re, length);
    if (im) im = fitted(im, length);
  }
  const Val bins = onesided && !inverse ? tf("FloorDiv", {length, like(2, length)}) + 1.0 : length;
  Val y = transformed(re, im, waves(length, bins, length, x.dtype()), inverse, rank - 2);
  if (inverse) y = y / cast(length, x.dtype());
  if (inverse && onesided) y = slice(y, rank - 1, 0, 1);
  const Val back = tf("InvertPermutation", {cast(order, DType::Int32)});
  n.out(0, tf("Transpose", {y, concat({back, n.b.ints({rank - 1}, DType::Int32)}, 0)}));
}

void stft(OnnxNode& n) {
  const Val signal = n.in(0);  // [N, length, 1 or 2], or [N, length]
  const Val step = cast(reshape(n.in(1), Ints{}), DType::Int64);
  const bool complex = signal.rank() == 3 && signal.dim(2) == 2;
  Val frame;
  if (n.has(3))
    frame = cast(reshape(n.in(3), Ints{}), DType::Int64);
  else
    frame = size_of(n.in(2), 0);
  const Val frames = tf("FloorDiv", {size_of(signal, 1) - frame, step}) + 1.0;
  const Val places = expand_dims(range(frames) * step, 1) + expand_dims(range(frame), 0);  // [frames, frame]
  const auto part = [&](int i) {
    const Val x = signal.rank() == 3 ? squeeze(slice(signal, 2, i, i + 1), {2}) : signal;
    const Val cut = gather(x, places, 1);
    return n.has(2) ? cut * n.in(2) : cut;
  };
  const bool onesided = n.i("onesided", 1) != 0;
  const Val bins = onesided ? tf("FloorDiv", {frame, like(2, frame)}) + 1.0 : frame;
  n.out(0,
        transformed(part(0), complex ? part(1) : Val(), waves(frame, bins, frame, signal.dtype()), false, 2));
}

/// [spectrogram bins, mel bins] of triangles between the edges, which are evenly spread over the mel scale.
void mel_weight_matrix(OnnxNode& n) {
  const auto real = [&](int i) { return cast(reshape(n.in(i), Ints{}), DType::Float64); };
  const Val mels = cast(reshape(n.in(0), Ints{}), DType::Int64),
            dft_length = cast(reshape(n.in(1), Ints{}), DType::Int64);
  const Val rate = real(2), low = real(3), high = real(4);
  const auto to_mel = [](Val hertz) { return tf("Log", {hertz / 700.0 + 1.0}) * (2595 / std::log(10.0)); };
  const Val step = (to_mel(high) - to_mel(low)) / cast(mels + 2.0, DType::Float64);
  const Val points = cast(range(mels + 2.0), DType::Float64) * step + to_mel(low);
  const Val hertz = (tf("Exp", {points * (std::log(10.0) / 2595)}) - 1.0) * 700.0;
  const Val edges = tf("Floor", {cast(dft_length + 1.0, DType::Float64) * hertz / rate});
  const Val bins = tf("FloorDiv", {dft_length, like(2, dft_length)}) + 1.0;
  const Val at = expand_dims(cast(range(bins), DType::Float64), 1);
  const auto edge = [&](int i) {
    return expand_dims(gather(edges, range(mels) + static_cast<double>(i), 0), 0);
  };
  const Val left = edge(0), center = edge(1), right = edge(2), zero = like(0, at);
  const Val rise = center - left, fall = right - center;
  const auto both = [](Val a, Val b) { return tf("LogicalAnd", {a, b}); };
  const Val no_rise = tf("Equal", {rise, zero});
  const Val up =
      where(no_rise, cast(tf("Equal", {at, center}), DType::Float64), tf("DivNoNan", {at - left, rise}));
  const Val is_up = both(tf("GreaterEqual", {at, left}), tf("LessEqual", {at, center}));
  const Val is_down = both(tf("GreaterEqual", {at, center}), tf("Less", {at, right}));
  const Val down = tf("DivNoNan", {right - at, fall});
  const Val y = where(is_down, down, where(is_up, up, zero));
  n.out(0, cast(y, dtype_of_onnx(n.i32("output_datatype", TensorProto::FLOAT))));
}

}  // namespace

void add_signals(Translations& t) {
  t.add("HannWindow", hann_window);
  t.add("HammingWindow", hamming_window);
  t.add("BlackmanWindow", blackman_window);
  t.add("DFT", dft);
  t.add("STFT", stft);
  t.add("MelWeightMatrix", mel_weight_matrix);
}

}  // namespace braid::onnx
