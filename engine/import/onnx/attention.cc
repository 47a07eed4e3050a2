// Attention and RotaryEmbedding. With queries [B, H, S, d], keys and values [B, kv heads, T, d]:
//   logits = q k^T scale;  capped = softcap tanh(logits / softcap);  Y = softmax(capped + bias) V
// where bias is -inf for what a mask, causality, a window or padding forbids. A row that may see nothing
// gives zeros.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// [B, S, heads * d] as [B, heads, S, d]; four axes as they are.
Val with_heads(Val x, std::int64_t heads) {
  if (x.rank() == 4) return x;
  if (heads <= 0) throw InvalidArgument("inputs of three axes need the numbers of heads");
  Builder& b = x.made_by();
  const Val each = b.number(static_cast<double>(heads), DType::Int64);
  return transpose(reshape(x, std::vector<Val>{size_of(x, 0), size_of(x, 1), each, size_of(x, 2) / each}),
                   {0, 2, 1, 3});
}

/// Each head as often as queries have heads for it.
Val repeat_heads(Val x, std::int64_t times) {
  if (times == 1) return x;
  const Val shape = shape_of(x);
  const Val repeated = tf("Tile", {expand_dims(x, 2), ints(x, {1, 1, times, 1, 1})});
  return reshape(repeated, concat({slice(shape, 0, 0, 1), ints(x, {-1}), slice(shape, 0, 2, 4)}, 0));
}

/// Zeros, and -inf where `allowed` is not.
Val bias_of(Val allowed, DType dtype) {
  Builder& b = allowed.made_by();
  return where(allowed, b.number(0, dtype), b.number(-kInfinity, dtype));
}

/// What the mask input adds, [..., S, T]; a mask that ends early forbids the rest.
Val mask_bias(Val mask, Val keys, DType dtype) {
  const Val bias = mask.dtype() == DType::Bool ? bias_of(mask, dtype) : cast(mask, dtype);
  const Val at = range(keys), size = size_of(bias, -1);
  const Val taken = gather(bias, minimum(at, size - 1.0), bias.rank() - 1);
  return where(tf("Less", {at, size}), taken, like(-kInfinity, bias));
}

/// The softmax of each row; zeros where a row is -inf everywhere.
Val weights_or_zeros(Val biased) {
  const Val lowest = biased.made_by().number(-kInfinity, DType::Float32);
  const Val sees = tf("Greater", {reduce("Max", biased, {3}, true), lowest});
  const Val safe = where(sees, biased, like(0, biased));
  return where(sees, tf("Softmax", {safe}), like(0, biased));
}

void attention(OnnxNode& n) {
  const Val q = with_heads(n.in(0), n.i("q_num_heads", 0));
  Val k = with_heads(n.in(1), n.i("kv_num_heads", 0)), v = with_heads(n.in(2), n.i("kv_num_heads", 0));
  const DType dtype = q.dtype(), v_dtype = v.dtype();
  Val offset = n.b.number(0, DType::Int64);  // keys before the first query's own
  if (n.has(4)) {
    offset = size_of(n.in(4), 2);
    k = concat({n.in(4), k}, 2);
    v = concat({n.in(5), v}, 2);
  }
  if (n.wants(1)) n.out(1, tf("Identity", {k}));
  if (n.wants(2)) n.out(2, tf("Identity", {v}));
  const std::int64_t kv_heads = k.static_dim(1);
  if (kv_heads == 0) throw InvalidArgument("keys have no heads");
  const std::int64_t times = q.static_dim(1) / kv_heads;
  const double scale =
      n.has_attr("scale") ? n.f("scale", 1) : 1 / std::sqrt(static_cast<double>(q.static_dim(3)));
  const Val wide_q = cast(q, DType::Float32), wide_k = cast(repeat_heads(k, times), DType::Float32);
  const Val logits = tf("BatchMatMulV2", {wide_q, wide_k}, {{"adj_y", true}}) * scale;
  const double cap = n.f("softcap", 0);
  const Val capped = cap == 0 ? logits : tf("Tanh", {logits / cap}) * cap;

  Val biased = capped;
  const Val keys = size_of(k, 2), key = range(keys);
  if (n.has(3)) biased = biased + mask_bias(n.in(3), keys, DType::Float32);
  Val position = expand_dims(range(size_of(q, 2)), 1);  // of each query among the keys
  if (n.has(6)) {
    const Val lengths = reshape(cast(n.in(6), DType::Int64), Ints{-1, 1, 1, 1});
    biased = biased + bias_of(tf("Less", {key, lengths}), DType::Float32);
    if (!n.has(4)) position = position + lengths - size_of(q, 2);
  }
  position = position + offset;
  const std::int64_t left = n.i("left_window_size", -1);
  std::int64_t right = n.i("right_window_size", -1);
  if (n.i("is_causal", 0) != 0) right = 0;
  if (right >= 0)
    biased = biased + bias_of(tf("LessEqual", {key, position + static_cast<double>(right)}), DType::Float32);
  if (left >= 0)
    biased =
        biased + bias_of(tf("GreaterEqual", {key, position - static_cast<double>(left)}), DType::Float32);

  // Causality alone leaves each query a key.
  const bool may_see_nothing = n.has(3) || n.has(6) || left >= 0;
  const Val weights = may_see_nothing ? weights_or_zeros(biased) : tf("Softmax", {biased});
  const Val all_v = cast(repeat_heads(v, times), DType::Float32);
  Val y = cast(tf("BatchMatMulV2", {weights, all_v}), n.in(0).rank() == 3 ? v_dtype : dtype);
  if (n.in(0).rank() == 3)
    y = reshape(transpose(y, {0, 2, 1, 3}),
                pack({size_of(q, 0), size_of(q, 2), n.b.number(-1, DType::Int64)}, 0));
  n.out(0, y);
  if (!n.wants(3)) return;
  const Val stages[] = {logits, capped, biased, weights};
  const std::int64_t mode = n.i("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) throw InvalidArgument("qk_matmul_output_mode must be 0 to 3");
  n.out(3, cast(tf("Identity", {stages[mode]}), dtype));
}

/// The first `rotary_embedding_dim` elements of each head, in pairs, turned by the angle of their position.
void rotary_embedding(OnnxNode& n) {
  const Val input = n.in(0);
  const bool flat = input.rank() == 3;
  // [B, S, heads, d]
  const Val x = transpose(with_heads(input, n.i("num_heads", 0)), {0, 2, 1, 3});
  const std::int64_t size = x.static_dim(3);
  const std::int64_t turned = n.i("rotary_embedding_dim", 0) == 0 ? size : n.i("rotary_embedding_dim", 0);
  const auto cache = [&](int i) {
    const Val all = n.has(3) ? gather(n.in(i), cast(n.in(3), DType::Int64), 0) : n.in(i);
    return expand_dims(all, 2);
  };
  const Val cosines = cache(1), sines = cache(2);
  const bool interleaved = n.i("interleaved", 0) != 0;
  const Val a = interleaved ? slice(x, 3, 0, turned, 2) : slice(x, 3, 0, turned / 2);
  const Val b = interleaved ? slice(x, 3, 1, turned, 2) : slice(x, 3, turned / 2, turned);
  const Val re = cosines * a - sines * b, im = sines * a + cosines * b;
  Val y = concat({re, im}, 3);
  if (interleaved) {
    const Val shape = slice(shape_of(x), 0, 0, 3);
    y = reshape(pack({re, im}, 4), concat({shape, n.b.ints({turned})}, 0));
  }
  if (turned < size) y = concat({y, slice(x, 3, turned, size)}, 3);
  n.out(0, flat ? reshape(y, shape_of(input)) : transpose(y, {0, 2, 1, 3}));
}

}  // namespace

void add_attention(Translations& t) {
  t.add("Attention", attention);
  t.add("RotaryEmbedding", rotary_embedding);
}

}  // namespace braid::onnx
