// TENSOR: the workers are groups (strategy.mesh). The workers of a group have the same rows and a slice of
// each layer that is cut (tensor_plan.h); what they need of each other's slices they exchange within a step
// (tensor_rewrite.h). Groups share the rows of a step: gradients are summed over the workers that have the
// same slices. What the leader needs of others' slices between steps they send (tensor_service.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/restored_values.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/job/mesh.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/served_strategy.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/tensor_rewrite.h"
#include "worker/strategies/tensor_service.h"
#include "worker/strategies/tensor_text.h"

namespace braid::worker {
namespace {

class TensorStrategy : public ServedStrategy {
 public:
  TensorStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : ServedStrategy(job, runtime, peers),
        mesh_(mesh_of(job, peers.world)),
        how_(job.strategy().tensor()),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        seed_(job.seed()),
        one_stream_(job.streams().count() <= 1) {
    const std::int64_t rows = job.input().global_batch_size();
    if (rows % mesh_.data != 0)
      throw InvalidArgument(fmt::format(
          "strategy.mesh has {} groups: a batch of {} rows (input.global_batch_size) is not cut into so many "
          "equal parts",
          mesh_.data, rows));
  }

  std::string_view name() const override { return "TENSOR"; }
  bool ranks_differ() const override { return mesh_.tensor > 1; }
  float gradient_scale() const override { return 1.0F / static_cast<float>(mesh_.data); }

  void rewrite_training(TrainingGraph& training) override {
    order_later({});
    cut(training);
    std::vector<VariableGradient> reduced = sum_over_groups(training);
    clip(training, reduced);
    share_loss(training);
    for (const VariableGradient& gradient : reduced) {
      const OptimizerSpec& optimizer = optimizer_of(training, optimizers_, model_variable(gradient));
      add_update(training, gradient, optimizer);
      note_slots(gradient, optimizer);
    }
    if (one_stream_) work_while_exchanging(training.graph);
    order_by_readiness(training.graph);
    service_ = std::make_unique<TensorService>(stored_, mesh_.place_of(peers_.rank), peers_.communicator,
                                               runtime_.variables());
  }

  std::string describe(const Program& step) const override {
    return tensor_text(mesh_, plan_.get(), exchanged_over_groups_, step);
  }

  bool takes_initial_value(const std::string& variable, const Tensor& whole) override {
    if (!service_->find_local(variable)) return false;
    given_.emplace(variable, whole);
    return true;
  }
  std::string model_name(const std::string& local) const override {
    const StoredSlice* slice = service_ ? service_->find_local(local) : nullptr;
    return slice ? slice->model : local;
  }
  Shape whole_shape(const std::string& name, const Shape& local) const override {
    const StoredSlice* slice = service_->find_local(name);
    return slice ? slice->slice.whole.shape : local;
  }
  bool saves_local_variable(const std::string& name) const override {
    return !service_->find_local(name) && !service_->is_copy(name);
  }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    std::optional<RestoredValues> values;
    if (restored) values.emplace(*restored, former_names_);
    service_->begin(
        [&](const StoredSlice& slice, Tensor& whole) {
          const bool begins_anew = initialize(slice, whole);
          return (values && values->read(slice.model, whole)) || begins_anew;
        },
        wait);
    given_.clear();
    return ServedStrategy::start(restored, resume, step, wait);
  }
  void refresh_variables(const WaitContext& wait) override { service_->gather(wait); }

 protected:
  RankService& service() override { return *service_; }
  bool is_shared(const std::string& variable) const override { return saves_local_variable(variable); }

 private:
  static std::vector<std::int64_t> members(const std::vector<int>& ranks) {
    return {ranks.begin(), ranks.end()};
  }

  std::string model_variable(const VariableGradient& gradient) const {
    const auto at = model_names_.find(gradient.variable.name);
    return at == model_names_.end() ? gradient.variable.name : at->second;
  }

  // ---------------------------------------------------------------------------------------------- exchanges

  /// Over some ranks, of which this is one; of one alone the values themselves. `narrow`: they travel as
  /// strategy.wire says.
  std::vector<ValueRef> sum_over(Graph& graph, std::vector<ValueRef> values, const std::vector<int>& ranks,
                                 const std::string& name, bool narrow = false) {
    if (ranks.size() == 1 || values.empty()) return values;
    const bool all = std::ssize(ranks) == peers_.world, halves = narrow && wire_ != DType::Float32;
    if (halves) values = cast(graph, std::move(values), wire_, name + "/narrowed");
    if (!all && (on_device_ || halves)) return gathered_sums(graph, std::move(values), ranks, name);
    Node node;
    node.name = graph.unique_name(name);
    node.inputs = values;
    if (!all) node.attrs.set(kMembers, members(ranks));
    const NodeId id =
        add_collective(graph, std::move(node), all ? "braid.AllReduce" : "braid.GroupAllReduce");
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
    return halves ? cast(graph, std::move(values), DType::Float32, name + "/widened") : values;
  }

  static std::vector<ValueRef> cast(Graph& graph, std::vector<ValueRef> values, DType to,
                                    const std::string& name) {
    const NodeId id = add_node(graph, "braid.CastMany", name, values, {{"DstT", to}}).node;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
    return values;
  }

  std::vector<ValueRef> gathered_sums(Graph& graph, std::vector<ValueRef> values,
                                      const std::vector<int>& ranks, const std::string& name) {
    for (ValueRef& value : values) value = gather_over(graph, value, ranks, name);
    if (graph.info(values[0]).dtype != DType::Float32)
      values = cast(graph, std::move(values), DType::Float32, name + "/widened");
    for (ValueRef& value : values) {
      const ValueRef axis = add_node(graph, "Const", name + "/axis", {},
                                     {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(0)}});
      value = add_node(graph, "Sum", name + "/sum", {value, axis},
                       {{"T", DType::Float32}, {"Tidx", DType::Int32}, {"keep_dims", false}});
    }
    return values;
  }

  ValueRef gather_over(Graph& graph, ValueRef value, const std::vector<int>& ranks, const std::string& name) {
    Node node;
    node.name = graph.unique_name(name);
    node.inputs = {value};
    node.attrs.set(kMembers, members(ranks));
    return {add_collective(graph, std::move(node), "braid.GroupGather"), 0};
  }

  // ------------------------------------------------------------------------------------------------- layers

  void cut(TrainingGraph& training) {
    if (mesh_.tensor == 1) return;
    Graph& graph = training.graph;
    const std::vector<int> group = mesh_.tensor_ranks(peers_.rank);
    plan_ = plan_tensor(training, how_, mesh_.tensor);
    for (const TensorSlice& slice : plan_->slices) {
      const std::string& name = slice.whole.name;
      handles_.emplace(name, graph.node(slice.whole.handle));
      if (std::string former = former_name(graph, slice.whole); !former.empty())
        former_names_[name] = std::move(former);
      model_names_[slice_name(name)] = name;
      stored_.push_back({slice_name(name), name, slice, false});
    }
    // Halves are added up by an all-reduce alone, and on GPUs there is a scatter of the whole job alone.
    const bool scatters = wire_ == DType::Float32 && (mesh_.data == 1 || !on_device_);
    const auto sum_of_slice = [&](ValueRef value, const std::string& name) {
      Node node;
      node.name = graph.unique_name(name + "/sum_of_slice");
      node.inputs = {value};
      node.attrs.set(kMembers, members(group));
      return ValueRef{add_collective(graph, std::move(node), "braid.GroupReduceScatter"), 0};
    };
    waits_ =
        take_slices(training, *plan_, mesh_.place_of(peers_.rank),
                    {.sum =
                         [&](std::vector<ValueRef> values, const std::string& name) {
                           return sum_over(graph, std::move(values), group, name + "/sum_of_group", true);
                         },
                     .sum_of_slice = scatters ? sum_of_slice : decltype(GroupCalls::sum_of_slice){},
                     .gather =
                         [&](ValueRef value, const std::string& name) {
                           return gather_over(graph, value, group, name + "/of_group");
                         }});
  }

  /// One stream alone would put off what nothing waits for, and keep in memory what that reads.
  void work_while_exchanging(Graph& graph) const {
    const bool updates_at_once = mesh_.data == 1 && clip_norm_ == 0;
    for (const WhileExchanging& wait : waits_)
      for (const WhileExchanging::Gradient& gradient : wait.gradients) {
        const NodeId update = graph.find("update/" + gradient.variable);
        const bool behind_update = updates_at_once && gradient.is_read_no_more && update != kNoNode;
        graph.mutable_node(wait.node).control_inputs.push_back(behind_update ? update : gradient.node);
      }
  }

  void note_slots(const VariableGradient& gradient, const OptimizerSpec& optimizer) {
    const auto at = model_names_.find(gradient.variable.name);
    if (at == model_names_.end()) return;
    const TensorSlice& slice = *plan_->find(at->second);
    if (optimizer.row_wise && gradient.slices)
      throw InvalidArgument("variable '" + at->second +
                            "' lies by columns, and optimizer.row_wise needs all of a row: leave out one of "
                            "strategy.tensor.layer and row_wise");
    for (const SlotSpec& slot : optimizer_slots(optimizer)) {
      const std::string suffix = "/" + std::string(slot.name);
      stored_.push_back(
          {gradient.variable.name + suffix, at->second + suffix, slice, true, slot.initial_value});
    }
  }

  // ------------------------------------------------------------------------------------------------- groups

  std::vector<VariableGradient> sum_over_groups(TrainingGraph& training) {
    if (mesh_.data == 1) return training.gradients;
    Graph& graph = training.graph;
    const std::vector<int> ranks = mesh_.data_ranks(peers_.rank);
    std::vector<VariableGradient> reduced;
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<ValueRef> values;
      for (const VariableGradient& gradient : buckets[b])
        if (!gradient.slices) values.push_back(gradient.dense);
      values = sum_over(graph, values, ranks, "all_reduce/bucket" + std::to_string(b), true);
      auto next = values.begin();
      for (VariableGradient gradient : buckets[b]) {
        if (gradient.slices)
          gradient.slices = rows_of_groups(graph, gradient, ranks);
        else
          gradient.dense = *next++;
        if (!gradient.slices)
          exchanged_over_groups_ += gradient.variable.shape.elements() *
                                    static_cast<std::int64_t>(dtype_size(gradient.variable.dtype));
        reduced.push_back(std::move(gradient));
      }
    }
    return reduced;
  }

  /// One behind the other.
  IndexedSlices rows_of_groups(Graph& graph, const VariableGradient& gradient,
                               const std::vector<int>& ranks) {
    if (pads_indices(graph, gradient))
      throw InvalidArgument("variable '" + gradient.variable.name +
                            "': columns of varying length do not go with several groups of strategy.mesh: "
                            "give them a fixed length, or set mesh.data 1");
    const auto joined = [&](ValueRef value, const std::string& name) {
      const ValueRef all = gather_over(graph, value, ranks, "all_gather/" + gradient.variable.name + name);
      const Shape& shape = graph.info(value).shape;
      std::vector<std::int64_t> dims{-1};
      for (int axis = 1; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
      const ValueRef to = add_node(
          graph, "Const", "all_gather/shape", {},
          {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(Shape{std::ssize(dims)}, dims)}});
      return add_node(graph, "Reshape", "all_gather/rows", {all, to}, {{"Tshape", DType::Int64}});
    };
    return {joined(gradient.slices->indices, "/indices"), joined(gradient.slices->values, "/values")};
  }

  /// A worker has the squares of its slices only.
  void clip(TrainingGraph& training, std::vector<VariableGradient>& gradients) {
    const auto of_group = [&](std::vector<ValueRef>& halves) {
      std::vector<ValueRef> sliced;
      std::vector<std::size_t> places;
      for (std::size_t g = 0; g < gradients.size(); ++g)
        if (model_names_.contains(gradients[g].variable.name)) {
          sliced.push_back(halves[g]);
          places.push_back(g);
        }
      sliced =
          sum_over(training.graph, std::move(sliced), mesh_.tensor_ranks(peers_.rank), "all_reduce/norms");
      for (std::size_t i = 0; i < places.size(); ++i) halves[places[i]] = sliced[i];
    };
    if (model_names_.empty())
      clip_by_global_norm(training, gradients, clip_norm_, true);
    else
      clip_by_global_norm(training, gradients, clip_norm_, true, of_group);
  }

  /// Each group has a loss, which one of its workers tells.
  void share_loss(TrainingGraph& training) {
    if (peers_.world == 1) return;
    Graph& graph = training.graph;
    const auto scalar = [&](const char* name, float value) {
      return add_node(graph, "Const", name, {},
                      {{"dtype", DType::Float32}, {"value", Tensor::scalar(value)}});
    };
    const ValueRef own =
        mesh_.place_of(peers_.rank) == 0 ? training.weighted_loss : scalar("tensor/told_by_another", 0);
    const std::vector<ValueRef> told = sum_over(
        graph, {own, stop_vote(graph)}, Mesh{1, peers_.world}.tensor_ranks(peers_.rank), "all_reduce/loss");
    training.loss = told[0];
    if (mesh_.data > 1)
      training.loss =
          add_node(graph, "Mul", "all_reduce/mean_loss",
                   {told[0], scalar("all_reduce/loss_scale", gradient_scale())}, {{"T", DType::Float32}});
    training.weighted_loss = training.loss;
    training.stop_votes = told[1];
  }

  // -------------------------------------------------------------------------------------------------- start

  /// What one process begins with. False: a slot that keeps its constant.
  bool initialize(const StoredSlice& slice, Tensor& whole) const {
    const auto given = given_.find(slice.local);
    if (given != given_.end())
      whole = given->second;
    else if (!slice.is_slot)
      initialize_variable(handles_.at(slice.model), seed_, whole);
    return given != given_.end() || !slice.is_slot;
  }

  const Mesh mesh_;
  const proto::Tensor how_;
  const Optimizers optimizers_;
  const float clip_norm_;
  const std::uint64_t seed_;
  const bool one_stream_;
  std::unique_ptr<TensorPlan> plan_;                 // null: nothing is cut
  std::map<std::string, Node> handles_;              // of sliced variables, as the model has them
  std::map<std::string, std::string> model_names_;   // by slice_name()
  std::map<std::string, std::string> former_names_;  // by the model's
  std::vector<StoredSlice> stored_;
  std::vector<WhileExchanging> waits_;
  std::map<std::string, Tensor> given_;     // first values that are not their initialiser's, by slice_name()
  std::int64_t exchanged_over_groups_ = 0;  // bytes of gradients a step
  std::unique_ptr<TensorService> service_;
};

}  // namespace

std::unique_ptr<Strategy> make_tensor_strategy(const proto::Job& job, Runtime& runtime, const Peers& peers) {
  return std::make_unique<TensorStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
