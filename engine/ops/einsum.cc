// Einsum(a[, b]), attribute equation ("bij,bjk->bik", "...ij,jk->...ik"): of two operands where it is a
// batched matrix product (every axis of an operand is in the other or in the output), of one a transpose or a
// sum over axes. Labels are letters, "..." stands for axes that broadcast, no operand has a label twice.
// Operands are brought into the order [batch, rows, columns] in scratch where they are not, then multiplied.
// Gradient: each operand's is the Einsum of dy and the other one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "engine/ops/common/box_copy.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/gemm.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// Axes by label. Letters are themselves; the k-th axis of "..." counted from its end is kEllipsis + k.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;
constexpr std::string_view kDots = "...";

/// The texts between ',' and behind "->".
struct Equation {
  std::vector<std::string> operands;
  std::string output;

  template <class Context>
  Equation(const Context& c, std::size_t inputs) {
    std::string text = c.attr("equation", std::string());
    std::erase(text, ' ');
    const std::size_t arrow = text.find("->");
    std::string left = text.substr(0, arrow);
    for (std::size_t at = 0; at != std::string::npos;) {
      const std::size_t comma = left.find(',', at);
      operands.push_back(left.substr(at, comma == std::string::npos ? comma : comma - at));
      at = comma == std::string::npos ? comma : comma + 1;
    }
    if (operands.size() != inputs)
      c.fail(fmt::format("equation '{}' has {} operands, the node {}", text, operands.size(), inputs));
    output = arrow == std::string::npos ? implicit_output(left) : text.substr(arrow + 2);
  }

 private:
  /// "..." and the labels that occur once, in the order of the alphabet.
  static std::string implicit_output(const std::string& left) {
    std::map<char, int> count;
    for (const char c : left)
      if (c != ',' && c != '.') ++count[c];
    std::string result = left.find(kDots) == std::string::npos ? "" : std::string(kDots);
    for (const auto& [label, times] : count)
      if (times == 1) result += label;
    return result;
  }
};

/// The labels of a text; `rank` tells how many axes its "..." has. Fails for what is no label or comes twice.
template <class Context>
Labels labels_of(const Context& c, const std::string& text, int rank) {
  Labels labels;
  const std::size_t dots = text.find(kDots);
  const int letters = static_cast<int>(text.size()) - (dots == std::string::npos ? 0 : 3);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == dots) {
      for (int k = rank - letters; k-- > 0;) labels.push_back(kEllipsis + k);
      i += kDots.size() - 1;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) == 0) {
      c.fail(fmt::format("'{}' in '{}' is no label", text[i], text));
    } else if (std::count(text.begin(), text.end(), text[i]) > 1) {
      c.fail(fmt::format("label '{}' is twice in '{}', which is not supported", text[i], text));
    } else {
      labels.push_back(text[i]);
    }
  }
  if (static_cast<int>(labels.size()) != rank)
    c.fail(fmt::format("'{}' does not fit an operand of rank {}", text, rank));
  return labels;
}

bool contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// The equation for operands of known ranks, and the size of each label.
struct Plan {
  std::vector<Labels> operands;
  Labels output;
  std::map<int, std::int64_t> sizes;

  template <class Context>
  Plan(const Context& c, const Equation& equation, const std::vector<Shape>& shapes) {
    int dots = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      operands.push_back(labels_of(c, equation.operands[i], shapes[i].rank()));
      for (int axis = 0; axis < shapes[i].rank(); ++axis) {
        const int label = operands[i][static_cast<std::size_t>(axis)];
        if (label >= kEllipsis) dots = std::max(dots, label - kEllipsis + 1);
        join(c, label, shapes[i][axis]);
      }
    }
    const bool has_dots = equation.output.find(kDots) != std::string::npos;
    output =
        labels_of(c, equation.output, static_cast<int>(equation.output.size()) - (has_dots ? 3 - dots : 0));
    if (!has_dots && dots > 0) c.fail("a sum over '...' is not supported");
    for (const int label : output)
      if (!sizes.contains(label)) c.fail(fmt::format("'{}' is in no operand", static_cast<char>(label)));
    for (std::size_t i = 0; i < operands.size() && operands.size() == 2; ++i)
      for (const int label : operands[i])
        if (!contains(operands[1 - i], label) && !contains(output, label))
          c.fail(fmt::format("'{}' is summed over one operand alone, which is not supported",
                             static_cast<char>(label)));
  }

  std::int64_t size(const Labels& labels) const {
    std::int64_t n = 1;
    for (const int label : labels) n *= sizes.at(label);
    return n;
  }

 private:
  template <class Context>
  void join(const Context& c, int label, std::int64_t size) {
    const auto [at, is_new] = sizes.try_emplace(label, size);
    std::int64_t& known = at->second;
    const bool dots = label >= kEllipsis;
    if (known == size) return;
    if (known == Shape::kUnknown || size == Shape::kUnknown) {
      const std::int64_t other = std::max(known, size);  // a 1 of "..." may meet something larger
      known = dots && other == 1 ? Shape::kUnknown : other;
    } else if (dots && (known == 1 || size == 1)) {
      known = std::max(known, size);
    } else {
      c.fail(dots ? fmt::format("axes of '...' do not broadcast: {} and {}", known, size)
                  : fmt::format("'{}' has sizes {} and {}", static_cast<char>(label), known, size));
    }
  }
};

void infer(InferContext& c) {
  require_number(c, 0);
  std::vector<Shape> shapes;
  for (int i = 0; i < c.inputs(); ++i) {
    c.require_same_dtype(0, i);
    shapes.push_back(c.shape(i));
  }
  const Equation equation(c, shapes.size());
  if (!std::all_of(shapes.begin(), shapes.end(), [](const Shape& s) { return s.has_rank(); })) {
    const bool has_dots = equation.output.find(kDots) != std::string::npos;
    const std::vector<std::int64_t> unknown(equation.output.size(), Shape::kUnknown);
    return c.output(c.dtype(0), has_dots ? Shape::unknown_rank() : Shape(unknown));
  }
  const Plan plan(c, equation, shapes);
  std::vector<std::int64_t> dims;
  for (const int label : plan.output) dims.push_back(plan.sizes.at(label));
  c.output(c.dtype(0), Shape(std::move(dims)));
}

/// How the elements of `shape`, whose axes have `labels`, are reached in the order of `wanted`; an axis of
/// size 1 that broadcasts, and a label that it does not have, have stride 0.
std::vector<std::int64_t> strides_for(const Plan& plan, const Shape& shape, const Labels& labels,
                                      const Labels& wanted) {
  const std::vector<std::int64_t> own = row_major_strides(shape);
  std::vector<std::int64_t> strides;
  for (const int label : wanted) {
    const auto at = std::find(labels.begin(), labels.end(), label) - labels.begin();
    const bool is_own = at < static_cast<std::ptrdiff_t>(labels.size());
    const bool repeats = !is_own || (shape[static_cast<int>(at)] == 1 && plan.sizes.at(label) != 1);
    strides.push_back(repeats ? 0 : own[static_cast<std::size_t>(at)]);
  }
  return strides;
}

/// Copies an operand into the order `wanted`; nothing when it has that order. `outwards`: the other way
/// round.
std::optional<BoxCopy> reorder(const Plan& plan, const Shape& shape, const Labels& labels,
                               const Labels& wanted, std::size_t element_bytes, bool outwards) {
  if (labels == wanted && shape.elements() == plan.size(wanted)) return std::nullopt;
  const std::vector<std::int64_t> strides = strides_for(plan, shape, labels, wanted);
  std::vector<BoxAxis> axes(wanted.size());
  std::int64_t packed = 1;
  for (std::size_t i = wanted.size(); i-- > 0; packed *= axes[i].size) {
    axes[i] = {plan.sizes.at(wanted[i]), strides[i], packed};
    if (outwards) std::swap(axes[i].src_stride, axes[i].dst_stride);
  }
  return BoxCopy(axes, 0, 0, element_bytes);
}

Labels joined(std::initializer_list<const Labels*> parts) {
  Labels all;
  for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

PreparedKernel prepare_product(const PrepareContext& c, const Plan& plan) {
  const Labels &a = plan.operands[0], &b = plan.operands[1], &out = plan.output;
  Labels batch, rows, columns, inner;
  for (const int label : a)
    (!contains(b, label) ? rows : contains(out, label) ? batch : inner).push_back(label);
  for (const int label : b)
    if (!contains(a, label)) columns.push_back(label);
  // The output's order, so that it need not be copied where it is batch, rows, columns already.
  for (Labels* part : {&batch, &rows, &columns})
    std::sort(part->begin(), part->end(), [&](int x, int y) {
      return std::find(out.begin(), out.end(), x) < std::find(out.begin(), out.end(), y);
    });
  const std::size_t element = dtype_size(c.inputs[0].dtype);
  Gemm g;
  g.m = plan.size(rows);
  g.n = plan.size(columns);
  g.k = plan.size(inner);
  const std::int64_t count = plan.size(batch);
  g.a_index.clear();
  for (std::int64_t i = 0; i < count; ++i) g.a_index.push_back(i);
  g.b_index = g.a_index;
  const auto a_copy = reorder(plan, c.inputs[0].shape, a, joined({&batch, &rows, &inner}), element, false);
  const auto b_copy = reorder(plan, c.inputs[1].shape, b, joined({&batch, &inner, &columns}), element, false);
  const auto y_copy =
      reorder(plan, c.outputs[0].shape, out, joined({&batch, &rows, &columns}), element, true);
  const auto bytes = [&](bool needed, std::int64_t n) {
    return needed ? aligned(static_cast<std::size_t>(n) * element) : 0;
  };
  const std::size_t a_bytes = bytes(a_copy.has_value(), count * g.m * g.k);
  const std::size_t b_bytes = bytes(b_copy.has_value(), count * g.k * g.n);
  const std::size_t y_bytes = bytes(y_copy.has_value(), count * g.m * g.n);
  PreparedKernel kernel = prepare_gemm(c, g);
  kernel.scratch_bytes = aligned(kernel.scratch_bytes) + a_bytes + b_bytes + y_bytes;
  kernel.run = [=, multiply = std::move(kernel.run), pool = &c.pool](const KernelArgs& args) {
    char* at = static_cast<char*>(args.scratch);
    const auto take = [&at](std::size_t n) { return std::exchange(at, at + n); };
    void* inputs[] = {args.inputs[0], args.inputs[1]};
    void* outputs[] = {args.outputs[0]};
    if (a_copy) a_copy->run(*pool, args.inputs[0], inputs[0] = take(a_bytes));
    if (b_copy) b_copy->run(*pool, args.inputs[1], inputs[1] = take(b_bytes));
    if (y_copy) outputs[0] = take(y_bytes);
    KernelArgs inside = args;
    inside.inputs = inputs;
    inside.outputs = outputs;
    inside.scratch = at;
    multiply(inside);
    if (y_copy) y_copy->run(*pool, outputs[0], args.outputs[0]);
  };
  return kernel;
}

/// One operand: element (output, summed) of it, summed in row-major order.
template <class T>
PreparedKernel prepare_sum(const PrepareContext& c, const Plan& plan) {
  Labels summed;
  for (const int label : plan.operands[0])
    if (!contains(plan.output, label)) summed.push_back(label);
  const Shape& in = c.inputs[0].shape;
  struct Walk {
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset(std::int64_t flat) const {
      std::int64_t sum = 0;
      for (std::size_t i = sizes.size(); i-- > 0; flat /= sizes[i]) sum += flat % sizes[i] * strides[i];
      return sum;
    }
  };
  const auto walk_of = [&](const Labels& labels) {
    Walk walk{{}, strides_for(plan, in, plan.operands[0], labels)};
    for (const int label : labels) walk.sizes.push_back(plan.sizes.at(label));
    return walk;
  };
  const std::int64_t terms = plan.size(summed);
  return parallel_kernel(c, plan.size(plan.output), row_grain(terms),
                         [outer = walk_of(plan.output), inner = walk_of(summed), terms](
                             const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           for (std::int64_t i = begin; i < end; ++i) {
                             const T* x = a.in<T>(0) + outer.offset(i);
                             wrapping_t<T> sum = 0;
                             for (std::int64_t k = 0; k < terms; ++k)
                               sum += static_cast<wrapping_t<T>>(x[inner.offset(k)]);
                             a.out<T>(0)[i] = static_cast<T>(sum);
                           }
                         });
}

PreparedKernel prepare(const PrepareContext& c) {
  std::vector<Shape> shapes;
  for (const OutputInfo& input : c.inputs) shapes.push_back(input.shape);
  const Plan plan(c, Equation(c, shapes.size()), shapes);
  if (shapes.size() == 2) return prepare_product(c, plan);
  return with_number("Einsum", c.inputs[0].dtype, [&]<class T>() { return prepare_sum<T>(c, plan); });
}

/// What Equation needs of a gradient's node.
struct NodeContext {
  const Node& node;
  template <class T>
  T attr(std::string_view name, T fallback) const {
    return node.attrs.get<T>(name, std::move(fallback));
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidArgument(place_of(node) + ": " + message);
  }
};

void gradient(GradContext& c) {
  const NodeContext context{c.node()};
  const Equation e(context, c.node().inputs.size());
  const auto einsum = [&](std::vector<ValueRef> inputs, std::string equation) {
    return c.op("Einsum", std::move(inputs), {{"equation", std::move(equation)}});
  };
  if (e.operands.size() == 1) {
    for (const char label : e.operands[0])
      if (e.output.find(label) == std::string::npos)
        context.fail("the gradient of a sum over one operand is not supported");
    return c.set_grad(0, einsum({c.grad()}, e.output + "->" + e.operands[0]));
  }
  for (const int i : {0, 1}) {
    const auto own = static_cast<std::size_t>(i), other = 1 - own;
    // dy has the broadcast axes; a gradient without "..." in its operand is summed over them below.
    std::string target = e.operands[own];
    const bool lost = e.output.find(kDots) != std::string::npos && target.find(kDots) == std::string::npos;
    if (lost) target = std::string(kDots) + target;
    const ValueRef g = einsum({c.grad(), c.input(1 - i)}, e.output + "," + e.operands[other] + "->" + target);
    const bool may_broadcast = e.output.find(kDots) != std::string::npos;
    c.set_grad(i, may_broadcast ? c.reduce_to(g, c.input(i)) : g);
  }
}

}  // namespace

void register_einsum(OpRegistry& registry) {
  registry.add({.name = "Einsum",
                .min_inputs = 1,
                .max_inputs = 2,
                .infer = infer,
                .gradient = gradient,
                .cpu = prepare});
}

}  // namespace braid
