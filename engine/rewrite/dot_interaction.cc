// The interaction of DLRM on a device. As written it multiplies all n x n pairs of an example's n vectors,
// gathers some of the products, so that most of what is written and read is thrown away, and puts them beside
// other columns:
//   GatherV2(Reshape(BatchMatMulV2(x, x, adj_y)), pairs, axis 1)    -> braid.PairDots(x)
//   AddN(BatchMatMulV2(g, x), BatchMatMulV2(g, x, adj_x)) where g is ReshapeLike(GatherGrad(dy, pairs))
//                                                                   -> braid.PairDotsGrad(dy, x)
//   ConcatV2(a, PairDots(x), axis 1)                                -> braid.PairDots(x, a)
//   PairDotsGrad(SplitLike(axis, dy, a, products):1, x)             -> braid.PairDotsGrad(dy, x), offset
//   x = Pack(v..., axis 1), Unpack(PairDotsGrad(dy, x))             -> v... in the place of x
//   AddN(PairDotsGrad(dy, v...):j, SplitLike of dy:0) where a is v[j]  -> PairDotsGrad, columns_to
// Left apart: pairs that stand there twice, nodes with control edges or on different hand-set streams,
// products that somebody else uses, too, and what the kernels do not take (engine/ops/fused/pair_dots.h).
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/ops/fused/pair_dots.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

class DotInteraction {
 public:
  explicit DotInteraction(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    for (const NodeId id : graph_.topological_order()) {
      if (graph_.node(id).op->name == "GatherV2") fuse_products(id);
      if (graph_.node(id).op->name == "AddN") fuse_gradient(id);
    }
    if (made_.empty()) return;
    prune(plan_, true);
    users_ = Users(graph_);
    for (auto& [reshape, made] : made_) put_beside(made);
    prune(plan_, true);
    users_ = Users(graph_);
    for (auto& [reshape, made] : made_) take_apart(made);
    prune(plan_, true);
    users_ = Users(graph_);
    for (const auto& [reshape, made] : made_) add_columns(made);
    prune(plan_, true);
    plan_.note("fusion", "products of pairs of vectors, " + std::to_string(made_.size()));
  }

 private:
  struct Made {
    ValueRef x;
    std::vector<std::int64_t> pairs;
    NodeId products, gradient = kNoNode;
  };

  /// The node that makes the value, if it is such an op and plain.
  const Node* made_by(ValueRef value, std::string_view op) const {
    const Node& node = graph_.node(value.node);
    return node.op->name == op && is_plain(plan_, node) ? &node : nullptr;
  }
  static bool adjoint(const Node& product, const char* which) {
    return product.attrs.get<bool>(which, false);
  }

  void fuse_products(NodeId id) {
    const Node gather = graph_.node(id);
    if (!is_plain(plan_, gather) || gather.attrs.get<std::int64_t>("batch_dims", 0) != 0) return;
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

    const NodeId reshape_id = reshape->id;
    made_[reshape_id] = {x, wanted,
                         replace(plan_, id, like(gather, "braid.PairDots", {x}, wanted), "/fused")};
  }

  /// Gradients ask for no more than shapes.
  bool used_otherwise(const Node& product, const Node& reshape, NodeId gather) const {
    return is_fetched(plan_, product.id) || is_fetched(plan_, reshape.id) ||
           users_.readers(product.id).size() != 1 || users_.readers(reshape.id) != std::vector{gather};
  }

  void fuse_gradient(NodeId id) {
    const Node sum = graph_.node(id);
    if (!is_plain(plan_, sum) || sum.inputs.size() != 2) return;
    for (const auto& [one, other] : {std::pair{0, 1}, std::pair{1, 0}}) {
      const Node *const a = made_by(sum.inputs[static_cast<std::size_t>(one)], "BatchMatMulV2"),
                        *const b = made_by(sum.inputs[static_cast<std::size_t>(other)], "BatchMatMulV2");
      if (!a || !b || adjoint(*a, "adj_x") || adjoint(*a, "adj_y") || !adjoint(*b, "adj_x") ||
          adjoint(*b, "adj_y") || a->inputs != b->inputs || !together(*a, *b) || !together(*a, sum))
        continue;
      const Node* const reshape = made_by(a->inputs[0], "braid.ReshapeLike");
      const Node* const scatter = reshape ? made_by(reshape->inputs[0], "braid.GatherGrad") : nullptr;
      if (!scatter || users_.of(scatter->id).size() != 1 || users_.of(reshape->id).size() != 2 ||
          users_.of(a->id).size() != 1 || users_.of(b->id).size() != 1)
        continue;
      const auto forward = made_.find(scatter->inputs[2].node);
      if (forward == made_.end() || forward->second.x != a->inputs[1]) continue;
      Node fused = like(sum, "braid.PairDotsGrad", {scatter->inputs[0], a->inputs[1]}, forward->second.pairs);
      fused.forward_of = forward->second.products;
      forward->second.gradient = replace(plan_, id, std::move(fused), "/fused");
      return;
    }
  }

  /// The products are written, and their gradient is read, where they stand beside the columns before them.
  void put_beside(Made& made) {
    const Node products = graph_.node(made.products);
    const std::vector<NodeId> readers = users_.readers(made.products);
    if (readers.size() != 1 || is_fetched(plan_, made.products)) return;
    const Node join = graph_.node(readers[0]);
    if (join.op->name != "ConcatV2" || join.inputs.size() != 3 || join.inputs[1].node != made.products ||
        !is_plain(plan_, join) || !together(join, products) || join.outputs[0].shape.rank() != 2 ||
        !is_last_axis(join.inputs[2]))
      return;
    const ValueRef before = join.inputs[0];
    const std::vector<NodeId>& users = users_.of(made.products);
    const NodeId split = find_split(users, made);
    if (users.size() != (split == kNoNode ? 1U : 2U)) return;

    const NodeId beside =
        replace(plan_, join.id, like(join, "braid.PairDots", {made.x, before}, made.pairs), "/fused");
    take_place(plan_, std::exchange(made.products, beside), beside);
    if (split == kNoNode) return;
    const Node whole = graph_.node(split);
    Node first = whole;  // what remains of the split
    first.inputs.pop_back();
    replace(plan_, split, std::move(first), "/first");
    Node& gradient = graph_.mutable_node(made.gradient);
    gradient.inputs[0] = whole.inputs[1];
    gradient.attrs.set("offset", graph_.info(before).shape[1]);
  }

  /// The vectors are read, and their gradients written, where they lie before they are packed.
  void take_apart(Made& made) {
    const Node* const pack = made_by(made.x, "Pack");
    if (!pack || pack->attrs.get<std::int64_t>("axis", 0) != 1) return;
    const std::vector<ValueRef> vectors = pack->inputs;
    if (graph_.info(vectors[0]).shape.rank() != 2) return;
    Node gradients;
    NodeId unpack = kNoNode;
    if (made.gradient != kNoNode) {
      const std::vector<NodeId>& users = users_.of(made.gradient);
      if (users.size() != 1 || is_fetched(plan_, made.gradient)) return;
      const Node& node = graph_.node(users[0]);
      gradients = graph_.node(made.gradient);
      if (node.op->name != "Unpack" || !is_plain(plan_, node) || !is_plain(plan_, gradients) ||
          !together(node, gradients) || node.attrs.get<std::int64_t>("axis", 0) != 1)
        return;
      unpack = node.id;
    }
    Node products = graph_.node(made.products);
    products.attrs.set("vectors", static_cast<std::int64_t>(vectors.size()));
    products.inputs.erase(products.inputs.begin());
    products.inputs.insert(products.inputs.begin(), vectors.begin(), vectors.end());
    made.products = replace(plan_, made.products, std::move(products), "/apart");
    if (unpack == kNoNode) return;
    gradients.inputs.resize(1);
    gradients.inputs.insert(gradients.inputs.end(), vectors.begin(), vectors.end());
    const NodeId apart = replace(plan_, unpack, std::move(gradients), "/fused");
    take_place(plan_, std::exchange(made.gradient, apart), apart);
  }

  /// Where the columns beside the products are a vector, its gradient is the sum of both.
  void add_columns(const Made& made) {
    if (made.gradient == kNoNode) return;
    const Node gradient = graph_.node(made.gradient), products = graph_.node(made.products);
    const auto vectors = static_cast<int>(gradient.outputs.size());
    if (static_cast<int>(products.inputs.size()) != vectors + 1 || !is_plain(plan_, gradient)) return;
    const auto at = std::find(products.inputs.begin(), products.inputs.end() - 1, products.inputs.back());
    const ValueRef part{made.gradient, static_cast<int>(at - products.inputs.begin())};
    if (part.output == vectors) return;
    if (std::find(plan_.fetches.begin(), plan_.fetches.end(), part) != plan_.fetches.end()) return;
    NodeId only_user = kNoNode;
    for (const NodeId user : users_.of(made.gradient)) {
      const std::vector<ValueRef>& inputs = graph_.node(user).inputs;
      if (std::find(inputs.begin(), inputs.end(), part) == inputs.end() || user == only_user) continue;
      if (only_user != kNoNode) return;
      only_user = user;
    }
    if (only_user == kNoNode) return;
    const Node sum = graph_.node(only_user);
    if (sum.op->name != "AddN" || sum.inputs.size() != 2 || !is_plain(plan_, sum) || !together(sum, gradient))
      return;
    const ValueRef columns = sum.inputs[sum.inputs[0] == part ? 1 : 0];
    const Node* const split = made_by(columns, "braid.SplitLike");
    if (!split || columns.output != 0 || split->inputs[1] != gradient.inputs[0] ||
        users_.of(split->id).size() != 1 || is_fetched(plan_, split->id) || !is_last_axis(split->inputs[0]) ||
        graph_.info(columns).shape != gradient.outputs[static_cast<std::size_t>(part.output)].shape ||
        gradient.attrs.get<std::int64_t>("offset", 0) != graph_.info(columns).shape[1])
      return;
    graph_.mutable_node(made.gradient).attrs.set("columns_to", static_cast<std::int64_t>(part.output));
    replace_value(plan_, {sum.id, 0}, part);
    take_place(plan_, sum.id, made.gradient);
  }

  /// The node that takes the gradient of [before, products] apart for nobody but made.gradient and one more.
  NodeId find_split(const std::vector<NodeId>& users, const Made& made) const {
    if (made.gradient == kNoNode) return kNoNode;
    const Node& gradient = graph_.node(made.gradient);
    const Node& split = graph_.node(gradient.inputs[0].node);
    const bool fits = split.op->name == "braid.SplitLike" && is_plain(plan_, split) &&
                      split.inputs.size() == 4 && split.inputs[3] == ValueRef{made.products, 0} &&
                      gradient.inputs[0] == ValueRef{split.id, 1} && is_last_axis(split.inputs[0]) &&
                      !is_fetched(plan_, split.id) && is_plain(plan_, gradient) && together(split, gradient);
    if (!fits || std::count(users.begin(), users.end(), split.id) != 1) return kNoNode;
    for (const NodeId user : users_.of(split.id))
      for (const ValueRef input : graph_.node(user).inputs)
        if (input == ValueRef{split.id, 1} && user != made.gradient) return kNoNode;
    return split.id;
  }
  bool is_last_axis(ValueRef value) const {
    const Tensor* axis = graph_.known_value(value);
    return axis && (tensor_to_int64s(*axis)[0] == 1 || tensor_to_int64s(*axis)[0] == -1);
  }

  /// A node in the place of `old`.
  static Node like(const Node& old, const char* op, std::vector<ValueRef> inputs,
                   std::vector<std::int64_t> pairs) {
    Node node = old;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = {{"pairs", std::move(pairs)}};
    return node;
  }

  Plan& plan_;
  Graph& graph_;
  Users users_;
  std::map<NodeId, Made> made_;  // by the Reshape in front of the gather
};

}  // namespace

void fuse_dot_interaction(Plan& plan) { DotInteraction(plan).run(); }

}  // namespace braid
