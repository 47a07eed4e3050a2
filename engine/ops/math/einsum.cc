// Einsum(a[, b]), attribute equation ("bij,bjk->bik", "...ij,jk->...ik"): of two operands a batched matrix
// product, of one a transpose or a sum over axes. Labels are letters, "..." stands for axes that broadcast, a
// label that an operand has twice takes the diagonal. Operands are brought into the order [batch, rows,
// columns] in scratch where they are not, then multiplied. Gradient: each operand's is the Einsum of dy and
// the other one, spread over the axes that were summed alone and onto diagonals.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/gemm.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/einsum_plan.h"

namespace braid {
namespace {

constexpr std::string_view kDots = EinsumEquation::kDots;

template <class Context>
Fail fail_of(const Context& c) {
  return [&c](const std::string& message) { c.fail(message); };
}

void infer(InferContext& c) {
  require_number(c, 0);
  std::vector<Shape> shapes;
  for (int i = 0; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    shapes.push_back(c.shape(i));
  }
  const EinsumEquation equation(c.attr("equation", std::string()), shapes.size(), fail_of(c));
  if (!std::all_of(shapes.begin(), shapes.end(), [](const Shape& s) { return s.has_rank(); })) {
    const bool has_dots = equation.output.find(kDots) != std::string::npos;
    const std::vector<std::int64_t> unknown(equation.output.size(), Shape::kUnknown);
    return c.output(c.dtype(0), has_dots ? Shape::unknown_rank() : Shape(unknown));
  }
  const EinsumPlan plan(equation, shapes, fail_of(c));
  std::vector<std::int64_t> dims;
  for (const int label : plan.output) dims.push_back(plan.sizes.at(label));
  c.output(c.dtype(0), Shape(std::move(dims)));
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

PreparedKernel prepare_product(const PrepareContext& c, const EinsumPlan& plan,
                               const std::vector<Shape>& shapes) {
  const std::size_t element = dtype_size(c.inputs[0].dtype);
  const EinsumProduct product(plan, shapes, c.outputs[0].shape, element);
  Gemm g;
  g.m = product.m;
  g.n = product.n;
  g.k = product.k;
  g.transpose_a = product.transpose_first;
  g.transpose_b = product.transpose_second;
  g.a_index.clear();
  for (std::int64_t i = 0; i < product.batch; ++i) g.a_index.push_back(i);
  g.b_index = g.a_index;
  const auto bytes = [&](const std::optional<BoxCopy>& copy, std::int64_t n) {
    return copy ? aligned(static_cast<std::size_t>(n) * element) : 0;
  };
  const std::size_t first_bytes = bytes(product.first_copy, product.first_elements());
  const std::size_t second_bytes = bytes(product.second_copy, product.second_elements());
  const std::size_t result_bytes = bytes(product.result_copy, product.result_elements());
  PreparedKernel kernel = prepare_gemm(c, g);
  kernel.scratch_bytes = aligned(kernel.scratch_bytes) + first_bytes + second_bytes + result_bytes;
  kernel.run = [=, multiply = std::move(kernel.run), pool = &c.pool](const KernelArgs& args) {
    char* at = static_cast<char*>(args.scratch);
    const auto take = [&at](std::size_t n) { return std::exchange(at, at + n); };
    void* inputs[] = {args.inputs[product.first], args.inputs[product.second()]};
    void* outputs[] = {args.outputs[0]};
    if (product.first_copy) {
      const void* from = std::exchange(inputs[0], take(first_bytes));
      product.first_copy->run(*pool, from, inputs[0]);
    }
    if (product.second_copy) {
      const void* from = std::exchange(inputs[1], take(second_bytes));
      product.second_copy->run(*pool, from, inputs[1]);
    }
    if (product.result_copy) outputs[0] = take(result_bytes);
    KernelArgs inside = args;
    inside.inputs = inputs;
    inside.outputs = outputs;
    inside.scratch = at;
    multiply(inside);
    if (product.result_copy) product.result_copy->run(*pool, outputs[0], args.outputs[0]);
  };
  return kernel;
}

/// Each output's terms in row-major order.
template <class T>
PreparedKernel prepare_sum(const PrepareContext& c, const EinsumSum& sum) {
  return parallel_kernel(c, sum.outputs, row_grain(sum.terms),
                         [sum](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           for (std::int64_t i = begin; i < end; ++i) {
                             const T* x = a.in<T>(0) + sum.kept.offset(i);
                             wrapping_t<T> total = 0;
                             for (std::int64_t k = 0; k < sum.terms; ++k)
                               total += static_cast<wrapping_t<T>>(x[sum.summed.offset(k)]);
                             a.out<T>(0)[i] = static_cast<T>(total);
                           }
                         });
}

PreparedKernel prepare(const PrepareContext& c) {
  std::vector<Shape> shapes;
  for (const OutputInfo& input : c.inputs) shapes.push_back(input.shape);
  const EinsumEquation equation(c.attr("equation", std::string()), shapes.size(), fail_of(c));
  const EinsumPlan plan(equation, shapes, fail_of(c));
  if (shapes.size() == 2) return prepare_product(c, plan, shapes);
  return with_number("Einsum", c.inputs[0].dtype,
                     [&]<class T>() { return prepare_sum<T>(c, EinsumSum(plan, shapes[0])); });
}

bool has(const std::string& text, char label) { return text.find(label) != std::string::npos; }

/// Ones where the axes `first` and `second` of the operand agree, of size 1 in the others.
ValueRef diagonal(GradContext& c, int input, const Shape& shape, int first, int second) {
  const std::int64_t n = shape[first];
  std::vector<std::int64_t> dims(static_cast<std::size_t>(shape.rank()), 1);
  dims[static_cast<std::size_t>(first)] = dims[static_cast<std::size_t>(second)] = n;
  std::vector<float> values(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i * n + i)] = 1;
  const ValueRef ones = c.constant(Tensor::from<float>(Shape(dims), values));
  const DType dtype = c.input_info(input).dtype;
  if (dtype == DType::Float32) return ones;
  return c.op("Cast", {ones}, {{"SrcT", DType::Float32}, {"DstT", dtype}});
}

/// `g`, whose axes are those of `own` that `kept` has, once each, as a value with the axes of `own`.
ValueRef spread(GradContext& c, int input, ValueRef g, const std::string& own, const std::string& kept) {
  if (own == kept) return g;
  const Shape& shape = c.input_info(input).shape;
  const std::size_t dots = std::min(own.find(kDots), own.size());
  const auto is_made = [&](std::size_t at) {
    return own[at] != '.' && (!has(kept, own[at]) || own.find(own[at]) != at);
  };
  const auto expand = [&](std::int64_t axis) {
    const Tensor dim = Tensor::scalar<std::int32_t>(static_cast<std::int32_t>(axis));
    g = c.op("ExpandDims", {g, c.constant(dim)});
  };
  for (std::size_t at = 0; at < dots; ++at)  // axes before "..." by their place, others from the end
    if (is_made(at)) expand(static_cast<std::int64_t>(at));
  for (std::size_t at = own.size(); at-- > dots;)
    if (is_made(at)) expand(static_cast<std::int64_t>(at) - static_cast<std::int64_t>(own.size()));
  bool repeats = false;
  for (std::size_t at = 0; at < own.size(); ++at) {
    repeats = repeats || (own[at] != '.' && !has(kept, own[at]));
    const std::size_t first = own.find(own[at]);
    if (own[at] == '.' || first == at) continue;
    const auto axis_of = [&](std::size_t i) {
      return static_cast<int>(i < dots ? i : i + static_cast<std::size_t>(shape.rank()) - own.size());
    };
    if (!shape.has_rank() || shape[axis_of(at)] == Shape::kUnknown)
      throw InvalidArgument(place_of(c.node()) + ": the size of '" + own[at] +
                            "' must be known for a gradient");
    g = grad::mul(c, g, diagonal(c, input, shape, axis_of(first), axis_of(at)));
  }
  return repeats ? grad::mul(c, g, c.op("OnesLike", {c.input(input)})) : g;
}

/// The labels of `own` that `text` has, once each, with "...".
std::string labels_in(const std::string& own, const std::string& text) {
  std::string kept;
  for (const char label : own)
    if (label == '.' || (has(text, label) && !has(kept, label))) kept += label;
  return kept;
}

void gradient(GradContext& c) {
  const Fail fail = [&c](const std::string& message) {
    throw InvalidArgument(place_of(c.node()) + ": " + message);
  };
  const EinsumEquation e(c.node().attrs.get("equation", std::string()), c.node().inputs.size(), fail);
  const auto einsum = [&](std::vector<ValueRef> inputs, std::string equation) {
    return c.op("Einsum", std::move(inputs), {{"equation", std::move(equation)}});
  };
  if (e.operands.size() == 1) {
    const std::string kept = labels_in(e.operands[0], e.output);
    return c.set_grad(0, spread(c, 0, einsum({c.grad()}, e.output + "->" + kept), e.operands[0], kept));
  }
  for (const int i : {0, 1}) {
    const auto own = static_cast<std::size_t>(i), other = 1 - own;
    // dy has the broadcast axes; a gradient without "..." in its operand is summed over them below.
    std::string target = e.operands[own];
    const bool lost = e.output.find(kDots) != std::string::npos && target.find(kDots) == std::string::npos;
    if (lost) target = std::string(kDots) + target;
    const std::string kept = labels_in(target, e.output + e.operands[other]);
    ValueRef g = einsum({c.grad(), c.input(1 - i)}, e.output + "," + e.operands[other] + "->" + kept);
    g = spread(c, i, g, target, kept);
    const bool may_broadcast = e.output.find(kDots) != std::string::npos;
    c.set_grad(i, may_broadcast ? c.reduce_to(g, c.input(i)) : g);
  }
}

bool is_product(const Node& node, std::span<const OutputInfo>) { return node.inputs.size() == 2; }

}  // namespace

void register_einsum(OpRegistry& registry) {
  registry.add(takes_halves({.name = "Einsum",
                             .traits = computes(),
                             .min_inputs = 1,
                             .max_inputs = 2,
                             .infer = infer,
                             .gradient = gradient,
                             .cpu = prepare},
                            {.inputs = {-1}, .outputs = {0}, .whole = true, .pays = is_product}));
}

}  // namespace braid
