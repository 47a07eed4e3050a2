// Products of matrices however they are written, MatMul, BatchMatMul or Einsum, as an equation of letters,
// one an axis; and the same letters through transpositions. Rules that look for products of products speak of
// letters, not of flags and axes. Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/rewrite/rule.h"

namespace braid {

/// a[factors[0]] b[factors[1]] -> result. A letter stands once in each; one that is not in the result is
/// summed.
struct LabelledProduct {
  std::string factors[2], result;
};

/// Nothing for other nodes, for axes that broadcast, diagonals, and sums of one factor alone.
std::optional<LabelledProduct> labelled_product(const Rewrite& r, const Node& node);

/// A value and the letters of its axes, by which all products of a pattern know them.
struct Lettered {
  ValueRef value;
  std::string letters;
};

/// Both factors of a product whose result has these letters; `width`: the letter of what is summed, which is
/// one axis.
std::optional<std::pair<Lettered, Lettered>> factors_of(const Rewrite& r, const Node& node,
                                                        const std::string& result, char width);

struct ProductWith {
  Lettered other, result;
};
/// A product of `one`, once, and another value; `width`: the letter of the axis that the other one has alone.
std::optional<ProductWith> product_with(const Rewrite& r, const Node& node, const Lettered& one, char width);

/// Where a Transpose puts the axes of its input; nothing for another node, or where that is not known.
std::optional<std::vector<int>> transposed_axes(const Rewrite& r, const Node& node);

/// Letters of a Transpose's input, or output, from those of the other side.
std::string labels_before(const std::vector<int>& axes, const std::string& behind);
std::string labels_behind(const std::vector<int>& axes, const std::string& before);

/// The value, or what it is the transposition of, where that has its axes in the order `wanted`; else none.
ValueRef lying_as(const Rewrite& r, const Lettered& x, const std::string& wanted);
/// The value, or its transposition where that alone reads it and has its axes in the order `wanted`; else
/// none. `passed`: the value's node is added where it is transposed.
ValueRef taken_as(const Rewrite& r, const Lettered& x, const std::string& wanted,
                  std::vector<NodeId>& passed);

}  // namespace braid
