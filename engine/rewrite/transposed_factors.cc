// Products that read their factors as they lie, and give what is asked for:
//
//   Transpose(a b)           -> b^T a^T      where nobody else reads the product
//   a^T b, a b^T, a^T b^T    -> the product whose flags say so
//   Einsum(Transpose(a), b)  -> the one whose letters say so
//
// A transposition swaps the last two axes; an Einsum takes any. Programs that other frameworks write have
// them as nodes of their own, gradients too; here they cost nothing, and other rules know the products.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/labelled_product.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/swapped_axes.h"

namespace braid {
namespace {

const Pattern& any_product() {
  static const Pattern pattern{"MatMul", "BatchMatMul", "BatchMatMulV2"};
  return pattern;
}
const Pattern& plain_matmul() {
  static const Pattern pattern{"MatMul"};
  return pattern;
}
const char* flag_of(const Node& product, int factor) {
  const bool plain = plain_matmul().names(product);
  return factor == 0 ? (plain ? "transpose_a" : "adj_x") : (plain ? "transpose_b" : "adj_y");
}

bool is_transposed(const Node& product, int factor) {
  return product.attrs.get<bool>(flag_of(product, factor), false);
}

// ------------------------------------------------------------------------- the transposition of a product

bool is_turned_product(const Rewrite& r, const Match& match) {
  const Node &turn = r.node(match[0]), &made = r.node(match[1]);
  return swaps_last_axes(r, turn) && is_plain(r.plan, made) && together(turn, made) &&
         r.is_for_one(made.id) && !r.users.is_named(made.id);
}

void turn_product(Rewrite& r, const Match& match) {
  const Node& made = r.node(match[1]);
  Node turned = made;
  std::swap(turned.inputs[0], turned.inputs[1]);
  for (const int factor : {0, 1}) turned.attrs.set(flag_of(made, factor), !is_transposed(made, 1 - factor));
  replace(r.plan, match[0], std::move(turned), "/product");
}

// ------------------------------------------------------------------------------------ transposed factors

bool reads_transposed(const Rewrite& r, const Node& product, int factor) {
  const Node& source = r.node(product.inputs[static_cast<std::size_t>(factor)].node);
  return swaps_last_axes(r, source) && together(source, product);
}

bool reads_any_transposed(const Rewrite& r, const Match& match) {
  const Node& product = r.node(match[0]);
  return is_plain(r.plan, product) && (reads_transposed(r, product, 0) || reads_transposed(r, product, 1));
}

void read_as_they_lie(Rewrite& r, const Match& match) {
  Node product = r.node(match[0]);
  for (const int factor : {0, 1}) {
    if (!reads_transposed(r, r.node(match[0]), factor)) continue;
    ValueRef& input = product.inputs[static_cast<std::size_t>(factor)];
    input = r.node(input.node).inputs[0];
    product.attrs.set(flag_of(product, factor), !is_transposed(product, factor));
  }
  replace(r.plan, match[0], std::move(product), "/factors");
}

// -------------------------------------------------------------------------------------------- an Einsum

const Pattern& einsum() {
  static const Pattern pattern{"Einsum"};
  return pattern;
}

/// The axes of the transposition that an operand is.
std::optional<std::vector<int>> turned_axes(const Rewrite& r, const Node& node, ValueRef operand) {
  const Node& source = r.node(operand.node);
  if (!is_plain(r.plan, source) || !together(source, node)) return std::nullopt;
  const auto axes = transposed_axes(r, source);
  if (!axes || std::any_of(axes->begin(), axes->end(), [](int axis) { return axis < 0; }))
    return std::nullopt;
  return axes;
}

bool reads_any_turned(const Rewrite& r, const Match& match) {
  const Node& node = r.node(match[0]);
  const bool has_all = node.attrs.get<std::string>("equation", "").find("...") == std::string::npos;
  return has_all && is_plain(r.plan, node) &&
         std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueRef operand) { return turned_axes(r, node, operand).has_value(); });
}

void read_by_letters(Rewrite& r, const Match& match) {
  Node node = r.node(match[0]);
  auto equation = node.attrs.require<std::string>("equation");
  std::erase(equation, ' ');
  std::size_t begin = 0;
  for (ValueRef& operand : node.inputs) {
    const std::size_t end = equation.find_first_of(",-", begin);
    if (const auto axes = turned_axes(r, r.node(match[0]), operand)) {
      const std::string before = labels_before(*axes, equation.substr(begin, end - begin));
      equation.replace(begin, end - begin, before);
      operand = r.node(operand.node).inputs[0];
    }
    begin = end + 1;
  }
  node.attrs.set("equation", equation);
  replace(r.plan, match[0], std::move(node), "/letters");
}

}  // namespace

void turn_products(Plan& plan) {
  Pattern turned = Pattern{"Transpose"}.reading(0, any_product());
  run_rules(plan, {.rules = {{"product", std::move(turned), is_turned_product, turn_product}},
                   .text = [](const std::vector<int>& applied) {
                     return fmt::format("{} transposed products are products of what is transposed",
                                        applied[0]);
                   }});
}

void read_transposed_factors(Plan& plan) {
  move_transpositions(plan);
  turn_products(plan);
  run_rules(plan, {.rules = {{"factors", any_product(), reads_any_transposed, read_as_they_lie},
                             {"letters", einsum(), reads_any_turned, read_by_letters}},
                   .text = [](const std::vector<int>& applied) {
                     return fmt::format("{} products read transposed factors as they lie",
                                        applied[0] + applied[1]);
                   }});
}

}  // namespace braid
