// Attention within the rows of ragged values (ragged_offsets.h has the terms, ragged_mask.h who sees whom):
//   braid.RaggedAttention(q [n, H, dq], k [n, H, dq], v [n, H, dv], offsets [B + 1], [targets [B]])
//     -> output [n, H, dv], log_sum [n, H] (of silu [0, H])
//   S = scale q k^T;   activation "silu": A = S sigmoid(S) / N (Zhai et al. 2024, HSTU), N is max_length, or
//   without one the longest row of the batch; "softmax": A = softmax(S). Both over the keys that a query
//   sees; output = A v. Each of the H heads by itself.
// `targets`: how many of a row's last values are candidates; none without it. Attributes: activation, scale
// (0: 1 / sqrt(dq)), causal (true), window (0: none), context (0), max_length (0).
//   braid.RaggedAttentionGrad(q, k, v, d_output, offsets, [targets], of softmax [output, log_sum])
//     -> dq, dk, dv
// With `heads` and `first_heads` q, k and v are parts of wider values [n, more heads, d]; with `joined_heads`
// dq, dk and dv are parts of one output [n, joined_heads, d], and further inputs [n, ...] are copied to where
// `rest_columns` says (attention_node.h). Devices alone have kernels for both.
// Scores are computed again for gradients. A head of a row is one piece of work; sums are in the values'
// type.
#include <array>
#include <string>
#include <utility>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/ragged/attention_head.h"
#include "engine/ops/ragged/attention_node.h"
#include "engine/ops/ragged/ragged_offsets.h"

namespace braid {
namespace {

using attention::Activation;
using attention::HeadParts;
using attention::HeadSizes;
using attention::Inputs;
using attention::inputs_of;
using attention::is_softmax;

constexpr std::int64_t kMostAtOnce = 64;  // pieces of work that have scratch of their own

void check_attributes(const InferContext& c) {
  for (const char* name : {"window", "context", "max_length"})
    if (c.attr(name, std::int64_t{0}) < 0) c.fail(std::string(name) + " must not be negative");
  if (!(c.attr("scale", 0.0) >= 0)) c.fail("scale must not be negative");
}

void require_equal(const InferContext& c, const char* what, std::int64_t a, std::int64_t b) {
  if (a >= 0 && b >= 0 && a != b)
    c.fail(std::string(what) + " must be equal, got " + std::to_string(a) + " and " + std::to_string(b));
}

/// Whether parts are inputs' own, and all inputs are there that the attributes speak of.
void check_parts(const InferContext& c, const Inputs& in, const HeadParts& parts) {
  if (parts.joined > 0 && (!in.backward || parts.gradients.size() != 3))
    c.fail("joined_heads needs first_gradients of dq, dk and dv");
  const int expected = in.offsets() + (in.targets ? 2 : 1) + (in.backward && in.softmax ? 2 : 0) +
                       static_cast<int>(parts.rest.size());
  if (c.inputs() != expected)
    c.fail("it has " + std::to_string(c.inputs()) + " inputs, not " + std::to_string(expected));
  for (int i = 0; i < 3; ++i) {
    const Shape& shape = c.shape(i);
    if (!shape.has_rank() || shape[1] < 0) continue;
    if (parts.heads > 0 && parts.first_of(static_cast<std::size_t>(i)) + parts.heads > shape[1])
      c.fail("input " + std::to_string(i) + " has " + std::to_string(shape[1]) +
             " heads, fewer than its part");
  }
}

/// Checks q, k, v and, where it is there, the gradient, which is as v is, and offsets and targets.
void check(InferContext& c, const Inputs& in) {
  check_attributes(c);
  require_floating(c, 0);
  for (int i = 0; i < in.offsets(); ++i) {
    c.require_rank(i, 3);
    c.require_same_dtype(0, i);
  }
  const HeadParts parts(c.node().attrs);
  check_parts(c, in, parts);
  const auto meet = [&](int a, int b, std::initializer_list<int> axes) {
    for (const int axis : axes)
      if (c.shape(a).has_rank() && c.shape(b).has_rank() && !(axis == 1 && parts.heads > 0))
        require_equal(c,
                      axis == 2   ? "widths of heads"
                      : axis == 1 ? "numbers of heads"
                                  : "numbers of values",
                      c.shape(a)[axis], c.shape(b)[axis]);
  };
  meet(0, 1, {0, 1, 2});
  meet(0, 2, {0, 1});
  if (in.backward) meet(2, 3, {0, 1, 2});
  const std::int64_t batch = check_offsets_input(c, in.offsets());
  if (!in.targets) return;
  require_index_dtype(c, in.of_targets());
  c.require_rank(in.of_targets(), 1);
  require_equal(c, "rows of offsets and of targets", batch, rows_of(c.shape(in.of_targets())));
}

std::int64_t dim(const Shape& shape, int axis) { return shape.has_rank() ? shape[axis] : Shape::kUnknown; }

/// What two shapes say together.
std::int64_t either(std::int64_t a, std::int64_t b) { return a < 0 ? b : a; }

void infer_forward(InferContext& c) {
  const Inputs in = inputs_of(c.node(), false);
  check(c, in);
  const auto known = [&](int axis) {
    return either(either(dim(c.shape(0), axis), dim(c.shape(1), axis)), dim(c.shape(2), axis));
  };
  const HeadParts parts(c.node().attrs);
  const std::int64_t values = known(0), heads = parts.heads > 0 ? parts.heads : known(1);
  c.output(c.dtype(0), {values, heads, dim(c.shape(2), 2)});
  c.output(c.dtype(0), {in.softmax ? values : 0, heads});
}

void infer_backward(InferContext& c) {
  check(c, inputs_of(c.node(), true));
  const HeadParts parts(c.node().attrs);
  if (parts.joined > 0) return c.output(c.dtype(0), {dim(c.shape(0), 0), parts.joined, dim(c.shape(0), 2)});
  for (const int i : {0, 1, 2}) {
    Shape shape = c.shape(i);
    if (parts.heads > 0 && shape.has_rank()) shape = {shape[0], parts.heads, shape[2]};
    c.output(c.dtype(i), shape);
  }
}

/// What a node says, and where its rows are.
template <class T>
struct Work {
  Work(const PrepareContext& c, bool backward)
      : in(inputs_of(c.node, backward)), offsets(c, in.offsets()), values(c.inputs[0].shape[0]) {
    if (HeadParts(c.node.attrs).are_there())
      c.fail("values that are parts of wider ones have no kernel here");
    heads = c.inputs[0].shape[1];
    const std::int64_t qk = c.inputs[0].shape[2], v = c.inputs[2].shape[2];
    sizes = {in.softmax ? Activation::Softmax : Activation::Silu,
             qk,
             v,
             heads * qk,
             heads * qk,
             heads * v,
             heads * v,
             heads};
    scale = static_cast<T>(attention::scale_of(c.node.attrs, sizes.qk));
    rules = attention::rules_of(c.node.attrs);
    max_length = c.attr("max_length", std::int64_t{0});
    if (in.targets) target_type = c.inputs[static_cast<std::size_t>(in.of_targets())].dtype;
    pieces = offsets.rows() * heads;
    at_once = std::min(pieces, kMostAtOnce);
  }

  std::int64_t targets(const KernelArgs& args, std::int64_t row) const {
    if (!in.targets) return 0;
    return target_type == DType::Int64 ? args.in<std::int64_t>(in.of_targets())[row]
                                       : args.in<std::int32_t>(in.of_targets())[row];
  }
  /// Offsets that are checked, with the targets. Throws: InvalidArgument.
  RaggedOffsets checked(const KernelArgs& args) const {
    const RaggedOffsets rows = offsets.checked(args, values);
    for (std::int64_t b = 0; b < rows.rows(); ++b) {
      const std::int64_t candidates = targets(args, b), length = rows.length(b);
      if (candidates < 0 || candidates > length)
        throw InvalidArgument(offsets.place() + ": targets[" + std::to_string(b) +
                              "] = " + std::to_string(candidates) + " is not in [0, " +
                              std::to_string(length) + "], the length of the row");
      if (max_length > 0 && length > max_length)
        throw InvalidArgument(offsets.place() + ": row " + std::to_string(b) + " has " +
                              std::to_string(length) + " values, more than max_length " +
                              std::to_string(max_length));
    }
    return rows;
  }
  T share(const RaggedOffsets& rows) const {
    return T(1) / static_cast<T>(std::max<std::int64_t>(max_length > 0 ? max_length : rows.longest(), 1));
  }
  attention::Head<T, RowMask> head(const KernelArgs& args, const RaggedOffsets& rows, T share,
                                   std::int64_t row, std::int64_t h) const {
    const std::int64_t begin = rows.begin(row), length = rows.length(row);
    return {args.in<T>(0) + begin * sizes.q_step + h * sizes.qk,
            args.in<T>(1) + begin * sizes.q_step + h * sizes.qk,
            args.in<T>(2) + begin * sizes.v_step + h * sizes.v,
            {rules, length, length - targets(args, row)},
            scale,
            share};
  }
  /// piece(row, head, scratch) for all of them; `each`: numbers of scratch.
  template <class Piece>
  void for_pieces(ThreadPool& pool, const KernelArgs& args, std::int64_t each, const Piece& piece) const {
    pool.parallel_range(at_once, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t lane = begin; lane < end; ++lane)
        for (std::int64_t p = lane; p < pieces; p += at_once)
          piece(p / heads, p % heads, static_cast<T*>(args.scratch) + lane * each);
    });
  }

  Inputs in;
  OffsetsInput offsets;
  HeadSizes sizes;
  MaskRules rules;
  T scale{};
  std::int64_t heads = 0, values = 0, max_length = 0, pieces = 0, at_once = 0;
  DType target_type = DType::Int64;
};

template <class T>
void zero_rest(T* values, std::int64_t used, std::int64_t all, std::int64_t row) {
  std::fill(values + used * row, values + all * row, T(0));
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Work<T> work(c, false);
    const std::int64_t each = attention::ForwardScratch<T>(nullptr, work.sizes).size;
    PreparedKernel kernel;
    kernel.scratch_bytes = static_cast<std::size_t>(work.at_once * each) * sizeof(T);
    kernel.run = [work, each, pool = &c.pool](const KernelArgs& args) {
      const RaggedOffsets rows = work.checked(args);
      const HeadSizes& s = work.sizes;
      const T share = work.share(rows);
      work.for_pieces(*pool, args, each, [&](std::int64_t row, std::int64_t h, T* scratch) {
        const std::int64_t begin = rows.begin(row);
        const attention::HeadOutput<T> to{args.out<T>(0) + begin * s.v_step + h * s.v,
                                          work.in.softmax ? args.out<T>(1) + begin * work.heads + h : nullptr,
                                          nullptr};
        attention::forward(s, work.head(args, rows, share, row, h), to,
                           attention::ForwardScratch<T>(scratch, s), 0, rows.length(row));
      });
      zero_rest(args.out<T>(0), rows.used(), work.values, s.v_step);
      if (work.in.softmax) zero_rest(args.out<T>(1), rows.used(), work.values, work.heads);
    };
    return kernel;
  });
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Work<T> work(c, true);
    const std::int64_t each = attention::BackwardScratch<T>(nullptr, work.sizes).size;
    PreparedKernel kernel;
    kernel.scratch_bytes = static_cast<std::size_t>(work.at_once * each) * sizeof(T);
    kernel.run = [work, each, pool = &c.pool](const KernelArgs& args) {
      const RaggedOffsets rows = work.checked(args);
      const HeadSizes& s = work.sizes;
      const T share = work.share(rows);
      for (const int i : {0, 1, 2}) zero_rest(args.out<T>(i), 0, work.values, i < 2 ? s.q_step : s.v_step);
      work.for_pieces(*pool, args, each, [&](std::int64_t row, std::int64_t h, T* scratch) {
        const std::int64_t begin = rows.begin(row);
        const std::int64_t qk = begin * s.q_step + h * s.qk, v = begin * s.v_step + h * s.v;
        const int output = work.in.output();
        const attention::HeadGradient<T> g{
            work.in.softmax ? args.in<T>(output) + v : nullptr,
            work.in.softmax ? args.in<T>(output + 1) + begin * work.heads + h : nullptr,
            nullptr,
            args.in<T>(3) + v,
            args.out<T>(0) + qk,
            args.out<T>(1) + qk,
            args.out<T>(2) + v};
        attention::backward(s, work.head(args, rows, share, row, h), g,
                            attention::BackwardScratch<T>(scratch, s));
      });
    };
    return kernel;
  });
}

void gradient(GradContext& c) {
  if (!c.grad(0).valid()) return;
  std::vector<ValueRef> inputs{c.input(0), c.input(1), c.input(2), c.grad(0)};
  for (int i = 3; i < static_cast<int>(c.node().inputs.size()); ++i) inputs.push_back(c.input(i));
  if (is_softmax(c.node().attrs)) inputs.insert(inputs.end(), {c.output(0), c.output(1)});
  const ValueRef dq = c.op("braid.RaggedAttentionGrad", inputs, c.node().attrs);
  for (const int i : {0, 1, 2}) c.set_grad(i, ValueRef{dq.node, i});
}

/// As if all values were of one row in `rows`.
auto cost(int products) {
  return [products](const InferContext& c, std::span<const OutputInfo> outputs) {
    const Inputs in = inputs_of(c.node(), products > 2);
    const double values = std::max<double>(1, static_cast<double>(dim(c.shape(0), 0)));
    const double rows = std::max<double>(1, static_cast<double>(rows_of(c.shape(in.offsets())) - 1));
    const std::int64_t heads = HeadParts(c.node().attrs).heads;
    double width = known_elements(c.shape(0)) / values;
    if (heads > 0)
      width = static_cast<double>(heads) * std::max<double>(1, static_cast<double>(dim(c.shape(0), 2)));
    return Cost{products * values * values / rows * width, traffic_bytes(c, outputs)};
  };
}

}  // namespace

void register_ragged_attention(OpRegistry& registry) {
  OpDef forward{.name = "braid.RaggedAttention",
                .traits = computes().names({"output", "log_sum"}),
                .min_inputs = 4,
                .max_inputs = 5,
                .infer = infer_forward,
                .gradient = gradient,
                .cost = cost(2),
                .cpu = prepare_forward,
                .in_files = true};
  OpDef backward{.name = "braid.RaggedAttentionGrad",
                 .traits = computes().names({"dq", "dk", "dv"}),
                 .min_inputs = 5,
                 .max_inputs = -1,  // those that are copied beside gradients are last
                 .infer = infer_backward,
                 .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                 .cost = cost(5),
                 .cpu = prepare_backward};
  registry.add(takes_halves(std::move(forward), {.inputs = {0, 1, 2}, .outputs = {0}}));
  registry.add(takes_halves(std::move(backward), {.inputs = {0, 1, 2, 3}, .outputs = {0, 1, 2}}));
}

}  // namespace braid
