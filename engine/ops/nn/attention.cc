// Attention over rows of equal lengths, without a matrix of all scores:
//   braid.Attention(q [..., H, n, d], k [..., H, m, d], v [..., H, m, e], [mask])
//     -> output [..., H, n, e], sums [..., H, n, 2]
//   S = scale q k^T, masked; A = softmax(S) over the keys; output = A v; sums: the largest S of a query,
//   and the logarithm of the sum of exp(S - that). Both apart: their sum would not show that one behind a
//   mask of -1e9.
// With `heads_inside` values lie as [..., n, H, d], and sums as [..., n, H, 2]. There may be no axes in
// front of n.
// `mask` broadcasts to [..., H, n, m], whatever the layout. Of the values' type it is added to S; of bool, S
// is `hidden` where it is false. Attributes: scale (1 / sqrt(d) where it is not there),
// causal (false), causal_offset (0: query i sees keys up to i; k: up to i + k), hidden (-1e30).
// A query that sees nothing (causality hides all keys, or S is -inf everywhere) gets zeros, and gives none a
// gradient; its sums are 0 and infinity.
//   braid.AttentionGrad(q, k, v, d_output, output, sums, [mask]) -> dq, dk, dv, [d_mask]
// d_mask is there with `mask_gradient`, which takes a mask of numbers for all queries and keys, [..., n, m].
// Queries, keys and values may be parts of wider inputs, as of one product that makes all of them: attributes
// q_shape and q_part (first, outer, head, row: elements in front of the first value, and from one to the
// next) say where in input 0 they are; k_, v_. Gradients may lie side by side in one output of joined_shape,
// whose other two are empty then: dq_part, dk_part, dv_part. Parts cover the joined output. Scores are
// computed again for gradients. A head, forwards also a part of its queries, is one piece of work
// (engine/ops/ragged/attention_head.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/attention_node.h"
#include "engine/ops/ragged/attention_head.h"
#include "engine/ops/ragged/dense_mask.h"

namespace braid {
namespace {

using attention::DenseNode;
using Dims = std::vector<std::int64_t>;

constexpr std::int64_t kMostAtOnce = 64;  // pieces of work that have scratch of their own

std::int64_t dim(const Shape& shape, int axis) { return shape.has_rank() ? shape[axis] : Shape::kUnknown; }

void require_equal(const InferContext& c, const char* what, const Shape& a, int axis_a, const Shape& b,
                   int axis_b) {
  const std::int64_t x = dim(a, axis_a), y = dim(b, axis_b);
  if (x >= 0 && y >= 0 && x != y)
    c.fail(std::string(what) + " must be equal, got " + std::to_string(x) + " and " + std::to_string(y));
}

Shape values_of(const InferContext& c, int i) {
  return attention::values_shape(c.node().attrs, i, c.shape(i));
}

/// That values of `shape` which lie so are elements of `whole`.
void check_part(const InferContext& c, const char* part, const Shape& shape, const Shape& whole) {
  const auto at = c.attr<std::vector<std::int64_t>>(part, {});
  if (at.empty()) return;
  if (at.size() != 4 || !shape.is_static())
    c.fail(std::string(part) + " must be four numbers of a known shape");
  if (!whole.is_static() || shape.elements() == 0) return;
  const bool inside = attention::heads_inside(c.node().attrs);
  const int rank = shape.rank(), row = attention::row_axis(rank, inside),
            head = attention::head_axis(rank, inside);
  std::int64_t outer = 1;
  for (int a = 0; a < std::min(head, row); ++a) outer *= shape[a];
  const std::int64_t last = at[0] + (outer - 1) * at[1] + (head < 0 ? 0 : (shape[head] - 1) * at[2]) +
                            (shape[row] - 1) * at[3] + shape[rank - 1] - 1;
  if (*std::min_element(at.begin(), at.end()) < 0 || last >= whole.elements())
    c.fail(std::string(part) + " is behind the end of " + whole.to_string());
}

void check_mask(const InferContext& c, int mask, bool inside) {
  if (c.dtype(mask) != DType::Bool) c.require_same_dtype(0, mask);
  const Shape q = values_of(c, 0), k = values_of(c, 1), &given = c.shape(mask);
  if (!q.has_rank() || !k.has_rank() || !given.has_rank()) return;
  const Shape scores = attention::scores_of(q, k, inside);
  Shape both;
  if (given.rank() > scores.rank() || !broadcast_shapes(given, scores, both) ||
      (scores.is_static() && both != scores))
    c.fail("mask " + given.to_string() + " does not broadcast to scores " + scores.to_string());
  if (c.attr(attention::kMaskGradient, false) && given.is_static() && scores.is_static()) {
    const int rank = given.rank(), of = scores.rank();
    if (rank < 2 || given[rank - 1] != scores[of - 1] || given[rank - 2] != scores[of - 2])
      c.fail("the mask " + given.to_string() + " has a gradient, but not each query and key of " +
             scores.to_string());
  }
  if (given.is_static() && scores.is_static() && !attention::mask_steps(given, scores))
    c.fail("mask " + given.to_string() + " does not lie in even steps through the axes in front of heads");
}

/// The rank of all values, or -1. Checks q, k, v, and of the gradient d_output, output and sums.
int check(InferContext& c, bool backward) {
  const bool inside = attention::heads_inside(c.node().attrs);
  require_floating(c, 0);
  const int values = backward ? 6 : 3, before_mask = backward ? attention::kDenseBackward : 3;
  int rank = -1;
  std::vector<Shape> shapes;
  for (int i = 0; i < values; ++i) {
    shapes.push_back(i < 3 ? values_of(c, i) : c.shape(i));
    if (shapes.back() == c.shape(i)) require_min_rank(c, i, inside ? 3 : 2);
    c.require_same_dtype(0, i);
    if (shapes.back().has_rank()) rank = shapes.back().rank();
  }
  if (rank < 0) return rank;
  for (int i = 0; i < values; ++i)
    if (shapes[static_cast<std::size_t>(i)] == c.shape(i)) c.require_rank(i, rank);
  const int row = attention::row_axis(rank, inside);
  const auto at = [&](int i) -> const Shape& { return shapes[static_cast<std::size_t>(i)]; };
  for (int i = 1; i < values; ++i)
    for (int a = 0; a + 1 < rank; ++a)
      if (a != row) require_equal(c, "axes in front of rows", at(0), a, at(i), a);
  require_equal(c, "widths of queries and keys", at(0), rank - 1, at(1), rank - 1);
  require_equal(c, "numbers of keys and values", at(1), row, at(2), row);
  for (int i = 0; i < 3; ++i) check_part(c, attention::kParts[i], at(i), c.shape(i));
  if (backward) {
    for (const int i : {3, 4, 5}) {
      require_equal(c, "numbers of queries", at(0), row, at(i), row);
      if (i < 5) require_equal(c, "widths of values and outputs", at(2), rank - 1, at(i), rank - 1);
    }
  }
  if (c.inputs() > before_mask) check_mask(c, before_mask, inside);
  return rank;
}

void infer_forward(InferContext& c) {
  const int rank = check(c, false);
  if (rank < 0) {
    c.output(c.dtype(0), Shape::unknown_rank());
    return c.output(c.dtype(0), Shape::unknown_rank());
  }
  const int row = attention::row_axis(rank, attention::heads_inside(c.node().attrs));
  Dims dims;
  for (int a = 0; a + 1 < rank; ++a) {
    std::int64_t size = dim(values_of(c, 0), a);
    for (int i = 1; i < 3 && a != row && size < 0; ++i) size = dim(values_of(c, i), a);
    dims.push_back(size);
  }
  Dims out = dims;
  out.push_back(dim(values_of(c, 2), rank - 1));
  c.output(c.dtype(0), Shape(std::move(out)));
  dims.push_back(2);
  c.output(c.dtype(0), Shape(std::move(dims)));
}

void infer_backward(InferContext& c) {
  check(c, true);
  const auto joined = c.attr<Dims>(attention::kJoinedShape, {});
  for (const int i : {0, 1, 2}) {
    if (!joined.empty()) check_part(c, attention::kJoinedParts[i], values_of(c, i), Shape(joined));
    c.output(c.dtype(i), joined.empty() ? values_of(c, i) : i == 0 ? Shape(joined) : Shape{0});
  }
  if (!c.attr(attention::kMaskGradient, false)) return;
  if (c.inputs() <= attention::kDenseBackward || c.dtype(attention::kDenseBackward) == DType::Bool)
    c.fail("there is no mask of numbers to have a gradient");
  c.output(c.dtype(attention::kDenseBackward), c.shape(attention::kDenseBackward));
}

template <class T>
struct Work : DenseNode {
  Work(const PrepareContext& c, bool backward)
      : DenseNode(attention::dense_node(c.node, c.inputs, backward)) {
    sizes = {attention::Activation::Softmax, qk, v, at_q.row, at_k.row, at_v.row, at_out.row, at_sums.row};
    sizes.dq_step = at_dq.row;
    sizes.dk_step = at_dk.row;
    sizes.dv_step = at_dv.row;
    is_joined = c.node.attrs.has(attention::kJoinedShape);
    if (mask >= 0) is_bool = c.inputs[static_cast<std::size_t>(mask)].dtype == DType::Bool;
  }
  attention::Head<T, attention::DenseMask<T>> head(const KernelArgs& args, std::int64_t o,
                                                   std::int64_t h) const {
    attention::DenseMask<T> who{{queries, keys, causal, offset}};
    const std::int64_t first = mask_at(o, h);
    if (mask >= 0 && is_bool) who.seen = args.in<bool>(mask) + first;
    if (mask >= 0 && !is_bool) who.added = args.in<T>(mask) + first;
    who.query_step = at_mask.query;
    who.key_step = at_mask.key;
    who.hidden = static_cast<T>(hidden);
    return {args.in<T>(0) + at_q.at(o, h), args.in<T>(1) + at_k.at(o, h),
            args.in<T>(2) + at_v.at(o, h), who,
            static_cast<T>(scale),         T(1)};
  }
  /// piece(outer, head, part, scratch) for all of them, `parts` of each head; `each`: numbers of scratch.
  template <class Piece>
  void for_pieces(ThreadPool& pool, const KernelArgs& args, std::int64_t parts, std::int64_t each,
                  const Piece& piece) const {
    const std::int64_t pieces = heads_of_all() * parts, at_once = std::min(pieces, kMostAtOnce);
    pool.parallel_range(at_once, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t lane = begin; lane < end; ++lane)
        for (std::int64_t p = lane; p < pieces; p += at_once) {
          const std::int64_t head = p / parts;
          piece(head / heads, head % heads, p % parts, static_cast<T*>(args.scratch) + lane * each);
        }
    });
  }
  /// The same of all heads, one behind the other where they share the mask's numbers, as its gradient adds
  /// up.
  template <class Piece>
  void for_sharers(ThreadPool& pool, const KernelArgs& args, std::int64_t each, const Piece& piece) const {
    const std::int64_t groups = mask_heads() * mask_rows(), at_once = std::min(groups, kMostAtOnce);
    const std::int64_t sharing_heads = heads / mask_heads(), sharing_rows = outer / mask_rows();
    pool.parallel_range(at_once, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t lane = begin; lane < end; ++lane)
        for (std::int64_t g = lane; g < groups; g += at_once)
          for (std::int64_t s = 0; s < sharing_heads * sharing_rows; ++s)
            piece(g / mask_heads() + s / sharing_heads, g % mask_heads() + s % sharing_heads,
                  static_cast<T*>(args.scratch) + lane * each);
    });
  }
  std::size_t scratch_bytes(std::int64_t parts, std::int64_t each) const {
    return static_cast<std::size_t>(std::min(heads_of_all() * parts, kMostAtOnce) * each) * sizeof(T);
  }

  T* result(const KernelArgs& args, int i) const { return args.out<T>(is_joined ? 0 : i); }

  attention::HeadSizes sizes;
  bool is_bool = false, is_joined = false;
};

PreparedKernel prepare_forward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Work<T> work(c, false);
    const std::int64_t each = attention::ForwardScratch<T>(nullptr, work.sizes).size;
    const std::int64_t parts = (work.queries + attention::kQueries - 1) / attention::kQueries;
    PreparedKernel kernel;
    kernel.scratch_bytes = work.scratch_bytes(parts, each);
    kernel.run = [work, each, parts, pool = &c.pool](const KernelArgs& args) {
      work.for_pieces(*pool, args, parts, each,
                      [&](std::int64_t o, std::int64_t h, std::int64_t part, T* scratch) {
                        const attention::HeadOutput<T> to{args.out<T>(0) + work.at_out.at(o, h),
                                                          args.out<T>(1) + work.at_sums.at(o, h) + 1,
                                                          args.out<T>(1) + work.at_sums.at(o, h)};
                        const std::int64_t from = part * attention::kQueries;
                        attention::forward(work.sizes, work.head(args, o, h), to,
                                           attention::ForwardScratch<T>(scratch, work.sizes), from,
                                           std::min(from + attention::kQueries, work.queries));
                      });
    };
    return kernel;
  });
}

PreparedKernel prepare_backward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Work<T> work(c, true);
    const std::int64_t each = attention::BackwardScratch<T>(nullptr, work.sizes).size;
    std::vector<std::int64_t> elements;
    for (const OutputInfo& output : c.outputs) elements.push_back(output.shape.elements());
    PreparedKernel kernel;
    kernel.scratch_bytes = work.scratch_bytes(1, each);
    kernel.run = [=, pool = &c.pool](const KernelArgs& args) {
      for (std::size_t i = 0; i < elements.size(); ++i)
        std::fill_n(args.out<T>(static_cast<int>(i)), elements[i], T(0));
      const auto piece = [&](std::int64_t o, std::int64_t h, T* scratch) {
        const std::int64_t out = work.at_out.at(o, h);
        const attention::HeadGradient<T> g{
            args.in<T>(4) + out,
            args.in<T>(5) + work.at_sums.at(o, h) + 1,
            args.in<T>(5) + work.at_sums.at(o, h),
            args.in<T>(3) + out,
            work.result(args, 0) + work.at_dq.at(o, h),
            work.result(args, 1) + work.at_dk.at(o, h),
            work.result(args, 2) + work.at_dv.at(o, h),
            work.mask_gradient ? args.out<T>(3) + work.mask_at(o, h) : nullptr};
        attention::backward(work.sizes, work.head(args, o, h), g,
                            attention::BackwardScratch<T>(scratch, work.sizes));
      };
      if (work.mask_gradient)
        work.for_sharers(*pool, args, each, piece);
      else
        work.for_pieces(*pool, args, 1, each, [&](std::int64_t o, std::int64_t h, std::int64_t, T* scratch) {
          piece(o, h, scratch);
        });
    };
    return kernel;
  });
}

void gradient(GradContext& c) {
  if (!c.grad(0).valid()) return;
  if (c.node().attrs.has(attention::kParts[0]))
    throw InvalidArgument("[" + c.node().op->name + "] node '" + c.node().name +
                          "': gradients are made before its inputs are parts of others");
  std::vector<ValueRef> inputs{c.input(0), c.input(1), c.input(2), c.grad(0), c.output(0), c.output(1)};
  if (c.node().inputs.size() > 3) inputs.push_back(c.input(3));
  const ValueRef dq = c.op("braid.AttentionGrad", inputs, c.node().attrs);
  for (const int i : {0, 1, 2}) c.set_grad(i, ValueRef{dq.node, i});
}

auto cost(int products) {
  return [products](const InferContext& c, std::span<const OutputInfo> outputs) {
    const bool inside = attention::heads_inside(c.node().attrs);
    const Shape k = values_of(c, 1);
    const double keys =
        k.has_rank() ? std::max<double>(1, static_cast<double>(k[attention::row_axis(k.rank(), inside)])) : 1;
    const double seen = c.attr("causal", false) ? 0.5 : 1;
    return Cost{seen * 2 * products * keys * known_elements(values_of(c, 0)), traffic_bytes(c, outputs)};
  };
}

}  // namespace

void register_attention(OpRegistry& registry) {
  OpDef forward{.name = "braid.Attention",
                .traits = computes().names({"output", "sums"}),
                .min_inputs = 3,
                .max_inputs = 4,
                .infer = infer_forward,
                .gradient = gradient,
                .cost = cost(2),
                .cpu = prepare_forward};
  OpDef backward{.name = "braid.AttentionGrad",
                 .traits = computes().output_lists({{"dq"}, {"dk"}, {"dv"}, {"d_mask", "*"}}),
                 .min_inputs = 6,
                 .max_inputs = 7,
                 .infer = infer_backward,
                 .no_gradient_reason = "it is part of a gradient; second derivatives are not made",
                 .cost = cost(5),
                 .cpu = prepare_backward};
  registry.add(takes_halves(std::move(forward), {.inputs = {0, 1, 2}, .outputs = {0}}));
  registry.add(takes_halves(std::move(backward), {.inputs = {0, 1, 2, 3}, .outputs = {0, 1, 2}}));
}

}  // namespace braid
