#include "engine/autodiff/gradients.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "engine/autodiff/gradient_sum.h"
#include "engine/autodiff/node_gradient.h"
#include "engine/ir/infer.h"

namespace braid {

namespace {

bool carries_gradient(DType dtype) { return is_floating(dtype) || dtype == DType::Resource; }

bool is_trainable(const VariableInfo& variable) { return variable.trainable && is_floating(variable.dtype); }

/// The name under which the program that wrote the graph knows a gradient of this node's own: that of
/// tf.custom_gradient (on an IdentityN), Graph.gradient_override_map, or a function with a gradient function.
/// Its formula is code of that program, or nodes that nobody has called: the graph as it is has neither.
std::string own_gradient(const Node& node) {
  const Attr* name = node.attrs.find("_gradient_op_type");
  if (!name) return {};
  const auto* text = std::get_if<std::string>(static_cast<const AttrValue_*>(name));
  return text && *text != node.op->name ? *text : std::string();
}

Tensor one(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return Tensor::scalar<float>(1);
    case DType::Float64:
      return Tensor::scalar<double>(1);
    default:
      throw InvalidArgument("a loss of " + std::string(dtype_name(dtype)) + " is not supported");
  }
}

class Differentiator {
 public:
  Differentiator(Graph& graph, ValueRef loss)
      : graph_(graph),
        nodes_(graph),
        loss_(loss),
        variables_(list_variables(graph)),
        first_new_(graph.size()) {}

  std::vector<VariableGradient> run() {
    check_loss();
    mark_active();
    if (!is_active(loss_.node)) return {};
    sums_[loss_].add({loss_.node, 0}, nodes_.constant(loss_.node, one(graph_.info(loss_).dtype)));
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      if (is_active(*id)) visit(*id);
    }
    if (!problems_.empty()) {
      throw InvalidArgument("the gradient of '" + graph_.value_name(loss_) +
                            "' needs ops that have none:" + problems_);
    }
    std::vector<VariableGradient> gradients = collect();
    remove_unused(gradients);
    return gradients;
  }

 private:
  bool is_active(NodeId id) const { return active_[static_cast<std::size_t>(id)] != 0; }

  void check_loss() {
    const OutputInfo& info = graph_.info(loss_);
    const bool scalar = !info.shape.has_rank() || info.shape.rank() == 0;
    if (is_floating(info.dtype) && scalar) return;
    const Node& node = graph_.node(loss_.node);
    throw InvalidArgument("[" + node.op->name + "] node '" + node.name +
                          "': a loss must be a float scalar, got " + std::string(dtype_name(info.dtype)) +
                          " " + info.shape.to_string());
  }

  bool carries(const Node& node, std::size_t input) const {
    const ValueRef value = node.inputs[input];
    return is_active(value.node) && carries_gradient(graph_.info(value).dtype) &&
           !reads_shape_only(node, input);
  }

  // Active: depends on a trainable variable by floats, and the loss depends on it.
  void mark_active() {
    const auto count = static_cast<std::size_t>(graph_.size());
    active_.assign(count, 0);
    poisoned_.assign(count, 0);
    std::vector<char> below(count);
    for (std::size_t i = 0; i < variables_.size(); ++i) variable_by_name_[variables_[i].name] = i;
    order_ = graph_.topological_order();
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      bool active = node.op->role == OpRole::Variable && is_trainable(variable_of(graph_, {id, 0}));
      for (std::size_t i = 0; i < node.inputs.size(); ++i) active |= carries(node, i);
      active_[static_cast<std::size_t>(id)] = active;
    }
    below[static_cast<std::size_t>(loss_.node)] = 1;
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      if (!below[static_cast<std::size_t>(*id)]) continue;
      for (const ValueRef input : graph_.node(*id).inputs) below[static_cast<std::size_t>(input.node)] = 1;
    }
    for (std::size_t i = 0; i < count; ++i) active_[i] = static_cast<char>(active_[i] && below[i]);
  }

  void visit(NodeId id) {
    const OpDef& op = *graph_.node(id).op;
    if (op.role == OpRole::Variable) return;
    const bool flows = std::any_of(sums_.lower_bound({id, 0}), sums_.lower_bound({id + 1, 0}),
                                   [](const auto& item) { return !item.second.empty(); });
    const bool poisoned = poisoned_[static_cast<std::size_t>(id)] != 0;
    if (!flows && !poisoned) return;
    const std::string own = own_gradient(graph_.node(id));
    const bool has_rule = op.gradient && own.empty();
    if (!has_rule)
      problems_ += "\n  [" + op.name + "] node '" + graph_.node(id).name + "': " +
                   (own.empty() ? op.no_gradient_reason
                                : "has a gradient of its own (tf.custom_gradient: '" + own +
                                      "'), whose formula the graph does not hold: y + tf.stop_gradient(f(x) "
                                      "- y) has the value of "
                                      "f(x) and the gradient of y");
    if (!has_rule || poisoned) {
      // The gradient cannot be made any more; what is above is looked at only to report all such ops at once.
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (carries(node, i)) poisoned_[static_cast<std::size_t>(node.inputs[i].node)] = 1;
      }
      return;
    }
    if (passes_rows_on(id)) {
      const ValueRef input = graph_.node(id).inputs[0];
      if (carries(graph_.node(id), 0)) sums_[input].add(sums_.at({id, 0}));
      return;
    }
    apply_rule(id);
  }

  // Rows of a table stay rows through what does nothing to the value.
  bool passes_rows_on(NodeId id) const {
    const OpRole role = graph_.node(id).op->role;
    const auto sum = sums_.find({id, 0});
    return (role == OpRole::Read || role == OpRole::Identity) && sum != sums_.end() &&
           sum->second.only_slices();
  }

  // A gather along axis 0 whose table is the plain value of a variable.
  bool gathers_rows_of_variable(const Node& node) const {
    const RowGather& gathers = node.op->gathers;
    if (gathers.table < 0) return false;
    if (gathers.axis >= 0) {
      const Tensor* axis = graph_.known_value(node.inputs[static_cast<std::size_t>(gathers.axis)]);
      if (!axis || tensor_to_int64s(*axis)[0] != 0) return false;
    }
    NodeId source = node.inputs[static_cast<std::size_t>(gathers.table)].node;
    while (graph_.node(source).op->role == OpRole::Identity) source = graph_.node(source).inputs[0].node;
    return graph_.node(source).op->role == OpRole::Read;
  }

  void apply_rule(NodeId id) {
    std::vector<ValueRef> grads(graph_.node(id).outputs.size());
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const ValueRef output{id, static_cast<int>(i)};
      if (const auto sum = sums_.find(output); sum != sums_.end())
        grads[i] = sum->second.dense(nodes_, id, output);
    }
    NodeGradient context(nodes_, id, std::move(grads));
    const OpDef& rule = gathers_rows_of_variable(context.node())
                            ? OpRegistry::global().require("ResourceGather")
                            : *context.node().op;
    rule.gradient(context);
    for (std::size_t i = 0; i < context.results().size(); ++i) {
      if (!carries(context.node(), i)) continue;
      GradientSum& sum = sums_[context.node().inputs[i]];
      const GradientUse use{id, static_cast<int>(i)};
      const NodeGradient::Result& result = context.results()[i];
      if (const auto* dense = std::get_if<ValueRef>(&result)) sum.add(use, *dense);
      if (const auto* slices = std::get_if<IndexedSlices>(&result)) sum.add(use, *slices);
    }
  }

  std::vector<VariableGradient> collect() {
    std::vector<GradientSum> sums(variables_.size());
    for (const auto& [value, sum] : sums_) {
      if (graph_.node(value.node).op->role != OpRole::Variable) continue;
      sums[variable_by_name_.at(variable_of(graph_, value).name)].add(sum);
    }
    std::vector<VariableGradient> gradients;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      if (sums[i].empty()) continue;
      const NodeId handle = variables_[i].handle;
      VariableGradient gradient{variables_[i], {}, {}};
      if (sums[i].only_slices()) {
        gradient.slices = sums[i].slices(nodes_, handle);
      } else {
        gradient.dense = sums[i].dense(nodes_, handle, {handle, 0});
      }
      gradients.push_back(std::move(gradient));
    }
    return gradients;
  }

  // Rules make gradients for all inputs, also for those that nobody asked for.
  void remove_unused(const std::vector<VariableGradient>& gradients) {
    std::vector<char> used(static_cast<std::size_t>(graph_.size()));
    std::vector<NodeId> open;
    const auto use = [&](ValueRef value) {
      if (!value.valid() || value.node < first_new_ || used[static_cast<std::size_t>(value.node)]) return;
      used[static_cast<std::size_t>(value.node)] = 1;
      open.push_back(value.node);
    };
    for (const VariableGradient& gradient : gradients) {
      use(gradient.dense);
      if (gradient.slices) use(gradient.slices->indices);
      if (gradient.slices) use(gradient.slices->values);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const ValueRef input : graph_.node(id).inputs) use(input);
    }
    for (NodeId id = first_new_; id < graph_.size(); ++id) {
      if (!used[static_cast<std::size_t>(id)]) graph_.remove(id);
    }
  }

  Graph& graph_;
  BackwardNodes nodes_;
  ValueRef loss_;
  std::vector<VariableInfo> variables_;
  std::map<std::string, std::size_t> variable_by_name_;
  NodeId first_new_;
  std::vector<NodeId> order_;   // of the forward nodes
  std::vector<char> active_;    // by forward node
  std::vector<char> poisoned_;  // by forward node: its gradient depends on a problem
  std::map<ValueRef, GradientSum> sums_;
  std::string problems_;
};

}  // namespace

std::vector<VariableGradient> add_gradients(Graph& graph, ValueRef loss) {
  Graph changed = graph;  // nothing is half-applied when an op refuses
  std::vector<VariableGradient> gradients = Differentiator(changed, loss).run();
  graph = std::move(changed);
  return gradients;
}

}  // namespace braid
