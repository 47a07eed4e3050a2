// braid.PairDots(x [b, n, d]) -> y [b, p]: y[., k] = <x[., i], x[., j]> for the k-th of the attribute
// "pairs". The vectors may be as many inputs [b, d], whose number is the attribute "vectors". With a further
// input a [b, q] it is y [b, max(q + p, width)]: a's columns, then the products, then zeros up to the
// attribute "width". Its gradient is braid.PairDotsGrad(dy, vectors...) -> one for each input that they are,
// where the products' columns in dy begin at the attribute "offset"; the columns before them, as many as a
// vector has, are added to the gradient of the vector that the attribute "columns_to" numbers (-1: none). The
// compiler makes them of the product of all pairs of vectors of which some are gathered
// (engine/rewrite/dot_interaction.cc).
#include "engine/ops/fused/pair_dots.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {

bool pairs_differ(std::span<const std::int64_t> pairs, std::int64_t n) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  return std::all_of(pairs.begin(), pairs.end(), [&](std::int64_t pair) {
    return pair >= 0 && pair < n * n && seen.insert(std::minmax({pair / n, pair % n})).second;
  });
}

PairVectors pair_vectors(const Node& node, std::span<const OutputInfo> inputs) {
  PairVectors v;
  v.first = node.op->name == "braid.PairDots" ? 0 : 1;
  v.inputs = v.first == 0 ? static_cast<int>(node.attrs.get<std::int64_t>("vectors", 1))
                          : static_cast<int>(inputs.size()) - 1;
  const Shape& x = inputs[static_cast<std::size_t>(v.first)].shape;
  v.examples = x[0];
  v.n = x.rank() == 3 ? x[1] : v.inputs;
  v.width = x[x.rank() - 1];
  return v;
}

std::int64_t columns_before_pairs(const PrepareContext& c) {
  const auto vectors = static_cast<std::size_t>(pair_vectors(c.node, c.inputs).inputs);
  return c.inputs.size() > vectors ? c.inputs[vectors].shape[1] : 0;
}

namespace {

using Pairs = std::vector<std::int64_t>;

/// How many examples the inputs `first` and `count` - 1 after it are vectors of, or kUnknown. Fails where
/// they are none, or the pairs do not fit them.
std::int64_t examples_of(InferContext& c, int first, std::int64_t count) {
  if (count < 1 || first + count > c.inputs())
    c.fail("expected " + std::to_string(count) + " inputs that are vectors");
  require_dtype(c, first, {DType::Float32, DType::Float64});
  Shape common = Shape::unknown_rank();
  for (int i = first; i < first + count; ++i) {
    c.require_same_dtype(first, i);
    if (!merge_shapes(common, c.shape(i), common))
      c.fail("vectors of different shapes: " + common.to_string() + " and " + c.shape(i).to_string());
  }
  if (!common.has_rank()) return Shape::kUnknown;
  if (common.rank() != 2 && (common.rank() != 3 || count != 1))
    c.fail("expected vectors [b, n, d], or each [b, d], got " + common.to_string());
  const std::int64_t n = common.rank() == 3 ? common[1] : count;
  if (n >= 0 && !pairs_differ(c.attr<Pairs>("pairs", {}), n))
    c.fail("pairs: expected different ones of " + std::to_string(n) + " vectors");
  return common[0];
}

std::int64_t pair_count(const InferContext& c) {
  return static_cast<std::int64_t>(c.attr<Pairs>("pairs", {}).size());
}

void infer(InferContext& c) {
  const auto vectors = c.attr<std::int64_t>("vectors", 1);
  std::int64_t rows = examples_of(c, 0, vectors), before = 0;
  const auto a_input = static_cast<int>(vectors);
  if (c.inputs() > a_input + 1) c.fail("expected no more than one input beside the vectors");
  if (c.inputs() > a_input) {
    c.require_same_dtype(0, a_input);
    c.require_rank(a_input, 2);
    const Shape a = c.shape(a_input).has_rank() ? c.shape(a_input) : Shape{-1, -1};
    if (rows >= 0 && a[0] >= 0 && a[0] != rows)
      c.fail("expected columns of " + std::to_string(rows) + " examples, got " + a.to_string());
    rows = std::max(rows, a[0]);
    before = a[1];
  }
  const auto width = c.attr<std::int64_t>("width", 0);
  c.output(c.dtype(0), {rows, before < 0 ? Shape::kUnknown : std::max(before + pair_count(c), width)});
}

void infer_grad(InferContext& c) {
  c.require_same_dtype(0, 1);
  examples_of(c, 1, c.inputs() - 1);
  const Shape dy = c.shape(0);
  const std::int64_t end = c.attr<std::int64_t>("offset", 0) + pair_count(c);
  if (dy.has_rank() && (dy.rank() != 2 || (dy[1] >= 0 && dy[1] < end)))
    c.fail("expected a gradient of at least " + std::to_string(end) + " columns, got " + dy.to_string());
  if (const auto to = c.attr<std::int64_t>("columns_to", -1); to >= 0) {
    const Shape& x = c.shape(1);
    if (to >= c.inputs() - 1 || c.inputs() < 3)
      c.fail("columns_to: there is no vector " + std::to_string(to));
    if (x.has_rank() && x[1] >= 0 && x[1] != c.attr<std::int64_t>("offset", 0))
      c.fail("columns_to: the columns before the products are not those of a vector");
  }
  for (int i = 1; i < c.inputs(); ++i) c.output(c.dtype(i), c.shape(i));
}

template <class T>
BRAID_VECTOR_CLONES T dot(const T* a, const T* b, std::int64_t d) {
  T sum = 0;
  for (std::int64_t k = 0; k < d; ++k) sum += a[k] * b[k];
  return sum;
}

template <class T>
BRAID_VECTOR_CLONES void add_scaled(T* to, T factor, const T* from, std::int64_t d) {
  for (std::int64_t k = 0; k < d; ++k) to[k] += factor * from[k];
}

/// Vector i of example b among inputs or outputs that begin at `memory`.
template <class T, class P>
T* vector_at(const PairVectors& v, P* memory, std::int64_t b, std::int64_t i) {
  T* const first = static_cast<T*>(memory[v.inputs == 1 ? 0 : i]) + b * v.example_stride();
  return v.inputs == 1 ? first + i * v.width : first;
}

template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const PairVectors v = pair_vectors(c.node, c.inputs);
  return parallel_kernel(
      c, v.examples, row_grain(v.n * v.n * v.width),
      [v, before = columns_before_pairs(c), width = c.outputs[0].shape[1],
       pairs = c.attr<Pairs>("pairs", {})](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; ++b) {
          T* y = a.out<T>(0) + b * width;
          T* const last = y + width;
          if (before > 0) y = std::copy_n(a.in<T>(v.inputs) + b * before, before, y);
          for (const std::int64_t pair : pairs)
            *y++ = dot(vector_at<const T>(v, a.inputs, b, pair / v.n),
                       vector_at<const T>(v, a.inputs, b, pair % v.n), v.width);
          std::fill(y, last, T(0));
        }
      });
}

template <class T>
PreparedKernel prepare_grad_of(const PrepareContext& c) {
  const PairVectors v = pair_vectors(c.node, c.inputs);
  return parallel_kernel(
      c, v.examples, row_grain(v.n * v.n * v.width),
      [v, width = c.inputs[0].shape[1], offset = c.attr<std::int64_t>("offset", 0),
       columns_to = c.attr<std::int64_t>("columns_to", -1),
       pairs = c.attr<Pairs>("pairs", {})](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; ++b) {
          for (std::int64_t i = 0; i < v.n; ++i) std::fill_n(vector_at<T>(v, a.outputs, b, i), v.width, T(0));
          const T* dy = a.in<T>(0) + b * width + offset;
          for (const std::int64_t pair : pairs) {
            const std::int64_t i = pair / v.n, j = pair % v.n;
            add_scaled(vector_at<T>(v, a.outputs, b, i), *dy, vector_at<const T>(v, a.inputs + 1, b, j),
                       v.width);
            add_scaled(vector_at<T>(v, a.outputs, b, j), *dy, vector_at<const T>(v, a.inputs + 1, b, i),
                       v.width);
            ++dy;
          }
          if (columns_to >= 0)
            add_scaled(vector_at<T>(v, a.outputs, b, columns_to), T(1), a.in<T>(0) + b * width, v.width);
        }
      });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}
PreparedKernel prepare_grad(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_grad_of<double>(c) : prepare_grad_of<float>(c);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Node& node = c.node();
  const bool is_gradient = node.op->name == "braid.PairDotsGrad";
  const Shape& x = c.shape(is_gradient ? 1 : 0);
  if (!x.is_static()) return {0, traffic_bytes(c, outputs)};
  const auto inputs = static_cast<std::int64_t>(node.inputs.size()) - 1;
  const std::int64_t n = x.rank() == 3 ? x[1]
                         : is_gradient ? inputs
                                       : node.attrs.get<std::int64_t>("vectors", 1);
  return {4.0 * static_cast<double>(x[0] * n * n * x[x.rank() - 1]), traffic_bytes(c, outputs)};
}

}  // namespace

void register_pair_dots(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.PairDots";
  def.traits = computes();
  def.min_inputs = 1;
  def.max_inputs = -1;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(std::move(def));

  OpDef grad;
  grad.name = "braid.PairDotsGrad";
  grad.traits = computes().output_list();
  grad.min_inputs = 2;
  grad.max_inputs = -1;
  grad.infer = infer_grad;
  grad.no_gradient_reason = "fusion makes it after differentiation";
  grad.cost = cost;
  grad.cpu = prepare_grad;
  registry.add(std::move(grad));
}

}  // namespace braid
