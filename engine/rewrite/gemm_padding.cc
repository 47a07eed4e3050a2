// Products of matrices whose rows are not a multiple of 16 bytes long take cuBLASLt's kernels for any
// alignment, at half the speed of the others (H200, TF32, [16384, 367] x [367, 512]: 64 us beside 31 us for
// 368 columns; its gradients 67 beside 41 and 66 beside 29). Joined columns are where such widths come from,
// and there a column of zeros costs next to nothing:
//   R = ConcatV2(..., axis 1) or braid.PairDots    -> with columns of zeros to a multiple of four
//   MatMul(R, W)                                   -> MatMul(R, P), P = W and rows of zeros
//   MatMul(R, dY, transpose_a), W's gradient       -> braid.LeadingRows of it, a view
//   MatMul(dY, W, transpose_b), R's gradient       -> MatMul(dY, P, transpose_b), columns cut off
// Sums gain terms that are zero. Left apart: small products, and R that others read, too (also as a second
// factor, as the gradient of a transposed W does).
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr std::int64_t kRowAlignment = 4;   // floats
constexpr double kSmallestProduct = 200e6;  // flops, forward; below, more launches cost what alignment gains

class GemmPadding {
 public:
  explicit GemmPadding(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order()) {
      const std::string& op = graph_.node(id).op->name;
      if (op == "ConcatV2" || op == "braid.PairDots") align(id);
    }
    if (aligned_ == 0) return;
    prune(plan_, true);
    plan_.note("alignment", "zeros beside " + std::to_string(aligned_) + " factors of products");
  }

 private:
  static bool flag(const Node& node, const char* name) { return node.attrs.get<bool>(name, false); }
  static Node with_inputs(Node node, std::vector<ValueRef> inputs) {
    node.inputs = std::move(inputs);
    return node;
  }

  void align(NodeId id) {
    const Node joined = graph_.node(id);
    const OutputInfo info = joined.outputs[0];
    if (!is_plain(plan_, joined) || is_fetched(plan_, id) || info.dtype != DType::Float32 ||
        info.shape.rank() != 2 || !info.shape.is_static() || info.shape[1] % kRowAlignment == 0 ||
        (joined.op->name == "ConcatV2" && !joins_columns(joined)))
      return;
    std::vector<NodeId> forward, backward;  // products with it, and gradients of their other factors
    double largest = 0;
    for (const NodeId user : users_.readers(id)) {
      const Node& product = graph_.node(user);
      if (product.op->name != "MatMul" || !is_plain(plan_, product) || product.inputs[0] != ValueRef{id, 0} ||
          product.inputs[1].node == id)
        return;
      (flag(product, "transpose_a") ? backward : forward).push_back(user);
      largest = std::max(largest, 2.0 * static_cast<double>(info.shape.elements()) *
                                      static_cast<double>(product.outputs[0].shape[1]));
    }
    if (forward.empty() || largest < kSmallestProduct) return;

    const ValueRef wide{widen(joined), 0};
    take_place(plan_, id, wide.node);
    for (const NodeId product : forward) widen_forward(product, wide, info.shape);
    for (const NodeId product : backward) {
      const Node old = graph_.node(product);
      Node first = old;
      first.op = &OpRegistry::global().require("braid.LeadingRows");
      first.attrs = {{"rows", info.shape[1]}};
      first.inputs = {{add(with_inputs(old, {wide, old.inputs[1]}), old.name + "/aligned"), 0}};
      replace(plan_, product, std::move(first), "/rows");
    }
    ++aligned_;
  }

  bool joins_columns(const Node& concat) const {
    const Tensor* axis = graph_.known_value(concat.inputs.back());
    return axis && (tensor_to_int64s(*axis)[0] == 1 || tensor_to_int64s(*axis)[0] == -1);
  }
  static std::int64_t aligned(std::int64_t width) {
    return (width + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  }

  NodeId add(Node node, const std::string& name) {
    node.id = kNoNode;
    node.outputs.clear();
    node.known_values.clear();
    node.name = graph_.unique_name(name);
    return graph_.add(std::move(node));
  }
  ValueRef constant(const Node& near, const std::string& name, Tensor value) {
    Node node;
    node.op = &OpRegistry::global().require("Const");
    node.attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
    node.device = near.device;
    return {add(std::move(node), name), 0};
  }

  NodeId widen(const Node& joined) {
    const Shape& shape = joined.outputs[0].shape;
    Node wide = joined;
    if (joined.op->name == "braid.PairDots") {
      wide.attrs.set("width", aligned(shape[1]));
    } else {
      const ValueRef zeros =
          constant(joined, joined.name + "/zeros",
                   Tensor::zeros(DType::Float32, {shape[0], aligned(shape[1]) - shape[1]}));
      wide.inputs.insert(wide.inputs.end() - 1, zeros);
    }
    return add(std::move(wide), joined.name + "/aligned");
  }

  void widen_forward(NodeId id, ValueRef wide, const Shape& shape) {
    const Node product = graph_.node(id);
    const bool transposed = flag(product, "transpose_b");
    const auto zeros = static_cast<std::int32_t>(aligned(shape[1]) - shape[1]);
    Node pad = product;
    pad.op = &OpRegistry::global().require("Pad");
    pad.attrs = {};
    pad.inputs = {product.inputs[1],
                  constant(product, product.name + "/paddings",
                           Tensor::from<std::int32_t>(
                               {2, 2}, std::array{0, transposed ? 0 : zeros, 0, transposed ? zeros : 0}))};
    const ValueRef padded{add(std::move(pad), product.name + "/padded"), 0};
    for (const NodeId user : users_.of(product.inputs[1].node))
      if (is_input_gradient(user, product, shape))
        replace(plan_, user, with_inputs(graph_.node(user), {graph_.node(user).inputs[0], padded}),
                "/aligned");
    replace(plan_, id, with_inputs(product, {wide, padded}), "/aligned");
  }

  /// Whether this is the gradient of the product's first factor, whose columns are only cut off.
  bool is_input_gradient(NodeId id, const Node& product, const Shape& shape) const {
    const Node& gradient = graph_.node(id);
    if (gradient.op->name != "MatMul" || gradient.removed || gradient.inputs[1] != product.inputs[1] ||
        flag(gradient, "transpose_a") || flag(gradient, "transpose_b") == flag(product, "transpose_b") ||
        gradient.outputs[0].shape != shape || !is_plain(plan_, gradient) || is_fetched(plan_, id))
      return false;
    const std::vector<NodeId>& users = users_.of(id);
    return !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId user) {
      const Node& node = graph_.node(user);
      if (node.op->name == "braid.SplitLike")
        return node.inputs[1].node == id &&
               std::count(node.inputs.begin(), node.inputs.end(), ValueRef{id, 0}) == 1;
      return node.op->name == "braid.PairDotsGrad" && node.inputs[0].node == id && node.inputs[1].node != id;
    });
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  int aligned_ = 0;
};

}  // namespace

void pad_gemms(Plan& plan) { GemmPadding(plan).run(); }

}  // namespace braid
