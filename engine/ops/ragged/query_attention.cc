// Attention by one query for each row of ragged values (ragged_offsets.h has the terms), which sees all of
// the row: the last layer of a model that reads its candidates alone, pooling by attention.
//   braid.QueryAttention(q [B, H, dq], k [n, H, dq], v [n, H, dv], offsets [B + 1])
//     -> output [B, H, dv], log_sum [B, H] (of silu [0, H])
// Formulas and attributes activation, scale and max_length are those of braid.RaggedAttention, whose output
// at the last value of each row this is. Rows without values give zeros.
//   braid.QueryAttentionGrad(q, k, v, d_output, offsets, of softmax [output, log_sum]) -> dq, dk, dv
// A head of a row is one piece of work.
#include "engine/ops/ragged/query_attention.h"

#include <array>
#include <cmath>
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/ragged/ragged_offsets.h"

namespace braid {
namespace {

using attention::query_inputs_of;
using attention::QueryInputs;

void require_equal(const InferContext& c, const char* what, std::int64_t a, std::int64_t b) {
  if (a >= 0 && b >= 0 && a != b)
    c.fail(std::string(what) + " must be equal, got " + std::to_string(a) + " and " + std::to_string(b));
}

std::int64_t dim(const Shape& shape, int axis) { return shape.has_rank() ? shape[axis] : Shape::kUnknown; }

void check(InferContext& c, const QueryInputs& in) {
  if (c.attr("max_length", std::int64_t{0}) < 0) c.fail("max_length must not be negative");
  if (!(c.attr("scale", 0.0) >= 0)) c.fail("scale must not be negative");
  require_floating(c, 0);
  for (int i = 0; i < in.offsets(); ++i) {
    c.require_rank(i, 3);
    c.require_same_dtype(0, i);
    require_equal(c, "numbers of heads", dim(c.shape(0), 1), dim(c.shape(i), 1));
  }
  require_equal(c, "widths of heads", dim(c.shape(0), 2), dim(c.shape(1), 2));
  require_equal(c, "numbers of values", dim(c.shape(1), 0), dim(c.shape(2), 0));
  if (in.backward) {
    require_equal(c, "numbers of queries", dim(c.shape(0), 0), dim(c.shape(3), 0));
    require_equal(c, "widths of heads", dim(c.shape(2), 2), dim(c.shape(3), 2));
  }
  require_equal(c, "rows of offsets and queries", check_offsets_input(c, in.offsets()), dim(c.shape(0), 0));
}

void infer_forward(InferContext& c) {
  const QueryInputs in = query_inputs_of(c.node(), false);
  check(c, in);
  const std::int64_t rows = dim(c.shape(0), 0), heads = dim(c.shape(0), 1);
  c.output(c.dtype(0), {rows, heads, dim(c.shape(2), 2)});
  c.output(c.dtype(0), {in.softmax ? rows : 0, heads});
}

void infer_backward(InferContext& c) {
  check(c, query_inputs_of(c.node(), true));
  for (const int i : {0, 1, 2}) c.output(c.dtype(i), c.shape(i));
}

/// A head of a row.
template <class T>
struct QueryHead {
  const T *q, *k, *v;              // of the row's first value
  std::int64_t length, qk, width;  // widths of keys and of values
  std::int64_t k_step, v_step;     // from a value to the next
  T scale, share;
  bool softmax;
};

template <class T>
BRAID_INLINE T dot(const T* a, const T* b, std::int64_t n) {
  constexpr int kLanes = 16;
  T acc[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) acc[l] += a[i + l] * b[i + l];
  T sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (int l = 0; l < kLanes; ++l) sum += acc[l];
  return sum;
}

template <class T>
BRAID_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
BRAID_VECTOR_CLONES void forward_head(const QueryHead<T>& h, T* out, T* log_sum) {
  std::fill(out, out + h.width, T(0));
  T most = -std::numeric_limits<T>::infinity(), sum = 0;
  for (std::int64_t j = 0; j < h.length; ++j) {
    const T s = h.scale * dot(h.q, h.k + j * h.k_step, h.qk);
    T weight = s * sigmoid(s) * h.share;
    if (h.softmax) {
      if (s > most) {
        const T factor = std::exp(most - s);
        for (std::int64_t c = 0; c < h.width; ++c) out[c] *= factor;
        sum *= factor;
        most = s;
      }
      weight = std::exp(s - most);
      sum += weight;
    }
    const T* const v = h.v + j * h.v_step;
    for (std::int64_t c = 0; c < h.width; ++c) out[c] += weight * v[c];
  }
  if (!h.softmax) return;
  *log_sum = h.length > 0 ? most + std::log(sum) : T(0);
  for (std::int64_t c = 0; c < h.width && h.length > 0; ++c) out[c] /= sum;
}

/// d_out, out, log_sum and dq are the query's; dk and dv begin at the row's first value.
template <class T>
struct QueryGradient {
  const T *d_out, *out, *log_sum;
  T *dq, *dk, *dv;
};

template <class T>
BRAID_VECTOR_CLONES void backward_head(const QueryHead<T>& h, const QueryGradient<T>& g) {
  std::fill(g.dq, g.dq + h.qk, T(0));
  const T mean = h.softmax ? dot(g.d_out, g.out, h.width) : T(0);
  for (std::int64_t j = 0; j < h.length; ++j) {
    const T *const k = h.k + j * h.k_step, *const v = h.v + j * h.v_step;
    const T s = h.scale * dot(h.q, k, h.qk), d = dot(g.d_out, v, h.width);
    T weight = 0, slope = 0;
    if (h.softmax) {
      weight = std::exp(s - *g.log_sum);
      slope = weight * (d - mean) * h.scale;
    } else {
      const T of_s = sigmoid(s);
      weight = s * of_s * h.share;
      slope = d * h.share * of_s * (T(1) + s * (T(1) - of_s)) * h.scale;
    }
    T *const dk = g.dk + j * h.k_step, *const dv = g.dv + j * h.v_step;
    for (std::int64_t c = 0; c < h.width; ++c) dv[c] = weight * g.d_out[c];
    for (std::int64_t c = 0; c < h.qk; ++c) {
      dk[c] = slope * h.q[c];
      g.dq[c] += slope * k[c];
    }
  }
}

/// What a node says, and where its rows are.
template <class T>
struct Work {
  Work(const PrepareContext& c, bool backward)
      : in(query_inputs_of(c.node, backward)), offsets(c, in.offsets()), values(c.inputs[1].shape[0]) {
    heads = c.inputs[0].shape[1];
    qk = c.inputs[0].shape[2];
    v = c.inputs[2].shape[2];
    scale = static_cast<T>(attention::scale_of(c.node.attrs, qk));
    max_length = c.attr("max_length", std::int64_t{0});
  }
  RaggedOffsets checked(const KernelArgs& args) const {
    const RaggedOffsets rows = offsets.checked(args, values);
    if (max_length > 0 && rows.longest() > max_length)
      throw InvalidArgument(offsets.place() + ": a row has " + std::to_string(rows.longest()) +
                            " values, more than max_length " + std::to_string(max_length));
    return rows;
  }
  QueryHead<T> head(const KernelArgs& args, const RaggedOffsets& rows, T share, std::int64_t row,
                    std::int64_t h) const {
    return {args.in<T>(0) + (row * heads + h) * qk,
            args.in<T>(1) + (rows.begin(row) * heads + h) * qk,
            args.in<T>(2) + (rows.begin(row) * heads + h) * v,
            rows.length(row),
            qk,
            v,
            heads * qk,
            heads * v,
            scale,
            share,
            in.softmax};
  }
  /// piece(head, number) for each head of each row.
  template <class Piece>
  void for_heads(ThreadPool& pool, const KernelArgs& args, const RaggedOffsets& rows,
                 const Piece& piece) const {
    const T share = attention::share_of<T>(max_length, rows.longest());
    pool.parallel_range(rows.rows() * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) piece(head(args, rows, share, p / heads, p % heads), p);
    });
  }

  QueryInputs in;
  OffsetsInput offsets;
  std::int64_t values = 0, heads = 0, qk = 0, v = 0, max_length = 0;
  T scale{};
};

PreparedKernel prepare_forward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [work = Work<T>(c, false), pool = &c.pool](const KernelArgs& args) {
      const RaggedOffsets rows = work.checked(args);
      work.for_heads(*pool, args, rows, [&](const QueryHead<T>& head, std::int64_t p) {
        forward_head(head, args.out<T>(0) + p * work.v, work.in.softmax ? args.out<T>(1) + p : nullptr);
      });
    };
    return kernel;
  });
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [work = Work<T>(c, true), pool = &c.pool](const KernelArgs& args) {
      const RaggedOffsets rows = work.checked(args);
      work.for_heads(*pool, args, rows, [&](const QueryHead<T>& head, std::int64_t p) {
        const std::int64_t first = rows.begin(p / work.heads) * work.heads + p % work.heads;
        const bool softmax = work.in.softmax;
        backward_head(
            head, {args.in<T>(3) + p * work.v, softmax ? args.in<T>(work.in.output()) + p * work.v : nullptr,
                   softmax ? args.in<T>(work.in.output() + 1) + p : nullptr, args.out<T>(0) + p * work.qk,
                   args.out<T>(1) + first * work.qk, args.out<T>(2) + first * work.v});
      });
      const std::int64_t used = rows.used() * work.heads, all = work.values * work.heads;
      std::fill(args.out<T>(1) + used * work.qk, args.out<T>(1) + all * work.qk, T(0));
      std::fill(args.out<T>(2) + used * work.v, args.out<T>(2) + all * work.v, T(0));
    };
    return kernel;
  });
}

void gradient(GradContext& c) {
  if (!c.grad(0).valid()) return;
  std::vector<ValueRef> inputs{c.input(0), c.input(1), c.input(2), c.grad(0), c.input(3)};
  if (attention::is_softmax(c.node().attrs)) inputs.insert(inputs.end(), {c.output(0), c.output(1)});
  const ValueRef dq = c.op("braid.QueryAttentionGrad", inputs, c.node().attrs);
  for (const int i : {0, 1, 2}) c.set_grad(i, ValueRef{dq.node, i});
}

auto cost(int products) {
  return [products](const InferContext& c, std::span<const OutputInfo> outputs) {
    return Cost{2.0 * products * known_elements(c.shape(1)), traffic_bytes(c, outputs)};
  };
}

}  // namespace

void register_query_attention(OpRegistry& registry) {
  OpDef forward{.name = "braid.QueryAttention",
                .traits = computes().names({"output", "log_sum"}),
                .min_inputs = 4,
                .max_inputs = 4,
                .infer = infer_forward,
                .gradient = gradient,
                .cost = cost(2),
                .cpu = prepare_forward,
                .in_files = true};
  OpDef backward{.name = "braid.QueryAttentionGrad",
                 .traits = computes().names({"dq", "dk", "dv"}),
                 .min_inputs = 5,
                 .max_inputs = 7,
                 .infer = infer_backward,
                 .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                 .cost = cost(5),
                 .cpu = prepare_backward};
  registry.add(takes_halves(std::move(forward), {.inputs = {0, 1, 2}, .outputs = {0}}));
  registry.add(takes_halves(std::move(backward), {.inputs = {0, 1, 2, 3}, .outputs = {0, 1, 2}}));
}

}  // namespace braid
