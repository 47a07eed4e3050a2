#include "worker/strategies/pipeline_rewrite.h"

#include <algorithm>
#include <set>

#include "engine/ir/op.h"
#include "worker/strategies/pipeline_ops.h"

namespace braid::worker {
namespace {

class StageKeeper {
 public:
  StageKeeper(TrainingGraph& training, const PipelineNodes& nodes, const PipelineLinks& links,
              const PipelinePlan& plan, int stage, int first, const AddExchange& add_exchange)
      : training_(training),
        graph_(training.graph),
        nodes_(nodes),
        links_(links),
        plan_(plan),
        stage_(stage),
        first_(first),
        first_slot_(first / static_cast<int>(plan.times.size()) * static_cast<int>(links.slots.size())),
        add_exchange_(add_exchange) {
    for (const NodeId id : nodes_.order)
      if (links_.stage[static_cast<std::size_t>(id)] == stage_) own_.push_back(id);
  }

  void run() {
    expand_targets();
    stand_in();
    exchange();
    order_tasks();
    keep_gradients();
    drop_others();
  }

 private:
  bool is_own(NodeId id) const {
    return static_cast<std::size_t>(id) >= links_.stage.size() ||
           links_.stage[static_cast<std::size_t>(id)] == stage_;
  }
  const std::optional<PipelineTask>& task(NodeId id) const {
    return links_.task[static_cast<std::size_t>(id)];
  }

  /// A node that groups targets may group those of several stages.
  void expand_targets() {
    std::vector<NodeId> targets;
    std::set<NodeId> seen;
    const std::function<void(NodeId)> add = [&](NodeId id) {
      if (id == kNoNode || !seen.insert(id).second) return;
      if (graph_.node(id).op->role != OpRole::Nothing) return targets.push_back(id);
      for (const NodeId control : graph_.node(id).control_inputs) add(control);
    };
    for (const std::string& target : training_.targets) add(graph_.find(target));
    training_.targets.clear();
    for (const NodeId id : targets)
      if (links_.stage[static_cast<std::size_t>(id)] == stage_)
        training_.targets.push_back(graph_.node(id).name);
  }

  /// In the place of what does not travel: constants, and anything of the same shape.
  void stand_in() {
    std::map<ValueRef, ValueRef> constants, shapes;
    for (const NodeId id : own_)
      for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const ValueRef input = graph_.node(id).inputs[i];
        const int from = links_.stage[static_cast<std::size_t>(input.node)];
        if (from < 0 || from == stage_ || !stays_home(nodes_, graph_.node(id), i)) continue;
        const Tensor* const known = nodes_.inferred.known_value(input);
        auto& made = known ? constants : shapes;
        const auto [place, fresh] = made.try_emplace(input);
        if (fresh) place->second = known ? constant(input, *known) : of_shape(input);
        graph_.mutable_node(id).inputs[i] = place->second;
      }
  }

  ValueRef constant(ValueRef value, Tensor tensor) {
    const DType dtype = tensor.dtype();
    return add_node(graph_, "Const", graph_.node(value.node).name + "/known", {},
                    {{"dtype", dtype}, {"value", std::move(tensor)}});
  }

  ValueRef of_shape(ValueRef value) {
    const OutputInfo info = nodes_.inferred.info(value);
    const std::string name = graph_.node(value.node).name + "/shape";
    const auto& dims = info.shape.dims();
    const std::vector<std::int64_t> sizes(dims.begin(), dims.end());
    const ValueRef shape = add_node(
        graph_, "Const", name + "/dims", {},
        {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(Shape{std::ssize(sizes)}, sizes)}});
    const ValueRef zero = add_node(graph_, "Const", name + "/zero", {},
                                   {{"dtype", info.dtype}, {"value", Tensor::zeros(info.dtype, Shape{})}});
    return add_node(graph_, "Fill", name, {shape, zero}, {{"T", info.dtype}, {"index_type", DType::Int64}});
  }

  static std::string task_text(const PipelineTransfer& transfer) {
    if (!transfer.part) return "weights";
    return (transfer.link.backward ? "backward" : "forward") + std::to_string(*transfer.part);
  }

  void exchange() {
    std::map<ValueRef, ValueRef> received;
    for (const PipelineTransfer& transfer : links_.transfers) {
      const StageLink& link = transfer.link;
      if (link.from == stage_) {
        Node send;
        send.name = graph_.unique_name("send/" + task_text(transfer) + "/to" + std::to_string(link.to));
        send.inputs = transfer.values;
        send.attrs = {{kPeer, first_ + link.to}, {kSlot, first_slot_ + transfer.slot}};
        add_exchange_(std::move(send), kSendOp);
      }
      if (link.to != stage_) continue;
      Node recv;
      recv.name = graph_.unique_name("recv/" + task_text(transfer) + "/from" + std::to_string(link.from));
      std::vector<DType> dtypes;
      std::vector<Shape> shapes;
      for (const ValueRef value : transfer.values) {
        dtypes.push_back(nodes_.inferred.info(value).dtype);
        shapes.push_back(nodes_.inferred.info(value).shape);
      }
      recv.attrs = {{kPeer, first_ + link.from},
                    {kDtypes, dtypes},
                    {kShapes, shapes},
                    {kSlot, first_slot_ + transfer.slot}};
      const NodeId id = add_exchange_(std::move(recv), kRecvOp);
      for (std::size_t i = 0; i < transfer.values.size(); ++i)
        received[transfer.values[i]] = {id, static_cast<int>(i)};
    }
    for (const NodeId id : own_)
      for (ValueRef& input : graph_.mutable_node(id).inputs)
        if (const auto found = received.find(input); found != received.end()) input = found->second;
  }

  bool is_new(ValueRef value) const { return static_cast<std::size_t>(value.node) >= links_.task.size(); }

  /// Whether the compiler will not know its values, and leave it out.
  bool runs(NodeId id) const {
    const std::size_t outputs = graph_.node(id).outputs.size();
    for (std::size_t i = 0; i < outputs; ++i)
      if (!nodes_.inferred.known_value({id, static_cast<int>(i)})) return true;
    return outputs == 0;
  }

  /// The first nodes of a task wait for the last ones of the task before it.
  void order_tasks() {
    std::map<PipelineTask, std::vector<NodeId>> members;
    for (const NodeId id : own_)
      if (const auto& of = task(id); of && runs(id)) members[*of].push_back(id);
    NodeId before = kNoNode;
    for (const PipelineTask& next :
         tasks_of_stage(plan_.order, stage_, static_cast<int>(plan_.times.size()), plan_.parts)) {
      std::set<NodeId> last;
      for (const NodeId id : members[next]) {
        bool is_first = true;
        const auto comes_from = [&](NodeId input) {
          if (static_cast<std::size_t>(input) >= links_.task.size() || task(input) != next ||
              !is_own(input) || !runs(input))
            return;
          is_first = false;
          last.erase(input);
        };
        for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i)
          if (!is_new(graph_.node(id).inputs[i]) && !stays_home(nodes_, graph_.node(id), i))
            comes_from(graph_.node(id).inputs[i].node);
        for (const NodeId control : graph_.node(id).control_inputs) comes_from(control);
        last.insert(id);
        if (is_first && before != kNoNode) graph_.mutable_node(id).control_inputs.push_back(before);
      }
      if (last.empty()) continue;
      Node end;
      end.name = graph_.unique_name(std::string("pipeline/") + (next.backward ? "backward" : "forward") +
                                    std::to_string(next.part) + "/end");
      end.op = &OpRegistry::global().require("NoOp");
      end.control_inputs.assign(last.begin(), last.end());
      before = graph_.add(std::move(end));
    }
  }

  void keep_gradients() {
    std::erase_if(training_.gradients, [&](const VariableGradient& gradient) {
      return links_.stage[static_cast<std::size_t>(gradient.variable.handle)] != stage_;
    });
    if (links_.stage[static_cast<std::size_t>(training_.loss.node)] != stage_)
      training_.loss = training_.weighted_loss = {};
  }

  void drop_others() {
    const auto size = static_cast<NodeId>(links_.stage.size());
    for (const NodeId id : own_) {
      Node& node = graph_.mutable_node(id);
      std::erase_if(node.control_inputs, [&](NodeId control) {
        return control < size && !is_own(control) && links_.stage[static_cast<std::size_t>(control)] >= 0;
      });
    }
    std::set<NodeId> used;
    const auto use = [&](ValueRef value) {
      if (value.valid()) used.insert(value.node);
    };
    for (const VariableGradient& gradient : training_.gradients) {
      use(gradient.dense);
      if (gradient.slices) use(gradient.slices->indices);
      if (gradient.slices) use(gradient.slices->values);
    }
    use(training_.loss);
    const auto keep_inputs = [&](NodeId id) {
      for (const ValueRef input : graph_.node(id).inputs) used.insert(input.node);
      for (const NodeId control : graph_.node(id).control_inputs) used.insert(control);
    };
    for (const NodeId id : own_) keep_inputs(id);
    for (NodeId id = size; id < graph_.size(); ++id) keep_inputs(id);
    for (auto id = nodes_.order.rbegin(); id != nodes_.order.rend(); ++id)
      if (nodes_.is(nodes_.free, *id) && used.contains(*id)) keep_inputs(*id);
    for (NodeId id = 0; id < size; ++id) {
      const bool stays = links_.stage[static_cast<std::size_t>(id)] == stage_ ||
                         (nodes_.is(nodes_.free, id) && used.contains(id));
      if (!stays && !graph_.node(id).removed) graph_.remove(id);
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      Node& node = graph_.mutable_node(id);
      if (node.removed) continue;
      set_stage(node, std::nullopt);
      if (node.colocate_with != kNoNode && graph_.node(node.colocate_with).removed)
        node.colocate_with = kNoNode;
    }
  }

  TrainingGraph& training_;
  Graph& graph_;
  const PipelineNodes& nodes_;
  const PipelineLinks& links_;
  const PipelinePlan& plan_;
  const int stage_;
  const int first_;
  const int first_slot_;  // of this group
  const AddExchange& add_exchange_;
  std::vector<NodeId> own_;  // inputs first
};

}  // namespace

void keep_stage(TrainingGraph& training, const PipelineNodes& nodes, const PipelineLinks& links,
                const PipelinePlan& plan, int stage, int first, const AddExchange& add_exchange) {
  StageKeeper(training, nodes, links, plan, stage, first, add_exchange).run();
}

}  // namespace braid::worker
