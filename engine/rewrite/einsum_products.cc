// An Einsum of two operands whose axes are not those of a batch of matrices, in this order, copies them
// first, and its result last:
//
//   Einsum(x, y), "bijh,bjhd->bihd" -> Transpose(BatchMatMul(Transpose(x) [b, h, i, j],
//                                                            Transpose(y) [b, h, j, d]) [b, h, i, d])
//
// As nodes of their own these copies are made once for all products that read a value in one order, gradients
// too, and regions read through them. A factor keeps the order of its own last axes, so that the gradient
// reads the same copy by its flags. Attention comes before.
#include "engine/rewrite/einsum_products.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/labelled_product.h"
#include "engine/rewrite/reshape_node.h"

namespace braid {
namespace {

bool holds(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

/// The letters of `from` for which `wanted` says so, in their order.
template <class Wanted>
std::string those(const std::string& from, Wanted wanted) {
  std::string found;
  std::copy_if(from.begin(), from.end(), std::back_inserter(found), wanted);
  return found;
}

/// A product's letters by what they are: of the batch, of each factor alone, and summed.
struct LetterRoles {
  std::string batch, own[2], summed;

  explicit LetterRoles(const LabelledProduct& p) {
    const auto& [a, b] = p.factors;
    batch = those(p.result, [&](char c) { return holds(a, c) && holds(b, c); });
    own[0] = those(p.result, [&](char c) { return !holds(b, c); });
    own[1] = those(p.result, [&](char c) { return !holds(a, c); });
    summed = those(a, [&](char c) { return !holds(p.result, c); });
  }
  /// The order in which a factor is read, and whether what is summed comes before its own axes.
  std::pair<std::string, bool> order_of(const LabelledProduct& p, int factor) const {
    const std::string& mine = own[factor];
    const bool summed_last = mine.empty() || summed.empty() ? factor == 0
                                                            : p.factors[factor].find(mine.back()) <
                                                                  p.factors[factor].find(summed.back());
    return {batch + (summed_last ? mine + summed : summed + mine), summed_last != (factor == 0)};
  }
  std::string result() const { return batch + own[0] + own[1]; }
};

/// A product whose factors may have changed places, where its result is the other way round.
struct SwappableProduct {
  LabelledProduct product;
  bool swapped = false;
};

class EinsumTurner {
 public:
  explicit EinsumTurner(Plan& plan) : plan_(plan) {}

  void run() {
    run_rules(plan_, {.rules = {{"product",
                                 {"Einsum"},
                                 find,
                                 [this](Rewrite& r, const Match& match, const SwappableProduct& found) {
                                   build(r, match, found);
                                 }}},
                      .text = [](const std::vector<int>& applied) {
                        return std::to_string(applied[0]) + " Einsums are products of matrices";
                      }});
  }

 private:
  static std::optional<SwappableProduct> find(const Rewrite& r, const Match& match) {
    const Node& node = r.node(match[0]);
    if (!is_plain(r.plan, node) || node.inputs.size() != 2 || !node.outputs[0].shape.is_static() ||
        !is_floating(node.outputs[0].dtype))
      return std::nullopt;
    for (const ValueRef input : node.inputs) {
      const OutputInfo& info = r.graph.info(input);
      if (!info.shape.is_static() || info.shape.elements() == 0 || info.dtype != node.outputs[0].dtype)
        return std::nullopt;
    }
    auto product = labelled_product(r, node);
    if (!product) return std::nullopt;
    SwappableProduct found{*product, false};
    {
      const LetterRoles roles(found.product);
      if (roles.batch.empty()) return std::nullopt;
      found.swapped = product->result == roles.batch + roles.own[1] + roles.own[0];
    }
    if (found.swapped) std::swap(found.product.factors[0], found.product.factors[1]);
    const LetterRoles roles(found.product);
    bool copies = roles.result() != product->result;
    for (const int factor : {0, 1})
      copies |= roles.order_of(found.product, factor).first != found.product.factors[factor];
    return copies ? std::optional(found) : std::nullopt;
  }

  static Node node_like(const Node& like, const char* op, std::vector<ValueRef> inputs, AttrMap attrs = {}) {
    Node node = like;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return node;
  }

  /// A transposition, to be added, of a value of letters `from` into the order `to`.
  static Node turn(Rewrite& r, const Node& like, ValueRef value, const std::string& from,
                   const std::string& to) {
    std::vector<std::int64_t> order;
    for (const char letter : to) order.push_back(static_cast<std::int64_t>(from.find(letter)));
    return node_like(like, "Transpose", {value, add_sizes(r.graph, like, Shape(std::move(order)))});
  }

  /// The value in this order; those who want it in the same share it.
  ValueRef turned(Rewrite& r, const Node& like, ValueRef value, const std::string& from,
                  const std::string& to) {
    if (from == to) return value;
    std::vector<std::size_t> order;
    for (const char letter : to) order.push_back(from.find(letter));
    ValueRef& made = turned_[{value, order}];
    if (made.node == kNoNode || !together(r.node(made.node), like))
      made = {add_node(r.graph, turn(r, like, value, from, to), like.name + "/turned"), 0};
    return made;
  }

  static std::int64_t sizes(const std::map<char, std::int64_t>& size, const std::string& letters) {
    std::int64_t product = 1;
    for (const char letter : letters) product *= size.at(letter);
    return product;
  }

  void build(Rewrite& r, const Match& match, const SwappableProduct& found) {
    Node node = r.node(match[0]);
    const LabelledProduct& product = found.product;
    if (found.swapped) std::swap(node.inputs[0], node.inputs[1]);
    const LetterRoles roles(product);
    std::map<char, std::int64_t> size;
    for (const int f : {0, 1}) {
      const Shape& shape = r.graph.info(node.inputs[static_cast<std::size_t>(f)]).shape;
      for (std::size_t a = 0; a < product.factors[f].size(); ++a)
        size[product.factors[f][a]] = shape[static_cast<int>(a)];
    }
    std::vector<std::int64_t> batch;
    for (const char letter : roles.batch) batch.push_back(size.at(letter));
    const auto matrices = [&](std::int64_t rows, std::int64_t columns) {
      std::vector<std::int64_t> dims = batch;
      dims.insert(dims.end(), {rows, columns});
      return Shape(std::move(dims));
    };
    const auto seen_as = [&](ValueRef value, const Shape& shape) {
      if (r.graph.info(value).shape == shape) return value;
      return ValueRef{add_node(r.graph, reshape_node(r.graph, node, value, shape), node.name + "/matrices"),
                      0};
    };
    std::vector<ValueRef> factors;
    bool flags[2];
    const std::int64_t summed = sizes(size, roles.summed);
    for (const int f : {0, 1}) {
      const auto [order, flag] = roles.order_of(product, f);
      const std::int64_t own = sizes(size, roles.own[f]);
      const ValueRef value =
          turned(r, node, node.inputs[static_cast<std::size_t>(f)], product.factors[f], order);
      factors.push_back(seen_as(value, flag == (f == 0) ? matrices(summed, own) : matrices(own, summed)));
      flags[f] = flag;
    }
    const ValueRef made{
        add_node(r.graph,
                 node_like(node, "BatchMatMulV2", factors, {{"adj_x", flags[0]}, {"adj_y", flags[1]}}),
                 node.name + "/product"),
        0};
    std::vector<std::int64_t> dims;
    for (const char letter : roles.result()) dims.push_back(size.at(letter));
    const Shape shape(std::move(dims));
    if (roles.result() == product.result) {
      replace(plan_, match[0], reshape_node(r.graph, node, made, shape), "/seen");
      return;
    }
    replace(plan_, match[0], turn(r, node, seen_as(made, shape), roles.result(), product.result), "/back");
  }

  Plan& plan_;
  std::map<std::pair<ValueRef, std::vector<std::size_t>>, ValueRef> turned_;
};

}  // namespace

void turn_einsums(Plan& plan) {
  if (plan.options.fusion) EinsumTurner(plan).run();
}

}  // namespace braid
