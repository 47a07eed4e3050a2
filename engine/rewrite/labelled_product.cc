#include "engine/rewrite/labelled_product.h"

#include <algorithm>
#include <cctype>

namespace braid {
namespace {

const Pattern& plain_products() {
  static const Pattern pattern{"MatMul"};
  return pattern;
}
const Pattern& batched_products() {
  static const Pattern pattern{"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"};
  return pattern;
}
const Pattern& equations() {
  static const Pattern pattern{"Einsum"};
  return pattern;
}
const Pattern& transpositions() {
  static const Pattern pattern{"Transpose"};
  return pattern;
}

std::optional<LabelledProduct> of_matrices(const Shape& x, const Shape& y, bool turn_x, bool turn_y) {
  if (x.rank() != y.rank() || x.rank() < 2 || x.rank() > 10) return std::nullopt;
  std::string batch;
  for (int a = 0; a + 2 < x.rank(); ++a) {
    if (x[a] != y[a]) return std::nullopt;
    batch.push_back(static_cast<char>('A' + a));
  }
  return LabelledProduct{{batch + (turn_x ? "ki" : "ik"), batch + (turn_y ? "jk" : "kj")}, batch + "ij"};
}

bool is_once(const std::string& labels) {
  return std::all_of(labels.begin(), labels.end(), [&](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) && std::count(labels.begin(), labels.end(), c) == 1;
  });
}
bool has(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

/// Explicit equations of two operands.
std::optional<LabelledProduct> of_equation(std::string text, const Shape& x, const Shape& y) {
  std::erase(text, ' ');
  const std::size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) return std::nullopt;
  LabelledProduct p{{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1)},
                    text.substr(arrow + 2)};
  const auto& [a, b] = p.factors;
  if (!is_once(a) || !is_once(b) || !is_once(p.result) || static_cast<int>(a.size()) != x.rank() ||
      static_cast<int>(b.size()) != y.rank())
    return std::nullopt;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t other = b.find(a[i]);
    if (other == std::string::npos ? !has(p.result, a[i])
                                   : x[static_cast<int>(i)] != y[static_cast<int>(other)])
      return std::nullopt;
  }
  for (const char label : b)
    if (!has(a, label) && !has(p.result, label)) return std::nullopt;
  return p;
}

}  // namespace

std::optional<LabelledProduct> labelled_product(const Rewrite& r, const Node& node) {
  if (node.removed || node.inputs.size() != 2) return std::nullopt;
  const Shape &x = r.graph.info(node.inputs[0]).shape, &y = r.graph.info(node.inputs[1]).shape;
  if (!x.is_static() || !y.is_static()) return std::nullopt;
  const auto flag = [&](const char* name) { return node.attrs.get<bool>(name, false); };
  if (plain_products().names(node)) return of_matrices(x, y, flag("transpose_a"), flag("transpose_b"));
  if (batched_products().names(node)) return of_matrices(x, y, flag("adj_x"), flag("adj_y"));
  if (!equations().names(node)) return std::nullopt;
  return of_equation(node.attrs.get("equation", std::string()), x, y);
}

namespace {

/// `labels` by the letters of the axes that `known` says they are; `width` for others, which are counted.
std::string letters_for(std::string labels, const std::string& known, const std::string& letters, char width,
                        int& others) {
  for (char& label : labels) {
    const std::size_t at = known.find(label);
    others += at == std::string::npos;
    label = at == std::string::npos ? width : letters[at];
  }
  return labels;
}

}  // namespace

std::optional<std::pair<Lettered, Lettered>> factors_of(const Rewrite& r, const Node& node,
                                                        const std::string& result, char width) {
  const auto product = labelled_product(r, node);
  if (!product || product->result.size() != result.size()) return std::nullopt;
  Lettered of[2];
  for (const int f : {0, 1}) {
    int summed = 0;
    of[f] = {node.inputs[static_cast<std::size_t>(f)],
             letters_for(product->factors[f], product->result, result, width, summed)};
    if (summed != 1) return std::nullopt;
  }
  return std::pair{of[0], of[1]};
}

std::optional<ProductWith> product_with(const Rewrite& r, const Node& node, const Lettered& one, char width) {
  const auto product = labelled_product(r, node);
  if (!product || node.inputs[0] == node.inputs[1]) return std::nullopt;
  const std::size_t f = node.inputs[0] == one.value ? 0 : 1;
  if (node.inputs[f] != one.value) return std::nullopt;
  const auto named = [&](const std::string& labels, int& others) {
    return letters_for(labels, product->factors[f], one.letters, width, others);
  };
  int in_other = 0, in_result = 0;
  ProductWith found{{node.inputs[1 - f], named(product->factors[1 - f], in_other)},
                    {{node.id, 0}, named(product->result, in_result)}};
  if (in_other != 1 || in_result != 1) return std::nullopt;
  return found;
}

std::optional<std::vector<int>> transposed_axes(const Rewrite& r, const Node& node) {
  if (!transpositions().names(node) || node.removed) return std::nullopt;
  const Tensor* const known = r.graph.known_value(node.inputs[1]);
  if (!known) return std::nullopt;
  std::vector<int> axes;
  for (const std::int64_t axis : tensor_to_int64s(*known)) axes.push_back(static_cast<int>(axis));
  return axes;
}

std::string labels_before(const std::vector<int>& axes, const std::string& behind) {
  std::string before = behind;
  for (std::size_t i = 0; i < axes.size(); ++i) before[static_cast<std::size_t>(axes[i])] = behind[i];
  return before;
}

std::string labels_behind(const std::vector<int>& axes, const std::string& before) {
  std::string behind = before;
  for (std::size_t i = 0; i < axes.size(); ++i) behind[i] = before[static_cast<std::size_t>(axes[i])];
  return behind;
}

ValueRef lying_as(const Rewrite& r, const Lettered& x, const std::string& wanted) {
  if (x.letters == wanted) return x.value;
  const auto axes = transposed_axes(r, r.node(x.value.node));
  if (!axes || axes->size() != x.letters.size() || labels_before(*axes, x.letters) != wanted) return {};
  return r.node(x.value.node).inputs[0];
}

ValueRef taken_as(const Rewrite& r, const Lettered& x, const std::string& wanted,
                  std::vector<NodeId>& passed) {
  if (x.letters == wanted) return x.value;
  const std::vector<NodeId>& users = r.users.of(x.value.node);
  if (users.size() != 1) return {};
  const auto axes = transposed_axes(r, r.node(users[0]));
  if (!axes || axes->size() != x.letters.size() || labels_behind(*axes, x.letters) != wanted) return {};
  passed.push_back(x.value.node);
  return {users[0], 0};
}

}  // namespace braid
