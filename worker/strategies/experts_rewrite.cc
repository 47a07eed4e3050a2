#include "worker/strategies/experts_rewrite.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/strategies/tensor_rewrite.h"

namespace braid::worker {
namespace {

using Dims = std::vector<std::int64_t>;

Tensor vector_of(const Dims& values) { return Tensor::from<std::int64_t>(Shape{std::ssize(values)}, values); }

class ExpertsRewrite {
 public:
  ExpertsRewrite(TrainingGraph& training, const ExpertsPlan& plan, int place, const ExpertCalls& calls)
      : training_(training),
        graph_(training.graph),
        plan_(plan),
        parts_(plan.graph->parts()),
        place_(place),
        calls_(calls) {}

  void run() {
    for (const NodeId id : plan_.nodes.order) {
      take_variable(id);
      connect(id);
      infer_node(graph_, id);
    }
    for (VariableGradient& gradient : training_.gradients) finish(gradient);
    training_.loss = as(training_.loss, {});
    training_.weighted_loss = as(training_.weighted_loss, {});
    remove_unneeded();
  }

 private:
  ExpertLayout made(ValueRef value) const {
    return plan_.flow.made[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
  }
  std::string name_of(ValueRef value) const { return graph_.node(value.node).name; }

  /// Of the worker's own rows.
  Dims own_dims(ValueRef value) const {
    const auto dims = plan_.nodes.inferred.info(value).shape.dims();
    return {dims.begin(), dims.end()};
  }
  Dims dims_as(ValueRef value, ExpertLayout layout) const {
    Dims dims = own_dims(value);
    if (layout.kind != ExpertLayout::Own) dims[static_cast<std::size_t>(layout.experts)] /= parts_;
    if (layout.rows != ExpertLayout::kNoRows) dims[static_cast<std::size_t>(layout.rows)] *= parts_;
    return dims;
  }

  // ------------------------------------------------------------------------------------------------- nodes

  void take_variable(NodeId id) {
    if (graph_.node(id).op->role != OpRole::Variable) return;
    const TensorSlice* slice = plan_.find(variable_of(graph_, {id, 0}).name);
    if (!slice) return;
    Node& handle = graph_.mutable_node(id);
    handle.attrs.set("shape", slice->local_shape());
    handle.attrs.set("shared_name", slice_name(slice->whole.name));
  }

  void connect(NodeId id) {
    const std::vector<ExpertLayout>& needed = plan_.flow.needed[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const ValueRef from = plan_.nodes.inferred.node(id).inputs[i];
      const ValueRef now =
          reads_shape_only(graph_.node(id), i) ? of_shape(from, needed[i]) : as(from, needed[i]);
      graph_.mutable_node(id).inputs[i] = now;
    }
    if (graph_.node(id).op->name == "Reshape" && made({id, 0}).kind != ExpertLayout::Own) {
      Dims dims = dims_as({id, 0}, made({id, 0}));
      const ValueRef shape = constant(dims, graph_.node(id).name + "/slice_shape");
      Node& node = graph_.mutable_node(id);
      node.inputs[1] = shape;
      node.attrs.set("Tshape", DType::Int64);
    }
  }

  void finish(VariableGradient& gradient) {
    const TensorSlice* slice = plan_.find(gradient.variable.name);
    if (gradient.slices) {
      gradient.slices->values = as(gradient.slices->values, {});
      gradient.slices->indices = as(gradient.slices->indices, {});
      return;
    }
    gradient.dense = as(gradient.dense, slice ? ExpertLayout::total(slice->axis) : ExpertLayout{});
    if (!slice) return;
    gradient.variable.name = slice_name(slice->whole.name);
    gradient.variable.shape = slice->local_shape();
  }

  /// What a step does not need may not fit slices.
  void remove_unneeded() {
    for (NodeId id = 0; id < plan_.nodes.inferred.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!node.removed && !plan_.nodes.is(plan_.nodes.needed, id) && node.op->role != OpRole::Placeholder &&
          node.op->role != OpRole::Variable)
        graph_.remove(id);
    }
  }

  // ------------------------------------------------------------------------------------------- conversions

  /// A value of the graph that was, as it is needed.
  ValueRef as(ValueRef value, ExpertLayout needed) {
    const ExpertLayout from = made(value);
    if (from == needed) return value;
    if (const ValueRef first = plan_.graph->origin(value);
        from.kind == ExpertLayout::Own && made(first).kind == ExpertLayout::Own)
      value = first;
    if (const auto at = converted_.find({value, needed}); at != converted_.end()) return at->second;
    const ValueRef found = convert(value, from, needed);
    converted_[{value, needed}] = found;
    return found;
  }

  ValueRef convert(ValueRef value, ExpertLayout from, ExpertLayout needed) {
    const bool has_rows = from.rows != ExpertLayout::kNoRows;
    if (needed.kind == ExpertLayout::Own) {
      if (has_rows) return from_experts(value, from);
      // A total is a sum over the group, of which each worker has its share.
      const ValueRef all = gather(value, from);
      return from.kind == ExpertLayout::Total ? times(all, 1.0F / static_cast<float>(parts_)) : all;
    }
    if (from.kind == ExpertLayout::Slice && needed.kind == ExpertLayout::Slice)
      return from_own(value, as(value, {}), needed);
    if (from.kind == ExpertLayout::Slice && !has_rows && from.experts == needed.experts)
      return times(value, static_cast<float>(parts_));  // all workers of the group have it alike

    return from_own(value, from.kind == ExpertLayout::Own ? value : as(value, {}), needed);
  }

  ValueRef from_own(ValueRef value, ValueRef own, ExpertLayout needed) {
    if (needed.kind == ExpertLayout::Total) return sum_of_slice(value, own, needed);
    return needed.rows == ExpertLayout::kNoRows ? own_slice(value, own, needed)
                                                : to_experts(value, own, needed);
  }

  /// [.., E, .., rows, ..] of own rows -> [.., E / parts, .., parts rows, ..]
  ValueRef to_experts(ValueRef value, ValueRef own, ExpertLayout to) {
    const std::string name = name_of(value) + "/to_experts";
    const Dims dims = own_dims(value);
    const Dims order = experts_first(dims, to.experts);
    ValueRef sent = transposed(own, dims, order, name);
    sent = calls_.all_to_all(sent, name);
    // [parts, E / parts, the other axes]: from each worker its rows of this one's experts
    const Dims shape = behind_parts(dims, order);
    Dims back;
    for (std::int64_t axis = 0; axis < std::ssize(dims); ++axis) {
      if (axis == to.rows) back.push_back(0);
      back.push_back(std::ranges::find(order, axis) - order.begin() + 1);
    }
    const ValueRef by_worker = reshaped(sent, shape, name + "/by_worker");
    return reshaped(transposed(by_worker, shape, back, name + "/rows"), dims_as(value, to),
                    name + "/all_rows");
  }

  /// The inverse.
  ValueRef from_experts(ValueRef value, ExpertLayout from) {
    const std::string name = name_of(value) + "/from_experts";
    const Dims dims = own_dims(value), slice = dims_as(value, from);
    Dims split;  // with [parts, rows] where all rows are
    for (std::int64_t axis = 0; axis < std::ssize(slice); ++axis) {
      if (axis == from.rows) split.push_back(parts_);
      split.push_back(axis == from.rows ? dims[static_cast<std::size_t>(axis)]
                                        : slice[static_cast<std::size_t>(axis)]);
    }
    const auto place = [&](std::int64_t axis) { return axis + (axis >= from.rows ? 1 : 0); };
    Dims order{from.rows, place(from.experts)};
    for (std::int64_t axis = 0; axis < std::ssize(dims); ++axis)
      if (axis != from.experts) order.push_back(place(axis));
    ValueRef sent = transposed(reshaped(value, split, name + "/by_worker"), split, order, name + "/sent");
    const Dims first = experts_first(dims, from.experts);
    const Dims whole = permuted(dims, first);
    sent = calls_.all_to_all(reshaped(sent, whole, name + "/blocks"), name);
    Dims back(dims.size());
    for (std::size_t i = 0; i < first.size(); ++i)
      back[static_cast<std::size_t>(first[i])] = static_cast<std::int64_t>(i);
    return transposed(sent, whole, back, name + "/own_rows");
  }

  ValueRef own_slice(ValueRef value, ValueRef own, ExpertLayout to) {
    const std::string name = name_of(value) + "/own_experts";
    const Dims dims = own_dims(value);
    const std::int64_t size = dims[static_cast<std::size_t>(to.experts)] / parts_;
    Dims begin(dims.size(), 0), sizes(dims.size(), -1);
    begin[static_cast<std::size_t>(to.experts)] = size * place_;
    sizes[static_cast<std::size_t>(to.experts)] = size;
    return add_node(graph_, "Slice", name,
                    {own, constant(begin, name + "/begin"), constant(sizes, name + "/size")},
                    {{"T", plan_.nodes.inferred.info(value).dtype}, {"Index", DType::Int64}}, value.node);
  }

  /// [parts, .., E / parts, ..] to [.., E, ..]
  ValueRef gather(ValueRef value, ExpertLayout from) {
    const std::string name = name_of(value) + "/all_experts";
    const ValueRef all = calls_.gather(value, name);
    Dims shape = dims_as(value, from), order;
    for (std::int64_t axis = 0; axis < std::ssize(shape); ++axis) {
      if (axis == from.experts) order.push_back(0);
      order.push_back(axis + 1);
    }
    shape.insert(shape.begin(), parts_);
    return reshaped(transposed(all, shape, order, name + "/in_order"), own_dims(value), name + "/whole");
  }

  ValueRef sum_of_slice(ValueRef value, ValueRef own, ExpertLayout to) {
    const std::string name = name_of(value) + "/sum_of_experts";
    const Dims dims = own_dims(value), order = experts_first(dims, to.experts);
    const ValueRef sum = calls_.sum_of_slice(transposed(own, dims, order, name + "/experts_first"), name);
    Dims back(dims.size()), slice = permuted(dims, order);
    slice[0] /= parts_;
    for (std::size_t i = 0; i < order.size(); ++i)
      back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    return transposed(sum, slice, back, name + "/in_order");
  }

  ValueRef times(ValueRef value, float factor_value) {
    const std::string name = name_of(value) + "/times_workers";
    const ValueRef factor = add_node(graph_, "Const", name + "/factor", {},
                                     {{"dtype", DType::Float32}, {"value", Tensor::scalar(factor_value)}});
    return add_node(graph_, "Mul", name, {value, factor}, {{"T", DType::Float32}}, value.node);
  }

  /// Nobody reads its elements.
  ValueRef of_shape(ValueRef value, ExpertLayout needed) {
    if (dims_as(value, made(value)) == dims_as(value, needed)) return value;
    if (const auto at = converted_.find({value, needed}); at != converted_.end()) return at->second;
    const DType dtype = plan_.nodes.inferred.info(value).dtype;
    const std::string name = name_of(value) + "/shape_of_slice";
    return add_node(graph_, "Fill", name,
                    {constant(dims_as(value, needed), name + "/dims"),
                     add_node(graph_, "Const", name + "/zero", {},
                              {{"dtype", dtype}, {"value", Tensor(dtype, Shape{})}})},
                    {{"T", dtype}, {"index_type", DType::Int64}}, value.node);
  }

  // ------------------------------------------------------------------------------------------------- moves

  static Dims experts_first(const Dims& dims, int experts) {
    Dims order{experts};
    for (std::int64_t axis = 0; axis < std::ssize(dims); ++axis)
      if (axis != experts) order.push_back(axis);
    return order;
  }
  static Dims permuted(const Dims& dims, const Dims& order) {
    Dims found;
    for (const std::int64_t axis : order) found.push_back(dims[static_cast<std::size_t>(axis)]);
    return found;
  }
  /// [E, ...] as [parts, E / parts, ...].
  Dims behind_parts(const Dims& dims, const Dims& order) const {
    Dims shape = permuted(dims, order);
    shape[0] /= parts_;
    shape.insert(shape.begin(), parts_);
    return shape;
  }

  ValueRef constant(const Dims& values, const std::string& name) {
    return add_node(graph_, "Const", name, {}, {{"dtype", DType::Int64}, {"value", vector_of(values)}});
  }
  /// A value of that shape by axes in another order; where no element moves it gets the other shape only.
  ValueRef transposed(ValueRef value, const Dims& dims, const Dims& order, const std::string& name) {
    Dims moving = order;
    std::erase_if(moving, [&](std::int64_t axis) { return dims[static_cast<std::size_t>(axis)] == 1; });
    if (std::ranges::is_sorted(order)) return value;
    if (std::ranges::is_sorted(moving)) return reshaped(value, permuted(dims, order), name + "/as");
    return add_node(graph_, "Transpose", name, {value, constant(order, name + "/order")},
                    {{"Tperm", DType::Int64}}, value.node);
  }
  ValueRef reshaped(ValueRef value, const Dims& dims, const std::string& name) {
    return add_node(graph_, "Reshape", name, {value, constant(dims, name + "/shape")},
                    {{"Tshape", DType::Int64}}, value.node);
  }

  TrainingGraph& training_;
  Graph& graph_;
  const ExpertsPlan& plan_;
  const std::int64_t parts_;
  const int place_;
  const ExpertCalls& calls_;
  std::map<std::pair<ValueRef, ExpertLayout>, ValueRef> converted_;
};

}  // namespace

void spread_experts(TrainingGraph& training, const ExpertsPlan& plan, int place, const ExpertCalls& calls) {
  ExpertsRewrite(training, plan, place, calls).run();
}

}  // namespace braid::worker
