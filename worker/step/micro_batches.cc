#include "worker/step/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"

namespace braid::worker {
namespace {

constexpr const char* kWeight = "accumulate/weight";
constexpr const char* kMaskName = "mask_name";  // of a dropout's gradient: the forward node

ValueRef constant(Graph& graph, const std::string& name, Tensor value) {
  const DType dtype = value.dtype();
  return add_node(graph, "Const", name, {}, {{"dtype", dtype}, {"value", std::move(value)}});
}

class PartMaker {
 public:
  PartMaker(TrainingGraph& training, const std::vector<std::string>& columns, std::int64_t rows,
            std::int64_t parts, PartOrder order)
      : training_(training),
        graph_(training.graph),
        rows_(rows),
        parts_(parts),
        in_turn_(order == PartOrder::InTurn) {
    for (const std::string& column : columns)
      if (const NodeId id = graph_.find(column); id != kNoNode) columns_.push_back(id);
    find_own();
  }

  void run() {
    const ValueRef loss = training_.loss, weighted = training_.weighted_loss;
    const std::vector<VariableGradient> gradients = training_.gradients;
    const std::vector<std::string> targets = training_.targets;
    std::vector<std::vector<VariableGradient>> of_part;
    for (std::int64_t part = 0; part < parts_; ++part) {
      copies_.assign(own_.size(), kNoNode);
      const NodeId before = end_;
      if (part == 0)
        take_originals();
      else
        copy(part, before);
      feed(part);
      training_.loss = part == 0 ? copied(loss)
                                 : add_node(graph_, "AddV2", "accumulate/loss",
                                            {training_.loss, copied(loss)}, {{"T", DType::Float32}});
      if (weighted == loss)
        training_.weighted_loss = training_.loss;
      else
        training_.weighted_loss =
            part == 0 ? copied(weighted)
                      : add_node(graph_, "AddV2", "accumulate/weighted_loss",
                                 {training_.weighted_loss, copied(weighted)}, {{"T", DType::Float32}});
      std::vector<NodeId> last{training_.loss.node, training_.weighted_loss.node};
      of_part.emplace_back();
      for (std::size_t g = 0; g < gradients.size(); ++g) {
        VariableGradient own = gradients[g];
        if (own.slices) {
          own.slices = IndexedSlices{copied(own.slices->indices), copied(own.slices->values)};
          last.push_back(own.slices->values.node);
        } else {
          own.dense = copied(own.dense);
          if (part > 0) {
            const ValueRef so_far = of_part[static_cast<std::size_t>(part) - 1][g].dense;
            own.dense = add_node(graph_, "AddV2", "accumulate/" + own.variable.name, {so_far, own.dense},
                                 {{"T", own.variable.dtype}}, own.dense.node);
          }
          last.push_back(own.dense.node);
        }
        of_part.back().push_back(std::move(own));
      }
      for (const std::string& target : targets) {
        const NodeId id = graph_.find(target);
        if (id == kNoNode) continue;
        const NodeId own = copied({id, 0}).node;
        if (part > 0 && own != id) training_.targets.push_back(graph_.node(own).name);
        last.push_back(own);
      }
      note_part(part, last);
      if (in_turn_) end_ = end_of(part, last);
    }
    training_.part_of.resize(static_cast<std::size_t>(graph_.size()), -1);
    training_.gradients = of_part.back();
    for (std::size_t g = 0; g < gradients.size(); ++g)
      if (gradients[g].slices) join_rows(training_.gradients[g], of_part, g);
  }

 private:
  /// The nodes that each part has for itself: those that the batch reaches, and random ones.
  void find_own() {
    own_.assign(static_cast<std::size_t>(graph_.size()), false);
    order_ = graph_.topological_order();
    const NodeId weight = graph_.find(kWeight);
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      if (std::find(columns_.begin(), columns_.end(), id) != columns_.end()) continue;
      const auto from_own = [&](NodeId input) {
        return own_[static_cast<std::size_t>(input)] ||
               std::find(columns_.begin(), columns_.end(), input) != columns_.end();
      };
      own_[static_cast<std::size_t>(id)] =
          id == weight || is_random(node) ||
          std::any_of(node.inputs.begin(), node.inputs.end(),
                      [&](const ValueRef& input) { return from_own(input.node); }) ||
          std::any_of(node.control_inputs.begin(), node.control_inputs.end(), from_own);
    }
    std::erase_if(order_, [&](NodeId id) { return !own_[static_cast<std::size_t>(id)]; });
  }

  /// Draws anew, from the step and its name. What has to do with variables is stateful for another reason.
  bool is_random(const Node& node) const {
    const auto is_handle = [](const OutputInfo& info) { return info.dtype == DType::Resource; };
    return node.op->stateful && node.op->role != OpRole::Placeholder &&
           std::none_of(node.outputs.begin(), node.outputs.end(), is_handle) &&
           std::none_of(node.inputs.begin(), node.inputs.end(),
                        [&](const ValueRef& input) { return is_handle(graph_.info(input)); });
  }

  /// Of the part's nodes, and of the sums up to it.
  void note_part(std::int64_t part, const std::vector<NodeId>& last) {
    training_.part_of.resize(static_cast<std::size_t>(graph_.size()), -1);
    const auto note = [&](NodeId id) { training_.part_of[static_cast<std::size_t>(id)] = part; };
    for (const NodeId id : order_) note(copies_[static_cast<std::size_t>(id)]);
    for (const NodeId id : last)
      if (static_cast<std::size_t>(id) >= own_.size()) note(id);
  }

  void take_originals() {
    for (const NodeId id : order_) copies_[static_cast<std::size_t>(id)] = id;
  }

  void copy(std::int64_t part, NodeId before) {
    const std::string suffix = "/part" + std::to_string(part);
    for (const NodeId id : order_) {
      Node node = graph_.node(id);
      node.id = kNoNode;
      node.name = graph_.unique_name(node.name + suffix);
      node.outputs.clear();
      node.known_values.clear();
      bool reads_variables = false;
      for (ValueRef& input : node.inputs) {
        if (const auto fed = first_own_.find(input); fed != first_own_.end()) input = fed->second;
        const bool is_own = is_copied(input.node);
        reads_variables = reads_variables || (!is_own && depends_on_variables(input.node));
        input = copied(input);
      }
      for (NodeId& input : node.control_inputs) input = copied({input, 0}).node;
      if (reads_variables && in_turn_) node.control_inputs.push_back(before);
      if (node.attrs.has(kMaskName))
        if (const NodeId masked = graph_.find(node.attrs.get<std::string>(kMaskName, {}));
            masked != kNoNode && is_copied(masked))
          node.attrs.set(kMaskName, graph_.node(copied({masked, 0}).node).name);
      if (id == graph_.find(kWeight)) node.attrs.set("value", Tensor::scalar(share(part)));
      copies_[static_cast<std::size_t>(id)] = graph_.add(std::move(node));
    }
    for (const NodeId id : order_) {  // these may name nodes that come later
      Node& node = graph_.mutable_node(copies_[static_cast<std::size_t>(id)]);
      node.colocate_with = copied({node.colocate_with, 0}).node;
      node.forward_of = copied({node.forward_of, 0}).node;
    }
  }

  bool is_copied(NodeId id) const {
    return static_cast<std::size_t>(id) < own_.size() && own_[static_cast<std::size_t>(id)];
  }
  ValueRef copied(ValueRef value) const {
    if (!value.valid() || !is_copied(value.node)) return value;
    return {copies_[static_cast<std::size_t>(value.node)], value.output};
  }

  /// Of nodes that the batch does not reach.
  bool depends_on_variables(NodeId id) {
    if (on_variables_.empty()) on_variables_.assign(own_.size(), Unknown);
    if (static_cast<std::size_t>(id) >= on_variables_.size()) return false;
    auto& known = on_variables_[static_cast<std::size_t>(id)];
    if (known != Unknown) return known == Yes;
    const Node& node = graph_.node(id);
    bool depends = node.op->role == OpRole::Variable;
    for (const ValueRef& input : node.inputs) depends = depends_on_variables(input.node) || depends;
    on_variables_[static_cast<std::size_t>(id)] = depends ? Yes : No;
    return depends;
  }

  std::int64_t first_row(std::int64_t part) const { return rows_ * part / parts_; }
  float share(std::int64_t part) const {
    return static_cast<float>(static_cast<double>(first_row(part + 1) - first_row(part)) /
                              static_cast<double>(rows_));
  }

  /// The part's nodes read their rows of the columns.
  void feed(std::int64_t part) {
    if (part == 0) {
      const ValueRef weight{graph_.find(kWeight), 0};
      const ValueRef own = constant(graph_, std::string(kWeight) + "0", Tensor::scalar(share(0)));
      graph_.replace_uses(weight, own);
      first_own_[own] = weight;
    }
    for (const NodeId column : columns_) {
      ValueRef rows;
      for (const NodeId original : order_) {
        Node& node = graph_.mutable_node(copies_[static_cast<std::size_t>(original)]);
        for (ValueRef& input : node.inputs) {
          if (input != ValueRef{column, 0}) continue;
          if (!rows.valid()) {
            rows = rows_of(column, part);
            if (part == 0) first_own_[rows] = {column, 0};
          }
          // Adding a node may have moved the others.
          Node& user = graph_.mutable_node(copies_[static_cast<std::size_t>(original)]);
          std::replace(user.inputs.begin(), user.inputs.end(), ValueRef{column, 0}, rows);
          break;
        }
      }
    }
  }

  ValueRef rows_of(NodeId column, std::int64_t part) {
    const Node& placeholder = graph_.node(column);
    const std::string name = placeholder.name + "/rows" + std::to_string(part);
    const auto rank = static_cast<std::int64_t>(placeholder.outputs[0].shape.rank());
    const DType dtype = placeholder.outputs[0].dtype;
    std::vector<std::int64_t> begin(static_cast<std::size_t>(rank), 0),
        size(static_cast<std::size_t>(rank), -1);
    begin[0] = first_row(part);
    size[0] = first_row(part + 1) - begin[0];
    return add_node(graph_, "Slice", name,
                    {{column, 0},
                     constant(graph_, name + "/begin", Tensor::from<std::int64_t>(Shape{rank}, begin)),
                     constant(graph_, name + "/size", Tensor::from<std::int64_t>(Shape{rank}, size))},
                    {{"T", dtype}, {"Index", DType::Int64}});
  }

  /// What the next part waits for.
  NodeId end_of(std::int64_t part, const std::vector<NodeId>& last) {
    Node end;
    end.name = graph_.unique_name("accumulate/end" + std::to_string(part));
    end.op = &OpRegistry::global().require("NoOp");
    end.control_inputs = last;
    std::sort(end.control_inputs.begin(), end.control_inputs.end());
    end.control_inputs.erase(std::unique(end.control_inputs.begin(), end.control_inputs.end()),
                             end.control_inputs.end());
    return graph_.add(std::move(end));
  }

  void join_rows(VariableGradient& gradient, const std::vector<std::vector<VariableGradient>>& of_part,
                 std::size_t g) {
    const std::string name = "accumulate/" + gradient.variable.name;
    std::vector<ValueRef> indices, values;
    for (const auto& part : of_part) {
      indices.push_back(part[g].slices->indices);
      values.push_back(part[g].slices->values);
    }
    const ValueRef axis = constant(graph_, name + "/axis", Tensor::scalar<std::int32_t>(0));
    const NodeId beside = values.back().node;
    const auto join = [&](const char* what, std::vector<ValueRef> parts) {
      const DType dtype = graph_.info(parts[0]).dtype;
      const auto count = static_cast<std::int64_t>(parts.size());
      parts.push_back(axis);
      return add_node(graph_, "ConcatV2", name + what, std::move(parts), {{"N", count}, {"T", dtype}},
                      beside);
    };
    const bool pads = pads_indices(graph_, gradient);
    gradient.slices = IndexedSlices{join("/indices", indices), join("/values", values)};
    if (pads) graph_.mutable_node(gradient.slices->indices.node).attrs.set(kPadsIndices, true);
  }

  enum Known : char { Unknown, No, Yes };

  TrainingGraph& training_;
  Graph& graph_;
  const std::int64_t rows_, parts_;
  const bool in_turn_;
  std::vector<NodeId> columns_;
  std::vector<bool> own_;       // by node of the graph as it was
  std::vector<NodeId> order_;   // the own ones, inputs first
  std::vector<NodeId> copies_;  // by node of the graph as it was: the present part's
  std::vector<Known> on_variables_;
  std::map<ValueRef, ValueRef> first_own_;  // what the first part reads in the place of columns and weight
  NodeId end_ = kNoNode;
};

}  // namespace

ValueRef add_part_weight(Graph& graph, ValueRef loss) {
  const ValueRef weight = constant(graph, kWeight, Tensor::scalar(1.0F));
  return add_node(graph, "Mul", "accumulate/part_loss", {loss, weight}, {{"T", DType::Float32}}, loss.node);
}

void split_into_parts(TrainingGraph& training, const std::vector<std::string>& columns, std::int64_t rows,
                      std::int64_t parts, PartOrder order) {
  if (parts > rows)
    throw InvalidArgument(fmt::format(
        "optimizer.accumulate_steps is {}, but a worker's part of a batch has only {} rows", parts, rows));
  PartMaker(training, columns, rows, parts, order).run();
}

}  // namespace braid::worker
