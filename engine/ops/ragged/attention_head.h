// One head of one row of the batch: o = A v and its gradients, tile by tile, without a matrix of all scores.
// ragged_attention.cc has the formulas. A Mask says who sees whom: that of ragged rows (ragged_mask.h), or
// that of dense ones (dense_mask.h). Thread rule: calls with scratch of their own may run at once.
#pragma once

#include "engine/ops/ragged/attention_tiles.h"
#include "engine/ops/ragged/ragged_mask.h"

namespace braid::attention {

enum class Activation { Silu, Softmax };

struct HeadSizes {
  Activation activation = Activation::Silu;
  std::int64_t qk = 0, v = 0;  // widths of a head
  // From a value to the next: of q, of k, of v, of the output, of its log_sum.
  std::int64_t q_step = 0, k_step = 0, v_step = 0, out_step = 0, log_step = 0;
  std::int64_t dq_step = q_step, dk_step = k_step, dv_step = v_step;  // of gradients
  std::int64_t qk_row() const { return round_up(qk, kLanes); }
  std::int64_t v_row() const { return round_up(v, kLanes); }
};

/// A head of a row: pointers to its first value.
template <class T, class Mask>
struct Head {
  const T *q, *k, *v;
  Mask mask;
  T scale;  // of q k^T
  T share;  // SiLU: 1 / N
};

template <class T>
struct HeadOutput {
  T* out;
  T *log_sum, *max;  // of softmax; with `max` log_sum is relative to it
};

template <class T>
struct HeadGradient {
  const T *out, *log_sum, *max, *d_out;  // out, log_sum and max: of softmax
  T *dq, *dk, *dv;
  T* d_mask = nullptr;  // added to where it is there: as the mask's numbers lie
};

/// Scratch in pieces.
template <class T>
class Pieces {
 public:
  explicit Pieces(T* scratch) : at_(scratch) {}
  T* take(std::int64_t n) { return std::exchange(at_, at_ + n); }
  const T* end() const { return at_; }

 private:
  T* at_;
};

template <class T>
struct ForwardScratch {
  ForwardScratch(T* scratch, const HeadSizes& s) {
    Pieces<T> pieces(scratch);
    q = pieces.take(kQueries * s.qk_row());
    k = pieces.take(s.qk * kKeys);
    v = pieces.take(kKeys * s.v_row());
    scores = pieces.take(kQueries * kKeys);
    out = pieces.take(kQueries * s.v_row());
    max = pieces.take(kQueries);
    sum = pieces.take(kQueries);
    size = pieces.end() - scratch;
  }
  T *q, *k, *v, *scores, *out, *max, *sum;
  std::int64_t size;
};

template <class T>
struct BackwardScratch {
  BackwardScratch(T* scratch, const HeadSizes& s) {
    Pieces<T> pieces(scratch);
    q = pieces.take(kQueries * s.qk_row());
    k = pieces.take(kKeys * s.qk_row());
    k_across = pieces.take(s.qk * kKeys);
    v_across = pieces.take(s.v * kKeys);
    scores = pieces.take(kQueries * kKeys);
    d_scores = pieces.take(kQueries * kKeys);
    d_out = pieces.take(kQueries * s.v_row());
    dq = pieces.take(kQueries * s.qk_row());
    dk = pieces.take(kKeys * s.qk_row());
    dv = pieces.take(kKeys * s.v_row());
    dots = pieces.take(kQueries);
    size = pieces.end() - scratch;
  }
  T *q, *k, *k_across, *v_across, *scores, *d_scores, *d_out, *dq, *dk, *dv;
  T* dots;  // of outputs and their gradients
  std::int64_t size;
};

/// Rows' masks have nothing but who sees whom.
template <class T>
void put_mask(const RowMask&, std::int64_t, std::int64_t, std::int64_t, T*) {}
template <class T>
void drop_hidden(const RowMask&, std::int64_t, std::int64_t, std::int64_t, T*) {}

/// What query i sees of keys [begin, begin + count).
template <class Mask>
TileRow tile_row(const Mask& mask, std::int64_t i, std::int64_t begin, std::int64_t count) {
  const KeyRange keys = mask.keys(i);
  TileRow row{std::clamp<std::int64_t>(keys.from - begin, 0, count),
              std::clamp<std::int64_t>(keys.to - begin, 0, count), -1};
  if (keys.self && i >= begin && i < begin + count) row.self = i - begin;
  return row;
}

/// Scores of a tile that its queries' softmax goes on with: what they have so far is scaled to the new
/// maxima.
template <class T>
void go_on_with_softmax(const HeadSizes& s, const ForwardScratch<T>& at, const TileRow& row,
                        std::int64_t columns, std::int64_t i) {
  T* scores = at.scores + i * kKeys;
  if (row.empty()) return std::fill(scores, scores + columns, T(0));
  keep(row, scores, columns, -std::numeric_limits<T>::infinity());
  const T max = std::max(at.max[i], max_of(scores, columns));
  if (max == -std::numeric_limits<T>::infinity()) return std::fill(scores, scores + columns, T(0));
  const T factor = at.max[i] == max ? T(1) : std::exp(at.max[i] - max);
  at.sum[i] = at.sum[i] * factor + exp_from(scores, columns, max);
  at.max[i] = max;
  if (factor == T(1)) return;
  T* out = at.out + i * s.v_row();
  for (std::int64_t j = 0; j < s.v; ++j) out[j] *= factor;
}

/// Rows of a product's second factor: where they lie, if that is whole vectors, else packed.
template <class T>
struct Rows {
  const T* at;
  std::int64_t step;
};
template <class T>
Rows<T> rows_of(const T* from, std::int64_t step, std::int64_t count, std::int64_t width, T* scratch) {
  if (width % kLanes == 0) return {from, step};
  const std::int64_t row = round_up(width, kLanes);
  pack(from, step, count, width, T(1), scratch, count, row);
  return {scratch, row};
}

/// Adds keys [begin, begin + count) to the outputs of `queries` queries from `first` on.
template <class T, class Mask>
void add_tile(const HeadSizes& s, const Head<T, Mask>& head, const ForwardScratch<T>& at, std::int64_t first,
              std::int64_t queries, std::int64_t begin, std::int64_t count) {
  pack_transposed(head.k + begin * s.k_step, s.k_step, count, s.qk, at.k);
  const Rows<T> v = rows_of(head.v + begin * s.v_step, s.v_step, count, s.v, at.v);
  const std::int64_t rows = round_up(queries, kRowBlock), columns = round_up(count, kLanes);
  multiply<false>(rows, columns, s.qk, at.q, s.qk_row(), 1, at.k, kKeys, at.scores, kKeys);
  for (std::int64_t i = 0; i < queries; ++i) {
    const TileRow row = tile_row(head.mask, first + i, begin, count);
    if (s.activation == Activation::Softmax) {
      put_mask(head.mask, first + i, begin, count, at.scores + i * kKeys);
      go_on_with_softmax(s, at, row, columns, i);
    } else {
      silu(at.scores + i * kKeys, columns, head.share);
      keep(row, at.scores + i * kKeys, columns, T(0));
    }
  }
  multiply<true>(rows, s.v_row(), count, at.scores, kKeys, 1, v.at, v.step, at.out, s.v_row());
}

/// Queries [from, to), from a multiple of kQueries on.
template <class T, class Mask>
void forward(const HeadSizes& s, const Head<T, Mask>& head, const HeadOutput<T>& to,
             const ForwardScratch<T>& at, std::int64_t from, std::int64_t end_of_queries) {
  for (std::int64_t first = from; first < end_of_queries; first += kQueries) {
    const std::int64_t queries = std::min(kQueries, end_of_queries - first);
    const std::int64_t rows = round_up(queries, kRowBlock);
    pack(head.q + first * s.q_step, s.q_step, queries, s.qk, head.scale, at.q, rows, s.qk_row());
    std::fill(at.out, at.out + rows * s.v_row(), T(0));
    std::fill(at.max, at.max + queries, -std::numeric_limits<T>::infinity());
    std::fill(at.sum, at.sum + queries, T(0));
    const KeyRange span = head.mask.span(first, first + queries);
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; k += kKeys)
        add_tile(s, head, at, first, queries, k, std::min(kKeys, end - k));
    };
    add(span.from, span.to);
    if (span.self) add(std::max(first, head.mask.history), first + queries);
    for (std::int64_t i = 0; i < queries; ++i) {
      const bool softmax = s.activation == Activation::Softmax, sees = at.sum[i] > T(0);
      const T by = !softmax ? T(1) : sees ? T(1) / at.sum[i] : T(0);
      T* out = to.out + (first + i) * s.out_step;
      for (std::int64_t j = 0; j < s.v; ++j) out[j] = by * at.out[i * s.v_row() + j];
      if (!softmax) continue;
      const std::int64_t kept = (first + i) * s.log_step;
      const T log_sum = sees ? std::log(at.sum[i]) : std::numeric_limits<T>::infinity();
      const T max = sees ? at.max[i] : T(0);
      to.log_sum[kept] = to.max ? log_sum : max + log_sum;
      if (to.max) to.max[kept] = max;
    }
  }
}

/// From scores and gradients by what they become: both become what the gradients' products take.
template <class T, class Mask>
void turn_back(const HeadSizes& s, const Head<T, Mask>& head, const HeadGradient<T>& g,
               const BackwardScratch<T>& at, std::int64_t query, std::int64_t i, std::int64_t begin,
               std::int64_t count) {
  const TileRow row = tile_row(head.mask, query, begin, count);
  const std::int64_t columns = round_up(count, kLanes);
  T *scores = at.scores + i * kKeys, *d_scores = at.d_scores + i * kKeys;
  if (s.activation == Activation::Softmax) {
    put_mask(head.mask, query, begin, count, scores);
    softmax_gradient(scores, d_scores, columns, g.max ? g.max[query * s.log_step] : T(0),
                     g.log_sum[query * s.log_step], at.dots[i]);
    drop_hidden(head.mask, query, begin, count, d_scores);
  } else {
    silu_gradient(scores, d_scores, columns, head.share);
  }
  // Products take whole blocks of rows of keys.
  const std::int64_t all = std::max(columns, round_up(count, kRowBlock));
  keep(row, scores, all, T(0));
  keep(row, d_scores, all, T(0));
  if constexpr (requires { head.mask.added; }) {
    if (!g.d_mask) return;
    T* const to = g.d_mask + query * head.mask.query_step + begin * head.mask.key_step;
    for (std::int64_t j = 0; j < count; ++j) to[j] += d_scores[j];
  }
}

/// Adds what queries from `first` on give keys [begin, begin + count), and these to their gradients.
template <class T, class Mask>
void add_tile_gradients(const HeadSizes& s, const Head<T, Mask>& head, const HeadGradient<T>& g,
                        const BackwardScratch<T>& at, const Rows<T>& k, std::int64_t first,
                        std::int64_t queries, std::int64_t begin, std::int64_t count) {
  const std::int64_t rows = round_up(queries, kRowBlock), columns = round_up(count, kLanes);
  const std::int64_t key_rows = round_up(count, kRowBlock);
  pack(head.q + first * s.q_step, s.q_step, queries, s.qk, head.scale, at.q, rows, s.qk_row());
  pack(g.d_out + first * s.out_step, s.out_step, queries, s.v, T(1), at.d_out, rows, s.v_row());
  multiply<false>(rows, columns, s.qk, at.q, s.qk_row(), 1, at.k_across, kKeys, at.scores, kKeys);
  multiply<false>(rows, columns, s.v, at.d_out, s.v_row(), 1, at.v_across, kKeys, at.d_scores, kKeys);
  if (s.activation == Activation::Softmax)
    row_dots(queries, s.v, g.out + first * s.out_step, s.out_step, at.d_out, s.v_row(), at.dots);
  for (std::int64_t i = 0; i < queries; ++i) turn_back(s, head, g, at, first + i, i, begin, count);
  // Columns of scores are rows of keys.
  multiply<true>(key_rows, s.qk_row(), queries, at.d_scores, 1, kKeys, at.q, s.qk_row(), at.dk, s.qk_row());
  multiply<true>(key_rows, s.v_row(), queries, at.scores, 1, kKeys, at.d_out, s.v_row(), at.dv, s.v_row());
  multiply<false>(rows, s.qk_row(), count, at.d_scores, kKeys, 1, k.at, k.step, at.dq, s.qk_row());
  add_rows(at.dq, s.qk_row(), queries, s.qk, head.scale, g.dq + first * s.dq_step, s.dq_step);
}

/// REQUIRES: dq, dk and dv are zeros.
template <class T, class Mask>
void backward(const HeadSizes& s, const Head<T, Mask>& head, const HeadGradient<T>& g,
              const BackwardScratch<T>& at) {
  const Mask& mask = head.mask;
  for (std::int64_t begin = 0; begin < mask.all_keys(); begin += kKeys) {
    const std::int64_t end = std::min(begin + kKeys, mask.all_keys()), count = end - begin;
    const Rows<T> k = rows_of(head.k + begin * s.k_step, s.k_step, count, s.qk, at.k);
    pack_transposed(head.k + begin * s.k_step, s.k_step, count, s.qk, at.k_across);
    pack_transposed(head.v + begin * s.v_step, s.v_step, count, s.v, at.v_across);
    std::fill(at.dk, at.dk + round_up(count, kRowBlock) * s.qk_row(), T(0));
    std::fill(at.dv, at.dv + round_up(count, kRowBlock) * s.v_row(), T(0));
    for (std::int64_t first = 0; first < mask.queries(); first += kQueries) {
      const std::int64_t queries = std::min(kQueries, mask.queries() - first);
      const KeyRange span = mask.span(first, first + queries);
      const bool sees = span.from < end && begin < span.to;
      const bool own = span.self && std::max(first, mask.history) < end && begin < first + queries;
      if (sees || own) add_tile_gradients(s, head, g, at, k, first, queries, begin, count);
    }
    add_rows(at.dk, s.qk_row(), count, s.qk, T(1), g.dk + begin * s.dk_step, s.dk_step);
    add_rows(at.dv, s.v_row(), count, s.v, T(1), g.dv + begin * s.dv_step, s.dv_step);
  }
}

}  // namespace braid::attention
