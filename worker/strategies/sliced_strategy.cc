#include "worker/strategies/sliced_strategy.h"

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/restored_values.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/step/clip_gradients.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/group_values.h"
#include "worker/strategies/tensor_rewrite.h"

namespace braid::worker {

SlicedStrategy::SlicedStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers, const Mesh& mesh)
    : ServedStrategy(job, runtime, peers),
      mesh_(mesh),
      clip_norm_(job.optimizer().clip_norm()),
      optimizers_(job),
      seed_(job.seed()) {}

// ------------------------------------------------------------------------------------------------- exchanges

std::vector<ValueRef> SlicedStrategy::sum_over(Graph& graph, std::vector<ValueRef> values,
                                               const std::vector<int>& ranks, const std::string& name,
                                               bool narrow) {
  if (ranks.size() == 1 || values.empty()) return values;
  const bool all = std::ssize(ranks) == peers_.world, halves = narrow && wire_ != DType::Float32;
  if (halves) values = cast_together(graph, std::move(values), wire_, name + "/narrowed");
  if (!all && (on_device_ || halves)) return gathered_sums(graph, std::move(values), ranks, name);
  Node node;
  node.name = graph.unique_name(name);
  node.inputs = values;
  if (!all) node.attrs.set(kMembers, members(ranks));
  const NodeId id = add_collective(graph, std::move(node), all ? "braid.AllReduce" : "braid.GroupAllReduce");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
  return halves ? cast_together(graph, std::move(values), DType::Float32, name + "/widened") : values;
}

std::vector<ValueRef> SlicedStrategy::gathered_sums(Graph& graph, std::vector<ValueRef> values,
                                                    const std::vector<int>& ranks, const std::string& name) {
  for (ValueRef& value : values) value = gather_over(graph, value, ranks, name);
  if (graph.info(values[0]).dtype != DType::Float32)
    values = cast_together(graph, std::move(values), DType::Float32, name + "/widened");
  for (ValueRef& value : values) value = sum_of_members(graph, value, name);
  return values;
}

ValueRef SlicedStrategy::gather_over(Graph& graph, ValueRef value, const std::vector<int>& ranks,
                                     const std::string& name) {
  Node node;
  node.name = graph.unique_name(name);
  node.inputs = {value};
  node.attrs.set(kMembers, members(ranks));
  return {add_collective(graph, std::move(node), "braid.GroupGather"), 0};
}

// ---------------------------------------------------------------------------------------------------- slices

void SlicedStrategy::note_slices(const Graph& graph, const std::vector<TensorSlice>& slices) {
  for (const TensorSlice& slice : slices) {
    const std::string& name = slice.whole.name;
    handles_.emplace(name, graph.node(slice.whole.handle));
    if (std::string former = former_name(graph, slice.whole); !former.empty())
      former_names_[name] = std::move(former);
    model_names_[slice_name(name)] = name;
    stored_.push_back({slice_name(name), name, slice, false});
  }
}

const TensorSlice& SlicedStrategy::slice_of_variable(const std::string& name) const {
  return std::find_if(stored_.begin(), stored_.end(),
                      [&](const StoredSlice& each) { return each.local == name; })
      ->slice;
}

void SlicedStrategy::note_slots(const VariableGradient& gradient, const OptimizerSpec& optimizer) {
  const auto at = model_names_.find(gradient.variable.name);
  if (at == model_names_.end()) return;
  const TensorSlice slice = slice_of_variable(gradient.variable.name);
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

void SlicedStrategy::add_updates(TrainingGraph& training, const std::vector<VariableGradient>& gradients) {
  for (const VariableGradient& gradient : gradients) {
    const auto at = model_names_.find(gradient.variable.name);
    const OptimizerSpec& optimizer =
        optimizer_of(training, optimizers_, at == model_names_.end() ? gradient.variable.name : at->second);
    add_update(training, gradient, optimizer);
    note_slots(gradient, optimizer);
  }
  service_ = std::make_unique<TensorService>(stored_, mesh_.place_of(peers_.rank), peers_.communicator,
                                             runtime_.variables());
}

void SlicedStrategy::clip(TrainingGraph& training, std::vector<VariableGradient>& gradients) {
  const auto of_group = [&](std::vector<ValueRef>& halves) {
    std::vector<ValueRef> sliced;
    std::vector<std::size_t> places;
    for (std::size_t g = 0; g < gradients.size(); ++g)
      if (is_sliced(gradients[g])) {
        sliced.push_back(halves[g]);
        places.push_back(g);
      }
    sliced = sum_over(training.graph, std::move(sliced), group(), "all_reduce/norms");
    for (std::size_t i = 0; i < places.size(); ++i) halves[places[i]] = sliced[i];
  };
  if (model_names_.empty())
    clip_by_global_norm(training, gradients, clip_norm_, true);
  else
    clip_by_global_norm(training, gradients, clip_norm_, true, of_group);
}

std::int64_t SlicedStrategy::bytes_of(const VariableGradient& gradient) {
  return gradient.variable.shape.elements() * static_cast<std::int64_t>(dtype_size(gradient.variable.dtype));
}

// ----------------------------------------------------------------------------------------- outside of steps

bool SlicedStrategy::takes_initial_value(const std::string& variable, const Tensor& whole) {
  if (!service_->find_local(variable)) return false;
  given_.emplace(variable, whole);
  return true;
}

std::string SlicedStrategy::model_name(const std::string& local) const {
  const StoredSlice* slice = service_ ? service_->find_local(local) : nullptr;
  return slice ? slice->model : local;
}

Shape SlicedStrategy::whole_shape(const std::string& name, const Shape& local) const {
  const StoredSlice* slice = service_->find_local(name);
  return slice ? slice->slice.whole.shape : local;
}

bool SlicedStrategy::saves_local_variable(const std::string& name) const {
  return !service_->find_local(name) && !service_->is_copy(name);
}

std::uint64_t SlicedStrategy::start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                                    const WaitContext& wait) {
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

/// What one process begins with. False: a slot that keeps its constant.
bool SlicedStrategy::initialize(const StoredSlice& slice, Tensor& whole) const {
  const auto given = given_.find(slice.local);
  if (given != given_.end())
    whole = given->second;
  else if (!slice.is_slot)
    initialize_variable(handles_.at(slice.model), seed_, whole);
  return given != given_.end() || !slice.is_slot;
}

}  // namespace braid::worker
