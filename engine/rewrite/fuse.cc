// On a device, short kernels cost more by their number than by their work: puts chains of nodes into one.
//   MatMul, BiasAdd(, Relu)        -> braid.FusedMatMul, where nobody else uses what is between
//   the same of batched siblings   -> braid.FusedMatMul of lanes (horizontal_fusion.h)
//   ReluGrad and its BiasAddGrad   -> braid.ReluBiasGrad, of lanes too
// Left apart: nodes on different hand-set streams, devices or colocations, nodes with control edges, fetched
// or fed values between. A fused layer has the name of its last node, a gradient that of its ReluGrad.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/ir/op.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

class Fusion {
 public:
  explicit Fusion(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    find_users();
    for (const NodeId id : graph_.topological_order()) {
      const std::string& op = graph_.node(id).op->name;
      if (op == "BiasAdd") fuse_layer(id);
      if (op == "AddV2") fuse_lanes(id);
      if (op == "BiasAddGrad" || op == "Sum") fuse_gradient(id);
    }
    if (layers_ + gradients_ == 0) return;
    plan_.note("fusion", std::to_string(layers_) + " layers, " + std::to_string(gradients_) +
                             " gradients of their biases");
  }

 private:
  void find_users() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.removed) continue;
      note_references(id);
      for (const NodeId control : node.control_inputs) kept_.insert(control);
    }
    for (const ValueRef fetch : plan_.fetches) kept_.insert(fetch.node);
    for (const NodeId target : plan_.targets) kept_.insert(target);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (graph_.node(id).colocate_with != kNoNode) kept_.insert(graph_.node(id).colocate_with);
  }

  const std::vector<NodeId>& users(NodeId id) { return users_[id]; }

  void note_references(NodeId id) {
    const Node& node = graph_.node(id);
    for (const ValueRef input : node.inputs) users_[input.node].push_back(id);
    for (const NodeId control : node.control_inputs) referrers_[control].push_back(id);
    if (node.colocate_with != kNoNode) referrers_[node.colocate_with].push_back(id);
    if (node.forward_of != kNoNode) referrers_[node.forward_of].push_back(id);
  }

  void remove(NodeId id) {
    for (const ValueRef input : graph_.node(id).inputs) {
      std::vector<NodeId>& users = users_[input.node];
      if (const auto at = std::find(users.begin(), users.end(), id); at != users.end()) users.erase(at);
    }
    graph_.remove(id);
  }

  bool has_plain_output(const Node& node) const { return node.outputs.size() == 1 && is_plain(plan_, node); }
  /// Whether the node may vanish into the one that uses it.
  bool is_inner(const Node& node) {
    return has_plain_output(node) && users(node.id).size() == 1 && !kept_.contains(node.id);
  }
  static bool forward_together(const Node& a, const Node& b) {
    return together(a, b) && a.include_grad == b.include_grad;
  }
  bool is_float(ValueRef value) const {
    const DType dtype = graph_.info(value).dtype;
    return dtype == DType::Float32 || dtype == DType::Float64;
  }
  static bool channels_last(const Node& node) {
    return node.attrs.get<std::string>("data_format", "NHWC") == "NHWC";
  }

  void fuse_layer(NodeId id) {
    const Node bias_add = graph_.node(id);
    if (!has_plain_output(bias_add) || !channels_last(bias_add) || !is_float(bias_add.inputs[0])) return;
    const Node product = graph_.node(bias_add.inputs[0].node);
    if (product.op->name != "MatMul") return;
    fuse_product(product, bias_add, bias_add.inputs[1],
                 {{"transpose_a", product.attrs.get<bool>("transpose_a", false)},
                  {"transpose_b", product.attrs.get<bool>("transpose_b", false)}});
  }

  /// `id` is an AddV2: perhaps of products [lanes, m, n], and biases [lanes, n] seen as [lanes, 1, n], or
  /// [n].
  void fuse_lanes(NodeId id) {
    const Node sum = graph_.node(id);
    if (!has_plain_output(sum) || !is_float(sum.inputs[0])) return;
    const Node product = graph_.node(sum.inputs[0].node);
    if (product.op->name != "BatchMatMulV2") return;
    const Shape& out = product.outputs[0].shape;
    if (out.rank() != 3 || out != sum.outputs[0].shape) return;
    for (const ValueRef input : product.inputs) {
      const Shape& shape = graph_.info(input).shape;
      if (shape.rank() != 2 && shape[0] != out[0]) return;
    }
    ValueRef bias = sum.inputs[1];
    const Node& reshape = graph_.node(bias.node);
    if (graph_.info(bias).shape == Shape{out[0], 1, out[2]} && reshape.op->name == "Reshape") {
      bias = reshape.inputs[0];
      if (graph_.info(bias).shape != Shape{out[0], out[2]}) return;
    } else if (graph_.info(bias).shape != Shape{out[2]}) {
      return;
    }
    fuse_product(product, sum, bias,
                 {{"transpose_a", product.attrs.get<bool>("adj_x", false)},
                  {"transpose_b", product.attrs.get<bool>("adj_y", false)}});
  }

  void fuse_product(const Node& product, const Node& bias_add, ValueRef bias, AttrMap attrs) {
    if (!is_inner(product) || !forward_together(product, bias_add)) return;
    const NodeId id = bias_add.id;
    Node last = bias_add;
    bool relu = false;
    if (is_inner(bias_add)) {
      const Node& next = graph_.node(users(id)[0]);
      if (next.op->name == "Relu" && has_plain_output(next) && forward_together(next, bias_add)) {
        last = next;
        relu = true;
      }
    }
    Node fused = last;
    fused.op = &OpRegistry::global().require("braid.FusedMatMul");
    fused.attrs = std::move(attrs);
    fused.attrs.set("relu", relu);
    fused.inputs = {product.inputs[0], product.inputs[1], bias};
    const NodeId made = replace(last, std::move(fused), 0);
    move_references(bias_add.id, made, 0);
    move_references(product.id, made, 0);
    if (relu) remove(bias_add.id);
    remove(product.id);
    ++layers_;
  }

  /// `id` is a BiasAddGrad, or a Sum, perhaps of the rows of lanes.
  void fuse_gradient(NodeId id) {
    const Node sums = graph_.node(id);
    if (!has_plain_output(sums) || !channels_last(sums)) return;
    const Node relu = graph_.node(sums.inputs[0].node);
    if (relu.op->name != "ReluGrad" || !has_plain_output(relu) || !is_float(relu.inputs[0]) ||
        !together(relu, sums))
      return;
    if (relu.outputs[0].shape.rank() != (sums.op->name == "Sum" ? 3 : 2)) return;
    if (sums.op->name == "Sum" && !is_sum_of_rows(sums)) return;
    Node fused = relu;
    fused.op = &OpRegistry::global().require("braid.ReluBiasGrad");
    fused.attrs = {};
    const NodeId made = replace(relu, std::move(fused), 0);
    move_references(sums.id, made, 1);
    remove(sums.id);
    ++gradients_;
  }

  /// Over axis 1 of three, which is gone.
  bool is_sum_of_rows(const Node& sum) const {
    const Tensor* axes = graph_.known_value(sum.inputs[1]);
    if (!axes || axes->elements() != 1 || sum.attrs.get<bool>("keep_dims", false)) return false;
    const std::int64_t axis = tensor_to_int64s(*axes)[0];
    return axis == 1 || axis == -2;
  }

  /// Puts `fused` in the place of `old`, under its name; output `output` of it is what old's output 0 was.
  NodeId replace(const Node& old, Node fused, int output) {
    const std::string name = old.name;
    fused.id = kNoNode;
    fused.outputs.clear();
    fused.known_values.clear();
    fused.name = graph_.unique_name(name + "/fused");
    if (const Attr* lanes = old.attrs.find(kLanes)) fused.attrs.set(kLanes, *lanes);
    const NodeId made = graph_.add(std::move(fused));
    note_references(made);
    move_references(old.id, made, output);
    remove(old.id);
    return made;
  }

  /// Whoever uses or names `from`, which has one output, does so with `to` and its output `output`.
  void move_references(NodeId from, NodeId to, int output) {
    for (const NodeId user : std::exchange(users_[from], {})) {
      if (graph_.node(user).removed || user == to) continue;
      for (ValueRef& input : graph_.mutable_node(user).inputs)
        if (input == ValueRef{from, 0}) {
          input = {to, output};
          users_[to].push_back(user);
        }
    }
    for (ValueRef& fetch : plan_.fetches)
      if (fetch.node == from) fetch = {to, output};
    for (NodeId& target : plan_.targets)
      if (target == from) target = to;
    for (const NodeId id : std::exchange(referrers_[from], {})) {
      Node& node = graph_.mutable_node(id);
      if (node.colocate_with == from) node.colocate_with = to;
      if (node.forward_of == from) node.forward_of = to;
      std::replace(node.control_inputs.begin(), node.control_inputs.end(), from, to);
      referrers_[to].push_back(id);
    }
  }

  Plan& plan_;
  Graph& graph_;
  std::unordered_map<NodeId, std::vector<NodeId>> users_;      // live ones, once for each use
  std::unordered_map<NodeId, std::vector<NodeId>> referrers_;  // that name it otherwise
  std::set<NodeId> kept_;                                      // referred to by more than the use of a value
  int layers_ = 0, gradients_ = 0;
};

}  // namespace

void fuse(Plan& plan) { Fusion(plan).run(); }

}  // namespace braid
