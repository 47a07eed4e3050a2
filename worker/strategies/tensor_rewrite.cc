#include "worker/strategies/tensor_rewrite.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ops/nn/dropout_mask.h"

namespace braid::worker {
namespace {

Tensor vector_of(const std::vector<std::int64_t>& values) {
  return Tensor::from<std::int64_t>(Shape{std::ssize(values)}, values);
}

class Rewrite {
 public:
  Rewrite(TrainingGraph& training, const TensorPlan& plan, int place, const GroupCalls& calls)
      : training_(training), graph_(training.graph), plan_(plan), place_(place), calls_(calls) {}

  std::vector<WhileExchanging> run() {
    note_weights();
    for (const NodeId id : plan_.nodes.order) {
      take_variable(id);
      connect(id);
      if (const auto at = of_weights_.find(id); at != of_weights_.end()) put_off_.push_back(at->second);
      ++position_;
      infer_node(graph_, id);
      if (plan_.nodes.inferred.node(id).op->name == "braid.Dropout" && made({id, 0}).kind == Layout::Slice)
        drop_out(id);
    }
    add_up_small_gradients();
    for (VariableGradient& gradient : training_.gradients) finish(gradient);
    training_.loss = as(training_.loss, {});
    training_.weighted_loss = as(training_.weighted_loss, {});
    remove_unneeded();
    return std::move(waits_);
  }

 private:
  Layout made(ValueRef value) const {
    return plan_.flow.made[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
  }
  const Shape& whole_shape(ValueRef value) const { return plan_.nodes.inferred.info(value).shape; }
  std::string name_of(ValueRef value) const { return graph_.node(value.node).name; }

  ValueRef constant(const std::vector<std::int64_t>& values, const std::string& name) {
    return add_node(graph_, "Const", name, {}, {{"dtype", DType::Int64}, {"value", vector_of(values)}});
  }

  void take_variable(NodeId id) {
    if (graph_.node(id).op->role != OpRole::Variable) return;
    const TensorSlice* slice = plan_.find(variable_of(graph_, {id, 0}).name);
    if (!slice) return;
    Node& handle = graph_.mutable_node(id);
    handle.attrs.set("shape", slice->local_shape());
    handle.attrs.set("shared_name", slice_name(slice->whole.name));
  }

  void connect(NodeId id) {
    const std::vector<Layout>& needed = plan_.flow.needed[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const ValueRef from = plan_.nodes.inferred.node(id).inputs[i];
      const ValueRef now = as(from, needed[i], reads_shape_only(graph_.node(id), i));
      graph_.mutable_node(id).inputs[i] = now;
      if (made(from).kind != Layout::Whole && made(from) != needed[i] &&
          plan_.nodes.is(plan_.nodes.backward, from.node))
        come_behind_gradients(id);
    }
    if (graph_.node(id).op->name == "Reshape" && made({id, 0}).kind == Layout::Slice) give_shape(id);
  }

  /// Gradients of slices, and where in the order the variables are read last.
  void note_weights() {
    for (const VariableGradient& gradient : training_.gradients)
      if (const std::string& name = gradient.variable.name;
          gradient.dense.valid() && gradient.variable.shape.rank() > 1 && plan_.find(name))
        of_weights_[gradient.dense.node] = {gradient.dense.node, slice_name(name), 0};
    std::map<std::string, std::int64_t> last;
    std::int64_t position = 0;
    for (const NodeId id : plan_.nodes.order) {
      for (const ValueRef input : plan_.nodes.inferred.node(id).inputs)
        last[plan_.graph->variable_of_value(input)] = position;
      ++position;
    }
    for (const VariableGradient& gradient : training_.gradients)
      if (const auto at = of_weights_.find(gradient.dense.node);
          gradient.dense.valid() && at != of_weights_.end())
        at->second.last_read = last[gradient.variable.name];
  }

  void come_behind_gradients(NodeId id) {
    if (put_off_.empty()) return;
    WhileExchanging wait{id, {}};
    for (const Weights& each : put_off_)
      wait.gradients.push_back({each.gradient, each.variable, each.last_read < position_});
    waits_.push_back(std::move(wait));
    put_off_.clear();
  }

  /// That of the slice.
  void give_shape(NodeId id) {
    const ValueRef output{id, 0};
    const Tensor* said = graph_.known_value(graph_.node(id).inputs[1]);
    const Shape& whole = whole_shape(output);
    std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
    if (said) dims = tensor_to_int64s(*said);
    std::int64_t& cut = dims[static_cast<std::size_t>(made(output).axis)];
    if (cut >= 0) cut /= plan_.graph->parts();
    const ValueRef shape = constant(dims, graph_.node(id).name + "/slice_shape");
    Node& node = graph_.mutable_node(id);
    node.inputs[1] = shape;
    node.attrs.set("Tshape", DType::Int64);
  }

  /// The mask is what one process draws: all of it is drawn, and the slice taken.
  void drop_out(NodeId id) {
    const Node node = graph_.node(id);
    const ValueRef dropped{id, 0};
    const Shape& whole = whole_shape(dropped);
    const ValueRef ones =
        add_node(graph_, "Fill", node.name + "/ones",
                 {constant({whole.dims().begin(), whole.dims().end()}, node.name + "/whole_shape"),
                  add_node(graph_, "Const", node.name + "/one", {},
                           {{"dtype", DType::Float32}, {"value", Tensor::scalar(1.0F)}})},
                 {{"T", DType::Float32}, {"index_type", DType::Int64}}, id);
    AttrMap attrs = node.attrs;
    attrs.set("mask_name", dropout_mask_name(node));
    const ValueRef mask =
        add_node(graph_, "braid.Dropout", node.name + "/mask", {ones}, std::move(attrs), id);
    const ValueRef own = slice(mask, whole, made(dropped).axis);
    moved_[dropped] =
        add_node(graph_, "Mul", node.name + "/slice", {node.inputs[0], own}, {{"T", DType::Float32}}, id);
  }

  ValueRef slice(ValueRef value, const Shape& whole, int axis) {
    const std::int64_t size = whole[axis] / plan_.graph->parts();
    std::vector<std::int64_t> begin(static_cast<std::size_t>(whole.rank()), 0), sizes(begin.size(), -1);
    begin[static_cast<std::size_t>(axis)] = size * place_;
    sizes[static_cast<std::size_t>(axis)] = size;
    const std::string name = name_of(value) + "/own_slice";
    return add_node(graph_, "Slice", name,
                    {value, constant(begin, name + "/begin"), constant(sizes, name + "/size")},
                    {{"T", graph_.info(value).dtype}, {"Index", DType::Int64}}, value.node);
  }

  /// [parts, ..., n / parts, ...] to [..., n, ...]
  ValueRef gather(ValueRef value, const Shape& whole, int axis) {
    const std::string name = name_of(value);
    ValueRef all = calls_.gather(value, name);
    if (axis > 0) {
      std::vector<std::int64_t> order;
      for (int a = 1; a <= axis; ++a) order.push_back(a);
      order.push_back(0);
      for (int a = axis + 1; a <= whole.rank(); ++a) order.push_back(a);
      all = add_node(graph_, "Transpose", name + "/whole_order",
                     {all, constant(order, name + "/slices_order")}, {{"Tperm", DType::Int64}}, value.node);
    }
    return add_node(graph_, "Reshape", name + "/whole",
                    {all, constant({whole.dims().begin(), whole.dims().end()}, name + "/whole_shape")},
                    {{"Tshape", DType::Int64}}, value.node);
  }

  /// Nobody reads its elements.
  ValueRef of_whole_shape(ValueRef value, int axis) {
    std::vector<ValueRef> inputs(static_cast<std::size_t>(plan_.graph->parts()), value);
    const std::string name = name_of(value) + "/whole_shape_of";
    inputs.push_back(add_node(graph_, "Const", name + "/axis", {},
                              {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(axis)}}));
    const auto count = static_cast<std::int64_t>(plan_.graph->parts());
    return add_node(graph_, "ConcatV2", name, std::move(inputs), {{"N", count}}, value.node);
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

  ValueRef now(ValueRef value) const {
    const auto at = moved_.find(value);
    return at == moved_.end() ? value : at->second;
  }

  /// A value of the graph that was, as it is needed.
  ValueRef as(ValueRef value, Layout needed, bool shape_only = false) {
    const Layout from = made(value);
    if (from == needed) return now(value);
    if (shape_only && from.kind != Layout::Slice && needed.kind != Layout::Slice) return now(value);
    const auto [at, fresh] = converted_.try_emplace({value, needed, shape_only});
    if (!fresh) return at->second;
    const ValueRef made = convert(value, from, needed, shape_only);
    return converted_[{value, needed, shape_only}] = made;
  }

  ValueRef convert(ValueRef value, Layout from, Layout needed, bool shape_only) {
    const ValueRef own = now(value);
    if (from.kind == Layout::Whole) {
      if (needed.kind == Layout::Slice) return slice(own, whole_shape(value), needed.axis);
      return term_of_first(own);
    }
    if (from.kind == Layout::Term && needed == Layout::slice(0) && calls_.sum_of_slice && !shape_only)
      return calls_.sum_of_slice(own, name_of(own));
    if (needed.kind != Layout::Whole) {  // through the whole
      const ValueRef whole = as(value, {}, shape_only);
      if (needed.kind == Layout::Slice) return slice(whole, whole_shape(value), needed.axis);
      return term_of_first(whole);
    }
    if (from.kind == Layout::Term) return shape_only ? own : calls_.sum({own}, name_of(own))[0];
    return shape_only ? of_whole_shape(own, from.axis) : gather(own, whole_shape(value), from.axis);
  }

  /// One sum of all has one latency.
  bool is_added_together(const VariableGradient& gradient) const {
    return !gradient.slices && !plan_.find(gradient.variable.name) &&
           made(gradient.dense).kind != Layout::Slice && gradient.variable.shape.elements() <= kSmallGradient;
  }
  /// What a sum over the group makes the first one's value of. All make the value: it may be what an exchange
  /// is for, which all have to come to.
  ValueRef term_of_first(ValueRef value) {
    const std::string name = name_of(value) + "/of_first";
    const ValueRef share =
        add_node(graph_, "Const", name + "/share", {},
                 {{"dtype", DType::Float32}, {"value", Tensor::scalar(place_ == 0 ? 1.0F : 0.0F)}});
    return add_node(graph_, "Mul", name, {value, share}, {{"T", DType::Float32}}, value.node);
  }
  void add_up_small_gradients() {
    std::vector<ValueRef> values, terms;
    for (const VariableGradient& gradient : training_.gradients) {
      const ValueRef value = gradient.dense;
      if (!is_added_together(gradient) || converted_.contains({value, Layout{}, false})) continue;
      values.push_back(value);
      terms.push_back(made(value).kind == Layout::Term ? now(value) : term_of_first(now(value)));
    }
    if (values.empty()) return;
    terms = calls_.sum(std::move(terms), "gradients/of_whole_variables");
    for (std::size_t i = 0; i < values.size(); ++i) told_[values[i]] = terms[i];
  }

  void finish(VariableGradient& gradient) {
    const TensorSlice* slice = plan_.find(gradient.variable.name);
    ValueRef& value = gradient.slices ? gradient.slices->values : gradient.dense;
    const bool all_make_it = !slice && made(value).kind == Layout::Whole;
    if (const auto at = told_.find(value); !slice && at != told_.end()) {
      value = at->second;
    } else {
      value = as(value, slice ? Layout::slice(slice->axis) : Layout{});
      if (all_make_it && (!gradient.slices || calls_.tells_rows))
        value = calls_.sum({term_of_first(value)}, name_of(value))[0];
    }
    if (gradient.slices) gradient.slices->indices = as(gradient.slices->indices, {});
    if (!slice) return;
    gradient.variable.name = slice_name(slice->whole.name);
    gradient.variable.shape = slice->local_shape();
  }

  TrainingGraph& training_;
  Graph& graph_;
  const TensorPlan& plan_;
  const int place_;
  const GroupCalls& calls_;
  struct Weights {
    NodeId gradient;
    std::string variable;
    std::int64_t last_read;  // position in the order
  };
  std::int64_t position_ = 0;  // of the node in the order
  std::map<NodeId, Weights> of_weights_;
  std::vector<Weights> put_off_;  // whose gradients no exchange has waited for
  std::vector<WhileExchanging> waits_;
  std::map<ValueRef, ValueRef> moved_;  // values that another node makes now
  std::map<std::tuple<ValueRef, Layout, bool>, ValueRef> converted_;
  std::map<ValueRef, ValueRef> told_;  // gradients that are exchanged together
};

}  // namespace

std::string slice_name(const std::string& variable) { return variable + "/slice"; }

std::vector<WhileExchanging> take_slices(TrainingGraph& training, const TensorPlan& plan, int place,
                                         const GroupCalls& calls) {
  return Rewrite(training, plan, place, calls).run();
}

}  // namespace braid::worker
