#include "worker/strategies/spread_variables.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/strategies/table_gathers.h"
#include "worker/strategies/tensor_rewrite.h"

namespace braid::worker {
namespace {

using Dims = std::vector<std::int64_t>;

class SpreadRewrite {
 public:
  SpreadRewrite(TrainingGraph& training, const std::vector<TensorSlice>& slices, const SpreadOptions& options,
                const SpreadCalls& calls)
      : training_(training),
        graph_(training.graph),
        slices_(slices),
        options_(options),
        calls_(calls),
        nodes_(pipeline_nodes(training, fed_columns(training))) {
    for (std::size_t v = 0; v < slices.size(); ++v) number_[slices[v].whole.name] = v;
  }

  std::vector<VariableGather> run() {
    find_weights();
    find_uses();
    plan_gathers();
    take_slices();
    for (Gather& each : gathers_) gather(each);
    for (const Use& use : uses_)
      if (use.node != kNoNode) graph_.mutable_node(use.node).inputs[use.input] = as_in(use.value, use.pass);
    finish();
    std::vector<VariableGather> found;
    for (const Gather& each : gathers_) {
      VariableGather& told = found.emplace_back();
      told.pass = each.pass;
      told.bytes = each.bytes;
      for (const std::size_t v : each.variables) told.variables.push_back(slices_[v].whole.name);
    }
    return found;
  }

 private:
  /// A node, or the step itself (kNoNode), that reads what follows from spread variables alone.
  struct Use {
    NodeId node = kNoNode;
    std::size_t input = 0;
    ValueRef value;
    int pass = 0;
    std::size_t position = 0;
    std::set<std::size_t> variables;
  };
  struct Gather {
    int pass = 0;
    std::vector<std::size_t> variables;
    std::int64_t bytes = 0;
    std::size_t first = 0;       // position of its first reader
    std::vector<const Use*> by;  // who reads it
    std::vector<ValueRef> whole;
  };
  using InPass = std::pair<std::size_t, int>;  // a variable, and a pass that reads it

  // ------------------------------------------------------------------------------------------------- finding

  /// Nodes that follow from variables alone, of which some are spread: each pass has its own.
  void find_weights() {
    variables_of_.resize(static_cast<std::size_t>(graph_.size()));
    for (const NodeId id : nodes_.order) {
      const Node& node = graph_.node(id);
      std::set<std::size_t>& found = variables_of_[static_cast<std::size_t>(id)];
      if (node.op->role == OpRole::Read) {
        const auto at = number_.find(variable_of(graph_, node.inputs[0]).name);
        if (at == number_.end()) continue;
        found.insert(at->second);
        reads_.try_emplace(at->second, id);
      } else if (nodes_.is(nodes_.of_weights, id)) {
        for (const ValueRef input : node.inputs) found.insert(of(input).begin(), of(input).end());
      }
    }
  }
  const std::set<std::size_t>& of(ValueRef value) const {
    return variables_of_[static_cast<std::size_t>(value.node)];
  }

  /// Parts of the batch come one behind the other, each with a forward and a backward pass.
  int pass_of(NodeId id) const {
    const auto at = static_cast<std::size_t>(id);
    const std::int64_t part = at < training_.part_of.size() ? training_.part_of[at] : -1;
    const bool backward = nodes_.is(nodes_.backward, id);
    if (part < 0 && backward) return last_pass_;
    return 2 * static_cast<int>(std::max<std::int64_t>(part, 0)) + (backward ? 1 : 0);
  }

  void find_uses() {
    last_pass_ = 1;
    for (const std::int64_t part : training_.part_of)
      last_pass_ = std::max(last_pass_, 2 * static_cast<int>(part) + 1);
    for (std::size_t position = 0; position < nodes_.order.size(); ++position) {
      const NodeId id = nodes_.order[position];
      if (!variables_of_[static_cast<std::size_t>(id)].empty()) continue;
      for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const ValueRef input = graph_.node(id).inputs[i];
        if (of(input).empty()) continue;
        if (reads_shape_only(graph_.node(id), i))
          shapes_.push_back({id, i, input, 0, 0, {}});
        else
          uses_.push_back({id, i, input, pass_of(id), position, of(input)});
      }
    }
    const auto use = [&](ValueRef value, int pass) {
      if (value.valid() && !of(value).empty())
        uses_.push_back({kNoNode, 0, value, pass, nodes_.order.size(), of(value)});
    };
    for (const VariableGradient& gradient : training_.gradients)
      if (!gradient.slices) use(gradient.dense, last_pass_);
    use(training_.loss, 0);
    use(training_.weighted_loss, 0);
  }

  // ------------------------------------------------------------------------------------------------ planning

  using ByVariable = std::map<std::size_t, std::vector<const Use*>>;

  void take_what_is_there(int pass, ByVariable& by_variable) {
    const std::size_t first = options_.keeps || gathers_.empty() ? 0 : gathers_.size() - 1;
    for (std::size_t g = first; g < gathers_.size(); ++g)
      for (const std::size_t v : gathers_[g].variables)
        if (const auto at = by_variable.find(v); at != by_variable.end()) {
          gather_of_[{v, pass}] = g;
          gathers_[g].by.insert(gathers_[g].by.end(), at->second.begin(), at->second.end());
          by_variable.erase(at);
        }
  }

  /// In each pass by the order of the first readers. What the last gather of the pass before has is there.
  void plan_gathers() {
    for (int pass = 0; pass <= last_pass_; ++pass) {
      ByVariable by_variable;
      for (const Use& use : uses_)
        if (use.pass == pass)
          for (const std::size_t v : use.variables) by_variable[v].push_back(&use);
      take_what_is_there(pass, by_variable);
      std::vector<std::size_t> order;
      for (const auto& [v, uses] : by_variable) order.push_back(v);
      std::ranges::stable_sort(order, {}, [&](std::size_t v) { return by_variable.at(v)[0]->position; });
      bool opens = true;
      for (const std::size_t v : order) {
        const std::int64_t bytes = slices_[v].whole.shape.elements() * std::int64_t{sizeof(float)};
        if (opens || gathers_.back().bytes + bytes > options_.bucket_bytes) {
          gathers_.push_back({pass, {}, 0, by_variable.at(v)[0]->position, {}, {}});
          opens = false;
        }
        Gather& last = gathers_.back();
        gather_of_[{v, pass}] = gathers_.size() - 1;
        last.variables.push_back(v);
        last.bytes += bytes;
        last.by.insert(last.by.end(), by_variable.at(v).begin(), by_variable.at(v).end());
      }
    }
  }

  // ----------------------------------------------------------------------------------------------- rewriting

  void take_slices() {
    for (NodeId id = 0; id < static_cast<NodeId>(variables_of_.size()); ++id) {
      Node& node = graph_.mutable_node(id);
      if (node.removed || node.op->role != OpRole::Variable) continue;
      const auto at = number_.find(variable_of(graph_, {id, 0}).name);
      if (at == number_.end()) continue;
      node.attrs.set("shape", slices_[at->second].local_shape());
      node.attrs.set("shared_name", slice_name(slices_[at->second].whole.name));
      infer_node(graph_, id);
    }
    for (const NodeId id : nodes_.order)
      if (graph_.node(id).op->role == OpRole::Read && !of({id, 0}).empty()) infer_node(graph_, id);
  }

  void gather(Gather& of) {
    const auto at = static_cast<std::size_t>(&of - gathers_.data());
    const std::string name =
        "gather/pass" + std::to_string(of.pass) + "/" + slices_[of.variables[0]].whole.name;
    std::vector<ValueRef> runs;
    for (const std::size_t v : of.variables) runs.push_back({reads_.at(v), 0});
    std::vector<NodeId> behind;
    if (at >= 2 && !options_.keeps)
      for (const Use* use : gathers_[at - 2].by)
        if (use->node != kNoNode && use->position < of.first) behind.push_back(use->node);
    std::ranges::sort(behind);
    behind.erase(std::unique(behind.begin(), behind.end()), behind.end());
    const std::vector<ValueRef> all = calls_.gather(runs, name, behind);
    for (std::size_t i = 0; i < all.size(); ++i) of.whole.push_back(whole(all[i], slices_[of.variables[i]]));
  }

  /// [ranks, n] to the variable's shape.
  ValueRef whole(ValueRef all, const TensorSlice& slice) {
    const std::string name = "gather/" + slice.whole.name;
    const std::int64_t elements = slice.whole.shape.elements();
    const std::int64_t padded = slice.local_shape().elements() * slice.parts;
    if (padded != elements)
      all = add_node(graph_, "Slice", name + "/elements",
                     {reshaped(graph_, all, {padded}, name + "/flat"), constant({0}, name + "/begin"),
                      constant({elements}, name + "/size")},
                     {{"T", DType::Float32}, {"Index", DType::Int64}});
    const auto dims = slice.whole.shape.dims();
    return reshaped(graph_, all, {dims.begin(), dims.end()}, name + "/whole");
  }

  /// The value as this pass has it. REQUIRES: it follows from spread variables.
  ValueRef as_in(ValueRef value, int pass) {
    const Node& node = graph_.node(value.node);
    if (node.op->role == OpRole::Read) {
      const std::size_t v = *of(value).begin();
      const Gather& from = gathers_[gather_of_.at({v, pass})];
      return from
          .whole[static_cast<std::size_t>(std::ranges::find(from.variables, v) - from.variables.begin())];
    }
    const auto found = copies_.find({value.node, pass});
    if (found != copies_.end()) return {found->second, value.output};
    Node copy = node;
    copy.name = graph_.unique_name(node.name + "/pass" + std::to_string(pass));
    copy.control_inputs.clear();
    copy.colocate_with = kNoNode;
    for (ValueRef& input : copy.inputs)
      if (!of(input).empty()) input = as_in(input, pass);
    const NodeId id = graph_.add(std::move(copy));
    copies_[{value.node, pass}] = id;
    return {id, value.output};
  }

  void finish() {
    for (const Use& use : shapes_) graph_.mutable_node(use.node).inputs[use.input] = of_shape(use.value);
    const auto moved = [&](ValueRef value, int pass) {
      return value.valid() && is_old(value) && !of(value).empty() ? as_in(value, pass) : value;
    };
    training_.loss = moved(training_.loss, 0);
    training_.weighted_loss = moved(training_.weighted_loss, 0);
    for (VariableGradient& gradient : training_.gradients) {
      if (gradient.slices) continue;
      gradient.dense = moved(gradient.dense, last_pass_);
      const auto at = number_.find(gradient.variable.name);
      if (at == number_.end()) continue;
      const TensorSlice& slice = slices_[at->second];
      gradient.dense = calls_.sum_of_run(padded(gradient.dense, slice), "scatter/" + slice.whole.name);
      gradient.variable.name = slice_name(slice.whole.name);
      gradient.variable.shape = slice.local_shape();
    }
    remove_unneeded();
  }
  bool is_old(ValueRef value) const { return static_cast<std::size_t>(value.node) < variables_of_.size(); }

  ValueRef padded(ValueRef gradient, const TensorSlice& slice) {
    const std::string name = "scatter/" + slice.whole.name;
    const std::int64_t elements = slice.whole.shape.elements();
    const std::int64_t missing = slice.local_shape().elements() * slice.parts - elements;
    const ValueRef flat = reshaped(graph_, gradient, {elements}, name + "/flat");
    if (missing == 0) return flat;
    const ValueRef paddings = add_node(
        graph_, "Const", name + "/paddings", {},
        {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(Shape{1, 2}, Dims{0, missing})}});
    return add_node(graph_, "Pad", name + "/padded", {flat, paddings},
                    {{"T", DType::Float32}, {"Tpaddings", DType::Int64}});
  }

  /// Nobody reads its elements.
  ValueRef of_shape(ValueRef value) {
    const auto [place, fresh] = of_shapes_.try_emplace(value);
    if (!fresh) return place->second;
    const OutputInfo info = nodes_.inferred.info(value);
    const std::string name = graph_.node(value.node).name + "/shape_of_whole";
    const auto dims = info.shape.dims();
    const ValueRef zero = add_node(graph_, "Const", name + "/zero", {},
                                   {{"dtype", info.dtype}, {"value", Tensor::zeros(info.dtype, Shape{})}});
    return place->second =
               add_node(graph_, "Fill", name, {constant({dims.begin(), dims.end()}, name + "/dims"), zero},
                        {{"T", info.dtype}, {"index_type", DType::Int64}});
  }

  /// What a step does not need, and what was copied for passes, may not fit slices.
  void remove_unneeded() {
    const auto goes = [&](NodeId id) {
      if (static_cast<std::size_t>(id) >= variables_of_.size()) return false;
      const OpRole role = graph_.node(id).op->role;
      if (role == OpRole::Placeholder || role == OpRole::Variable) return false;
      return !nodes_.is(nodes_.needed, id) || (role != OpRole::Read && !of({id, 0}).empty());
    };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_.node(id).removed || goes(id)) continue;
      Node& node = graph_.mutable_node(id);
      std::erase_if(node.control_inputs, goes);
      if (node.colocate_with != kNoNode && goes(node.colocate_with)) node.colocate_with = kNoNode;
    }
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!graph_.node(id).removed && goes(id)) graph_.remove(id);
  }

  ValueRef constant(const Dims& values, const std::string& name) {
    return add_node(
        graph_, "Const", name, {},
        {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(Shape{std::ssize(values)}, values)}});
  }

  TrainingGraph& training_;
  Graph& graph_;
  const std::vector<TensorSlice>& slices_;
  const SpreadOptions options_;
  const SpreadCalls& calls_;
  const PipelineNodes nodes_;
  std::map<std::string, std::size_t> number_;        // by variable
  std::vector<std::set<std::size_t>> variables_of_;  // by node of the graph that was
  std::map<std::size_t, NodeId> reads_;
  std::vector<Use> uses_, shapes_;
  int last_pass_ = 1;
  std::vector<Gather> gathers_;
  std::map<InPass, std::size_t> gather_of_;
  std::map<std::pair<NodeId, int>, NodeId> copies_;
  std::map<ValueRef, ValueRef> of_shapes_;
};

/// Variables of which every use in a step is a read of the value.
std::set<std::string> read_by_value(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::set<std::string> read, otherwise;
  for (const NodeId id : pipeline_nodes(training, fed_columns(training)).order) {
    const Node& node = graph.node(id);
    for (const ValueRef input : node.inputs)
      if (graph.node(input.node).op->role == OpRole::Variable)
        (node.op->role == OpRole::Read ? read : otherwise).insert(variable_of(graph, input).name);
  }
  for (const std::string& name : otherwise) read.erase(name);
  return read;
}

}  // namespace

std::vector<TensorSlice> spread_slices(const TrainingGraph& training, int ranks, std::int64_t min_elements) {
  std::vector<TensorSlice> slices;
  const std::set<std::string> read = read_by_value(training);
  std::set<std::string> trained;
  for (const VariableGradient& gradient : training.gradients)
    if (!gradient.slices) trained.insert(gradient.variable.name);
  for (const VariableInfo& variable : list_variables(training.graph)) {
    const bool fits = variable.dtype == DType::Float32 && variable.shape.is_static() &&
                      variable.shape.elements() >= std::max<std::int64_t>(min_elements, ranks);
    if (fits && trained.contains(variable.name) && read.contains(variable.name))
      slices.push_back({.whole = variable, .parts = ranks, .flat = true});
  }
  return slices;
}

std::vector<VariableGather> spread_variables(TrainingGraph& training, const std::vector<TensorSlice>& slices,
                                             const SpreadOptions& options, const SpreadCalls& calls) {
  return SpreadRewrite(training, slices, options, calls).run();
}

}  // namespace braid::worker
