// The interaction of DLRM on a device. As written it multiplies all n x n pairs of an example's n vectors and
// gathers some of the products, so that most of what is written and read is thrown away:
//   GatherV2(Reshape(BatchMatMulV2(x, x, adj_y)), pairs, axis 1)    -> braid.PairDots(x)
//   AddN(BatchMatMulV2(g, x), BatchMatMulV2(g, x, adj_x)) where g is ReshapeLike(GatherGrad(dy, pairs))
//                                                                   -> braid.PairDotsGrad(dy, x)
// Left apart: pairs that stand there twice, nodes with control edges or on different hand-set streams,
// products that somebody else uses, too, and what the kernels do not take (common/pair_dots.h).
#include <algorithm>
#include <map>
#include <vector>

#include "engine/ops/common/pair_dots.h"
#include "engine/ops/op.h"
#include "engine/passes/plan.h"

namespace braid {
namespace {

class PairDotsFusion {
 public:
  explicit PairDotsFusion(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    const std::vector<NodeId> order = graph_.topological_order();
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      for (const ValueRef input : node.inputs) users_[input.node].push_back(id);
      for (const NodeId control : node.control_inputs) users_[control].push_back(id);
    }
    for (const NodeId id : order) {
      if (graph_.node(id).op->name == "GatherV2") fuse_products(id);
      if (graph_.node(id).op->name == "AddN") fuse_gradient(id);
    }
    if (made_.empty()) return;
    prune(plan_, true);
    plan_.program.notes.push_back("fusion: products of pairs of vectors, " + std::to_string(made_.size()));
  }

 private:
  struct Made {
    ValueRef x;
    std::vector<std::int64_t> pairs;
    NodeId node;
  };

  /// Whether another node may do what this one does.
  bool is_plain(const Node& node) const {
    return node.control_inputs.empty() && !plan_.is_fed(node) && plan_.feed_of({node.id, 0}) < 0;
  }
  static bool together(const Node& a, const Node& b) {
    return a.stream == b.stream && a.device == b.device && a.colocate_with == b.colocate_with;
  }
  /// The node that makes the value, if it is such an op and plain.
  const Node* made_by(ValueRef value, std::string_view op) const {
    const Node& node = graph_.node(value.node);
    return node.op->name == op && is_plain(node) ? &node : nullptr;
  }
  bool is_fetched(NodeId id) const {
    for (const ValueRef fetch : plan_.fetches)
      if (fetch.node == id) return true;
    return false;
  }
  static bool adjoint(const Node& product, const char* which) {
    return product.attrs.get<bool>(which, false);
  }

  void fuse_products(NodeId id) {
    const Node gather = graph_.node(id);
    if (!is_plain(gather) || gather.attrs.get<std::int64_t>("batch_dims", 0) != 0) return;
    const Node* const reshape = made_by(gather.inputs[0], "Reshape");
    const Node* const product = reshape ? made_by(reshape->inputs[0], "BatchMatMulV2") : nullptr;
    if (!product || !together(*product, gather)) return;
    const ValueRef x = product->inputs[0];
    const OutputInfo& info = graph_.info(x);
    if (x != product->inputs[1] || adjoint(*product, "adj_x") || !adjoint(*product, "adj_y") ||
        info.dtype != DType::Float32 || info.shape.rank() != 3 ||
        !pair_dots_on_device(info.shape[1], info.shape[2]))
      return;
    const std::int64_t n = info.shape[1];
    const Tensor *const pairs = graph_.known_value(gather.inputs[1]), *const axis = graph_.known_value(
                                                                          gather.inputs[2]);
    if (!pairs || !axis || pairs->shape().rank() != 1 ||
        reshape->outputs[0].shape != Shape{info.shape[0], n * n} ||
        (tensor_to_int64s(*axis)[0] != 1 && tensor_to_int64s(*axis)[0] != -1))
      return;
    const std::vector<std::int64_t> wanted = tensor_to_int64s(*pairs);
    if (!pairs_differ(wanted, n) || used_otherwise(*product, *reshape, id)) return;

    Node fused = like(gather, "braid.PairDots", {x}, wanted);
    const NodeId reshape_id = reshape->id;
    made_[reshape_id] = {x, wanted, replace(id, std::move(fused))};
  }

  /// Gradients ask for no more than shapes.
  bool used_otherwise(const Node& product, const Node& reshape, NodeId gather) {
    return is_fetched(product.id) || is_fetched(reshape.id) || readers(product.id) != 1 ||
           readers(reshape.id) != 1 || !reads(graph_.node(gather), reshape.id);
  }
  /// How many nodes use more of it than its shape.
  std::size_t readers(NodeId id) {
    const auto& users = users_[id];
    return static_cast<std::size_t>(
        std::count_if(users.begin(), users.end(), [&](NodeId user) { return reads(graph_.node(user), id); }));
  }
  static bool reads(const Node& user, NodeId id) {
    for (std::size_t i = 0; i < user.inputs.size(); ++i)
      if (user.inputs[i].node == id && !uses_shape_only(user, i)) return true;
    return std::count(user.control_inputs.begin(), user.control_inputs.end(), id) > 0;
  }

  void fuse_gradient(NodeId id) {
    const Node sum = graph_.node(id);
    if (!is_plain(sum) || sum.inputs.size() != 2) return;
    for (const auto& [one, other] : {std::pair{0, 1}, std::pair{1, 0}}) {
      const Node *const a = made_by(sum.inputs[static_cast<std::size_t>(one)], "BatchMatMulV2"),
                        *const b = made_by(sum.inputs[static_cast<std::size_t>(other)], "BatchMatMulV2");
      if (!a || !b || adjoint(*a, "adj_x") || adjoint(*a, "adj_y") || !adjoint(*b, "adj_x") ||
          adjoint(*b, "adj_y") || a->inputs != b->inputs || !together(*a, *b) || !together(*a, sum))
        continue;
      const Node* const reshape = made_by(a->inputs[0], "braid.ReshapeLike");
      const Node* const scatter = reshape ? made_by(reshape->inputs[0], "braid.GatherGrad") : nullptr;
      if (!scatter || users_[scatter->id].size() != 1 || users_[reshape->id].size() != 2 ||
          users_[a->id].size() != 1 || users_[b->id].size() != 1)
        continue;
      const auto forward = made_.find(scatter->inputs[2].node);
      if (forward == made_.end() || forward->second.x != a->inputs[1]) continue;
      Node fused = like(sum, "braid.PairDotsGrad", {scatter->inputs[0], a->inputs[1]}, forward->second.pairs);
      fused.forward_of = forward->second.node;
      replace(id, std::move(fused));
      return;
    }
  }

  /// A node in the place of `old`, without a name.
  static Node like(const Node& old, const char* op, std::vector<ValueRef> inputs,
                   std::vector<std::int64_t> pairs) {
    Node node = old;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = {{"pairs", std::move(pairs)}};
    return node;
  }

  NodeId replace(NodeId old, Node node) {
    node.id = kNoNode;
    node.outputs.clear();
    node.known_values.clear();
    node.name = graph_.unique_name(node.name + "/fused");
    const NodeId made = graph_.add(std::move(node));
    graph_.replace_uses({old, 0}, {made, 0});
    for (ValueRef& fetch : plan_.fetches)
      if (fetch.node == old) fetch = {made, 0};
    for (NodeId& target : plan_.targets)
      if (target == old) target = made;
    return made;
  }

  Plan& plan_;
  Graph& graph_;
  std::map<NodeId, std::vector<NodeId>> users_;  // as the graph was
  std::map<NodeId, Made> made_;                  // by the Reshape in front of the gather
};

}  // namespace

void fuse_pair_dots(Plan& plan) {
  if (plan.options.domain == Domain::Device) PairDotsFusion(plan).run();
}

}  // namespace braid
