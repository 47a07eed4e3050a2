#include "engine/ops/math/einsum_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace braid {
namespace {

using Labels = EinsumLabels;
constexpr std::string_view kDots = EinsumEquation::kDots;
constexpr int kEllipsis = EinsumPlan::kEllipsis;

/// "..." and the labels that occur once, in the order of the alphabet.
std::string implicit_output(const std::string& left) {
  std::map<char, int> count;
  for (const char c : left)
    if (c != ',' && c != '.') ++count[c];
  std::string result = left.find(kDots) == std::string::npos ? "" : std::string(kDots);
  for (const auto& [label, times] : count)
    if (times == 1) result += label;
  return result;
}

/// The labels of a text; `rank` tells how many axes its "..." has. Fails for what is no label, and for what
/// comes twice in an output.
Labels labels_of(const std::string& text, int rank, bool is_output, const Fail& fail) {
  Labels labels;
  const std::size_t dots = text.find(kDots);
  const int letters = static_cast<int>(text.size()) - (dots == std::string::npos ? 0 : 3);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == dots) {
      for (int k = rank - letters; k-- > 0;) labels.push_back(kEllipsis + k);
      i += kDots.size() - 1;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) == 0) {
      fail(fmt::format("'{}' in '{}' is no label", text[i], text));
    } else if (is_output && std::count(text.begin(), text.end(), text[i]) > 1) {
      fail(fmt::format("label '{}' is twice in the output '{}'", text[i], text));
    } else {
      labels.push_back(text[i]);
    }
  }
  if (static_cast<int>(labels.size()) != rank)
    fail(fmt::format("'{}' does not fit an operand of rank {}", text, rank));
  return labels;
}

bool contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

Labels joined(std::initializer_list<const Labels*> parts) {
  Labels all;
  for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

/// Copies an operand into the order `wanted`; nothing when it has that order. `outwards`: the other way
/// round.
std::optional<BoxCopy> reorder(const EinsumPlan& plan, const Shape& shape, const Labels& own,
                               const Labels& wanted, std::size_t element_bytes, bool outwards) {
  if (own == wanted && shape.elements() == plan.size(wanted)) return std::nullopt;
  const std::vector<std::int64_t> strides = plan.strides(shape, own, wanted);
  std::vector<BoxAxis> axes(wanted.size());
  std::int64_t packed = 1;
  for (std::size_t i = wanted.size(); i-- > 0; packed *= axes[i].size) {
    axes[i] = {plan.sizes.at(wanted[i]), strides[i], packed};
    if (outwards) std::swap(axes[i].src_stride, axes[i].dst_stride);
  }
  return BoxCopy(axes, 0, 0, element_bytes);
}

}  // namespace

EinsumEquation::EinsumEquation(std::string text, std::size_t inputs, const Fail& fail) {
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t comma = left.find(',', at);
    operands.push_back(left.substr(at, comma == std::string::npos ? comma : comma - at));
    at = comma == std::string::npos ? comma : comma + 1;
  }
  if (operands.size() != inputs)
    fail(fmt::format("equation '{}' has {} operands, the node {}", text, operands.size(), inputs));
  output = arrow == std::string::npos ? implicit_output(left) : text.substr(arrow + 2);
}

EinsumPlan::EinsumPlan(const EinsumEquation& equation, const std::vector<Shape>& shapes, const Fail& fail) {
  int dots = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    operands.push_back(labels_of(equation.operands[i], shapes[i].rank(), false, fail));
    for (int axis = 0; axis < shapes[i].rank(); ++axis) {
      const int label = operands[i][static_cast<std::size_t>(axis)];
      if (label >= kEllipsis) dots = std::max(dots, label - kEllipsis + 1);
      join(label, shapes[i][axis], fail);
    }
  }
  const bool has_dots = equation.output.find(kDots) != std::string::npos;
  output = labels_of(equation.output, static_cast<int>(equation.output.size()) - (has_dots ? 3 - dots : 0),
                     true, fail);
  if (!has_dots && dots > 0) fail("a sum over '...' is not supported");
  for (const int label : output)
    if (!sizes.contains(label)) fail(fmt::format("'{}' is in no operand", static_cast<char>(label)));
}

std::int64_t EinsumPlan::size(const Labels& labels) const {
  std::int64_t n = 1;
  for (const int label : labels) n *= sizes.at(label);
  return n;
}

void EinsumPlan::join(int label, std::int64_t size, const Fail& fail) {
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
    fail(dots ? fmt::format("axes of '...' do not broadcast: {} and {}", known, size)
              : fmt::format("'{}' has sizes {} and {}", static_cast<char>(label), known, size));
  }
}

std::vector<std::int64_t> EinsumPlan::strides(const Shape& shape, const Labels& own,
                                              const Labels& wanted) const {
  const std::vector<std::int64_t> packed = row_major_strides(shape);
  std::vector<std::int64_t> result;
  for (const int label : wanted) {
    std::int64_t stride = 0;  // along a diagonal, of the axes together
    for (std::size_t at = 0; at < own.size(); ++at) {
      const bool repeats = shape[static_cast<int>(at)] == 1 && sizes.at(label) != 1;
      if (own[at] == label && !repeats) stride += packed[at];
    }
    result.push_back(stride);
  }
  return result;
}

EinsumProduct::EinsumProduct(const EinsumPlan& plan, const std::vector<Shape>& shapes, const Shape& out,
                             std::size_t element_bytes) {
  const Labels& output = plan.output;
  Labels shared, inner, rows[2];  // rows[i]: the labels of the output that operand i alone has
  for (const std::size_t i : {0, 1})
    for (const int label : plan.operands[i]) {
      const bool is_shared = contains(plan.operands[1 - i], label);
      Labels& part = !contains(output, label) ? inner : is_shared ? shared : rows[i];
      if (!contains(part, label)) part.push_back(label);
    }
  // The output's order, so that it need not be copied where it is so already.
  for (Labels* part : {&shared, &rows[0], &rows[1]})
    std::sort(part->begin(), part->end(), [&](int x, int y) {
      return std::find(output.begin(), output.end(), x) < std::find(output.begin(), output.end(), y);
    });
  if (output != joined({&shared, &rows[0], &rows[1]}) && output == joined({&shared, &rows[1], &rows[0]}))
    first = 1;
  const auto at = [](int input) { return static_cast<std::size_t>(input); };
  const Labels &outer = rows[first], &columns = rows[second()];
  batch = plan.size(shared);
  m = plan.size(outer);
  n = plan.size(columns);
  k = plan.size(inner);
  const auto bring = [&](int input, const Labels& straight, const Labels& transposed, bool& transpose) {
    const Labels& own = plan.operands[at(input)];
    transpose = own == transposed && own != straight;
    return reorder(plan, shapes[at(input)], own, transpose ? transposed : straight, element_bytes, false);
  };
  first_copy =
      bring(first, joined({&shared, &outer, &inner}), joined({&shared, &inner, &outer}), transpose_first);
  second_copy = bring(second(), joined({&shared, &inner, &columns}), joined({&shared, &columns, &inner}),
                      transpose_second);
  result_copy = reorder(plan, out, output, joined({&shared, &outer, &columns}), element_bytes, true);
}

std::int64_t EinsumSum::Axes::offset(std::int64_t flat) const {
  std::int64_t sum = 0;
  for (std::size_t i = sizes.size(); i-- > 0; flat /= sizes[i]) sum += flat % sizes[i] * strides[i];
  return sum;
}

EinsumSum::EinsumSum(const EinsumPlan& plan, const Shape& in) {
  const Labels& own = plan.operands[0];
  Labels rest;
  for (const int label : own)
    if (!contains(plan.output, label) && !contains(rest, label)) rest.push_back(label);
  const auto axes_of = [&](const Labels& labels) {
    Axes axes{{}, plan.strides(in, own, labels)};
    for (const int label : labels) axes.sizes.push_back(plan.sizes.at(label));
    return axes;
  };
  kept = axes_of(plan.output);
  summed = axes_of(rest);
  outputs = plan.size(plan.output);
  terms = plan.size(rest);
}

BoxCopy EinsumSum::copy(std::size_t element_bytes) const {
  std::vector<BoxAxis> axes(kept.sizes.size());
  std::int64_t packed = 1;
  for (std::size_t i = axes.size(); i-- > 0; packed *= axes[i].size)
    axes[i] = {kept.sizes[i], kept.strides[i], packed};
  return {axes, 0, 0, element_bytes};
}

}  // namespace braid
