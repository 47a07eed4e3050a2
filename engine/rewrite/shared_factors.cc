// Products of many matrices with one are a product of one taller matrix:
//
//   BatchMatMul(x [b, c, m, k], w [b, 1, k, n])           -> BatchMatMul(x as [b, c m, k], w as [b, k, n])
//   ReduceToShapeOf(BatchMatMul(x [b, c, k, m], dy [b, c, k, n], adj_x), [b, 1, m, n])
//                                                         -> BatchMatMul(x as [b, c k, m], dy as [b, c k, n],
//                                                                        adj_x)
//
// b and c stand for any number of axes; without b they are MatMuls. The second is the gradient of w: it is
// never written for each matrix. Programs of ONNX and PyTorch write dense layers of sequences so (no b), and
// attention whose heads share keys; those of Keras reshape by themselves. The first one keeps the bits of
// each sum; the second adds in another order. Left apart by the first: an x that is a transposition, which a
// batch reads as it lies; the second transposes a factor that is not as wide as its product. Attention comes
// before: its keys may be shared, too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/rewrite/einsum_products.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/reshape_node.h"
#include "engine/rewrite/swapped_axes.h"

namespace braid {
namespace {

const Pattern& batch_product() {
  static const Pattern pattern{"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"};
  return pattern;
}

bool is_set(const Node& node, const char* name) { return node.attrs.get<bool>(name, false); }

std::int64_t from_end(const Shape& shape, int place) { return shape[shape.rank() - place]; }

/// The leading axes that a factor of shape `factor` has of its own, where the others of the batch `all` share
/// it; nothing where it is no such factor, or nothing is shared.
std::optional<int> own_axes(const Shape& factor, const Shape& all) {
  const int batch = all.rank() - 2, missing = all.rank() - factor.rank();
  const auto size = [&](int axis) { return axis < missing ? 1 : factor[axis - missing]; };
  int own = batch;
  while (own > 0 && size(own - 1) == 1) --own;
  std::int64_t shared = 1;
  for (int axis = 0; axis < batch; ++axis) {
    if (axis < own && size(axis) != all[axis]) return std::nullopt;
    if (axis >= own) shared *= all[axis];
  }
  return shared > 1 || own == 0 ? std::optional(own) : std::nullopt;
}

/// Whether a factor has all leading axes of the batch.
bool has_batch(const Shape& factor, const Shape& all) {
  if (factor.rank() != all.rank()) return false;
  return std::equal(factor.dims().begin(), factor.dims().end() - 2, all.dims().begin());
}

/// A product whose operands and result have known sizes and one type, and hold something.
bool is_known_product(const Rewrite& r, const Node& product) {
  if (!is_plain(r.plan, product)) return false;
  const OutputInfo &x = r.graph.info(product.inputs[0]), &y = r.graph.info(product.inputs[1]);
  const OutputInfo& out = product.outputs[0];
  return x.shape.is_static() && y.shape.is_static() && out.shape.is_static() && out.shape.elements() > 0 &&
         x.shape.elements() > 0 && out.dtype == x.dtype;
}

/// A batch that is not the transposition of another, which the product would read without a copy.
bool lies_in_rows(const Rewrite& r, const Node& product, ValueRef factor) {
  const Node& source = r.node(factor.node);
  return !(swaps_last_axes(r, source) && together(source, product));
}

/// A sum over the batch of a product: how many leading axes it leaves, and which factors must be transposed
/// so that the axis over which the product adds comes before its other one.
struct SumOverBatch {
  int own = 0;
  std::array<bool, 2> turned{};
};

class SharedFactors {
 public:
  explicit SharedFactors(Plan& plan) : plan_(plan) {}

  void run() {
    run_rules(
        plan_,
        {.rules = {{"sum", Pattern{"braid.ReduceToShapeOf", "Sum"}.reading(0, batch_product()), find_sum,
                    [this](Rewrite& r, const Match& match, const SumOverBatch& found) {
                      build_sum(r, match, found);
                    }},
                   {"product", batch_product(), find_product,
                    [this](Rewrite& r, const Match& match, int own) { build_product(r, match, own); }}},
         .text = [](const std::vector<int>& applied) {
           return fmt::format(
               "{} products of matrices with one are a product of all their rows, and {} sums of "
               "products one product",
               applied[1], applied[0]);
         }});
  }

 private:
  /// The leading axes that the second factor has.
  static std::optional<int> find_product(const Rewrite& r, const Match& match) {
    const Node& product = r.node(match[0]);
    if (!is_known_product(r, product) || is_set(product, "adj_x")) return std::nullopt;
    const Shape &x = r.graph.info(product.inputs[0]).shape, &out = product.outputs[0].shape;
    if (out.rank() < 3 || !has_batch(x, out) || !lies_in_rows(r, product, product.inputs[0]))
      return std::nullopt;
    return own_axes(r.graph.info(product.inputs[1]).shape, out);
  }

  static std::optional<SumOverBatch> find_sum(const Rewrite& r, const Match& match) {
    const Node &sum = r.node(match[0]), &product = r.node(match[1]);
    if (!is_plain(r.plan, sum) || !is_known_product(r, product) || !together(sum, product) ||
        !r.is_for_one(product.id) || r.users.is_named(product.id))
      return std::nullopt;
    SumOverBatch found;
    std::int64_t copied = 0;
    for (const std::size_t factor : {0, 1}) {
      const ValueRef value = product.inputs[factor];
      const Shape& shape = r.graph.info(value).shape;
      if (!has_batch(shape, product.outputs[0].shape)) return std::nullopt;
      found.turned[factor] = is_set(product, kFlags[factor]) == (factor == 1);
      if (found.turned[factor] || !lies_in_rows(r, product, value)) copied += shape.elements();
    }
    if (copied >= product.outputs[0].shape.elements()) return std::nullopt;
    const std::optional<int> own = axes_left(r, sum, product);
    if (!own) return std::nullopt;
    found.own = *own;
    return found;
  }

  /// How many leading axes of the product are left by a sum over the others of its batch, and over nothing
  /// else.
  static std::optional<int> axes_left(const Rewrite& r, const Node& sum, const Node& product) {
    static const Pattern by_axes{"Sum"};
    const Shape from = product.outputs[0].shape;
    Shape to = sum.outputs[0].shape;
    if (by_axes.names(sum)) {
      const Tensor* const known = r.graph.known_value(sum.inputs[1]);
      if (!known) return std::nullopt;
      to = from;
      for (const std::int64_t axis : tensor_to_int64s(*known))
        to.set_dim(static_cast<int>(axis < 0 ? axis + from.rank() : axis), 1);
    }
    if (!to.is_static() || to.rank() < 2 || from_end(to, 1) != from_end(from, 1) ||
        from_end(to, 2) != from_end(from, 2))
      return std::nullopt;
    return own_axes(to, from);
  }

  /// The value with its leading axes behind the first `own` joined to its rows; those who read it share this.
  ValueRef joined(Rewrite& r, const Node& like, ValueRef value, int own) {
    const Shape& from = r.graph.info(value).shape;
    std::vector<std::int64_t> dims(from.dims().begin(), from.dims().begin() + own);
    std::int64_t rows = from_end(from, 2);
    for (int axis = own; axis < from.rank() - 2; ++axis) rows *= from[axis];
    dims.push_back(rows);
    dims.push_back(from_end(from, 1));
    const Shape to(std::move(dims));
    if (to == from) return value;
    auto& made = joined_[{value, to.rank()}];
    if (made.node != kNoNode && together(r.node(made.node), like)) return made;
    made = {add_node(r.graph, reshape_node(r.graph, like, value, to), like.name + "/rows"), 0};
    return made;
  }

  /// The product of what joined() gives. A factor that is shared has fewer axes than the batch.
  Node product_of_rows(Rewrite& r, const Node& product, int own) {
    Node made = product;
    if (own == 0) {
      made.op = &OpRegistry::global().require("MatMul");
      made.attrs = {{"transpose_a", is_set(product, "adj_x")}, {"transpose_b", is_set(product, "adj_y")}};
    }
    const int missing = product.outputs[0].shape.rank() - r.graph.info(product.inputs[1]).shape.rank();
    made.inputs = {joined(r, product, product.inputs[0], own),
                   joined(r, product, product.inputs[1], std::max(0, own - missing))};
    return made;
  }

  void build_product(Rewrite& r, const Match& match, int own) {
    const Node product = r.node(match[0]);
    const NodeId made = add_node(r.graph, product_of_rows(r, product, own), product.name + "/of_rows");
    replace(plan_, product.id, reshape_node(r.graph, product, {made, 0}, product.outputs[0].shape),
            "/matrices");
  }

  /// The value with its last two axes swapped.
  static ValueRef turned(Rewrite& r, const Node& like, ValueRef value) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(r.graph.info(value).shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.end()[-1], order.end()[-2]);
    Node turn = like;
    turn.op = &OpRegistry::global().require("Transpose");
    turn.attrs = {};
    turn.inputs = {value, add_sizes(r.graph, like, Shape(std::move(order)))};
    return {add_node(r.graph, std::move(turn), like.name + "/turned"), 0};
  }

  void build_sum(Rewrite& r, const Match& match, const SumOverBatch& found) {
    const Node sum = r.node(match[0]);
    Node product = r.node(match[1]);
    for (const std::size_t factor : {0, 1}) {
      if (found.turned[factor]) product.inputs[factor] = turned(r, product, product.inputs[factor]);
      product.attrs.set(kFlags[factor], factor == 0);
    }
    Node made = product_of_rows(r, product, found.own);
    if (sum.outputs[0].shape.rank() == found.own + 2) {
      replace(plan_, sum.id, std::move(made), "/of_rows");
      return;
    }
    const ValueRef rows{add_node(r.graph, std::move(made), product.name + "/of_rows"), 0};
    replace(plan_, sum.id, reshape_node(r.graph, sum, rows, sum.outputs[0].shape), "/matrices");
  }

  static constexpr std::array<const char*, 2> kFlags{"adj_x", "adj_y"};
  Plan& plan_;
  std::map<std::pair<ValueRef, int>, ValueRef> joined_;  // by their rank
};

}  // namespace

void share_factors(Plan& plan) {
  SharedFactors(plan).run();
  turn_products(plan);
  turn_einsums(plan);
}

}  // namespace braid
