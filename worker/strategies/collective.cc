#include "worker/strategies/collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "engine/graph/write_order.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/group_values.h"
#include "worker/strategies/sent_exchanges.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {

namespace {

DType wire_of(proto::Strategy::Wire wire) {
  switch (wire) {
    case proto::Strategy::BF16:
      return DType::BFloat16;
    case proto::Strategy::FP16:
      return DType::Float16;
    default:
      return DType::Float32;
  }
}

}  // namespace

CollectiveStrategy::CollectiveStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
    : runtime_(runtime),
      peers_(peers),
      bucket_bytes_(job.strategy().bucket_bytes()),
      wire_(wire_of(job.strategy().wire())),
      on_device_(peers.communicator ? peers.communicator->backend() == "nccl"
                                    : job.strategy().backend() == proto::Strategy::NCCL),
      services_(runtime.services().find<StepServices>()) {
  runtime.services().provide<comm::Communicator>(peers.communicator);
  runtime.services().provide<SentExchanges>(std::make_shared<SentExchanges>());
  if (on_device_ && services_)
    services_->vote = runtime.device()->allocate_pinned(sizeof(float), "stop vote");
}

void CollectiveStrategy::agree_on_plan(std::uint64_t plan_hash, const WaitContext& wait) {
  auto mine = static_cast<std::int64_t>(plan_hash);
  std::vector<std::int64_t> all(static_cast<std::size_t>(peers_.world));
  peers_.communicator->all_gather(&mine, all.data(), 1, DType::Int64, StreamRef::host(), wait);
  for (int r = 0; r < peers_.world; ++r)
    if (all[static_cast<std::size_t>(r)] != all[0])
      throw InvalidArgument(
          "rank " + std::to_string(r) +
          " compiled another plan than rank 0: the processes must run the same job file, data and build");
}

std::uint64_t CollectiveStrategy::start(const CheckpointInfo*, bool, std::uint64_t step,
                                        const WaitContext& wait) {
  auto first = static_cast<std::int64_t>(step);
  peers_.communicator->broadcast(&first, 1, DType::Int64, 0, StreamRef::host(), wait);
  for (const auto& name : runtime_.variables().names()) {
    if (!is_shared(name)) continue;
    Tensor value = *runtime_.variables().read(name);
    if (value.dtype() != DType::Float32) continue;
    peers_.communicator->broadcast(value.raw(), value.elements(), value.dtype(), 0, StreamRef::host(), wait);
    runtime_.variables().write(name, value);
  }
  return static_cast<std::uint64_t>(first);
}

void CollectiveStrategy::agree_on_checkpoint(const CheckpointInfo* restored, const WaitContext& wait) const {
  const std::int64_t mine = restored ? static_cast<std::int64_t>(restored->meta.step) : -1;
  std::vector<std::int64_t> all(static_cast<std::size_t>(peers_.world));
  peers_.communicator->all_gather(&mine, all.data(), 1, DType::Int64, StreamRef::host(), wait);
  const auto text = [](std::int64_t step) {
    return step < 0 ? std::string("no checkpoint") : "a checkpoint of step " + std::to_string(step);
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw InvalidArgument("rank " + std::to_string(rank) + " finds " + text(all[rank]) + ", rank 0 " +
                            text(all[0]) + ": under strategy " + std::string(name()) +
                            " every worker reads and writes its part, so "
                            "checkpoint.directory must be one that all of them see");
}

void CollectiveStrategy::take_program(const Program& step) {
  for (const ProgramVariable& variable : step.variables) program_variables_.push_back(variable.name);
  std::sort(program_variables_.begin(), program_variables_.end());
}

std::uint64_t CollectiveStrategy::take_over(int source, std::uint64_t step, const WaitContext& wait) {
  auto first = static_cast<std::int64_t>(step);
  comm::Communicator& all = *peers_.communicator;
  all.broadcast(&first, 1, DType::Int64, source, StreamRef::host(), wait);
  for (const std::string& name : program_variables_) {
    Tensor value = *runtime_.variables().read(name);
    if (dtype_size(value.dtype()) == 0) continue;
    all.broadcast(value.raw(), value.elements(), value.dtype(), source, StreamRef::host(), wait);
    if (peers_.rank != source) runtime_.variables().write(name, value);
  }
  return static_cast<std::uint64_t>(first);
}

void CollectiveStrategy::begin_step(std::uint64_t step, const WaitContext& wait) {
  if (services_ && services_->vote) {
    const float vote = services_->stop_vote();
    std::memcpy(services_->vote.get(), &vote, sizeof(vote));
  }
  peers_.communicator->begin_step(step, wait);
}

void CollectiveStrategy::end_step(std::uint64_t step) { peers_.communicator->end_step(step); }

void CollectiveStrategy::fail_step(std::uint64_t step) {
  peers_.communicator->end_step(step);
  // The device's kernels would wait for this rank until their deadline; sockets tell of its end themselves.
  if (on_device_) peers_.communicator->abort();
}

void CollectiveStrategy::finish_steps(const WaitContext& wait) { peers_.communicator->barrier(wait); }

void CollectiveStrategy::shut_down(bool, const WaitContext& wait) {
  if (!on_device_) return;
  // NCCL's ranks end together; the leader may still have been evaluating.
  try {
    peers_.communicator->barrier(wait);
  } catch (const Error& error) {
    log_warning("not all workers ended in time: {}", error.message());
  }
}

void CollectiveStrategy::abort() { peers_.communicator->abort(); }

NodeId CollectiveStrategy::add_collective(Graph& graph, Node node, const char* op) {
  node.op = &OpRegistry::global().require(op);
  node.attrs.set("world", static_cast<std::int64_t>(peers_.world));
  node.attrs.set(kOnDevice, on_device_);
  if (orders_later_) return to_order_.emplace_back(graph.add(std::move(node)));
  if (previous_ != kNoNode) node.control_inputs.push_back(previous_);
  return previous_ = graph.add(std::move(node));
}

void CollectiveStrategy::write_behind_collectives(Graph& graph) const {
  const std::vector<NodeId> order = graph.topological_order();
  const auto is_collective = [&](NodeId id) {
    return id == previous_ || std::find(to_order_.begin(), to_order_.end(), id) != to_order_.end();
  };
  const auto last = std::find_if(order.rbegin(), order.rend(), is_collective);
  if (last == order.rend()) return;
  std::vector<char> needed(static_cast<std::size_t>(graph.size()), 0);  // by the last, and so by any
  needed[static_cast<std::size_t>(*last)] = 1;
  for (auto at = last; at != order.rend(); ++at) {
    if (!needed[static_cast<std::size_t>(*at)]) continue;
    const Node& node = graph.node(*at);
    for (const ValueRef input : node.inputs) needed[static_cast<std::size_t>(input.node)] = 1;
    for (const NodeId control : node.control_inputs) needed[static_cast<std::size_t>(control)] = 1;
  }
  for (const NodeId id : order)
    if (!needed[static_cast<std::size_t>(id)] && writes_variable(graph.node(id)))
      graph.mutable_node(id).control_inputs.push_back(*last);
}

void CollectiveStrategy::order_later(std::vector<NodeId> others) {
  orders_later_ = true;
  to_order_ = std::move(others);
}

void CollectiveStrategy::order_by_readiness(Graph& graph, NodeId first_added) const {
  std::vector<std::int64_t> place(static_cast<std::size_t>(graph.size())), made = place;
  std::int64_t next = 0;
  // A node that depends on another reads something that is made behind the other's own inputs.
  const auto last_input = [&](NodeId id) {
    std::int64_t last = -1;
    for (const ValueRef input : graph.node(id).inputs)
      last = std::max(last, made[static_cast<std::size_t>(input.node)]);
    for (const NodeId control : graph.node(id).control_inputs)
      last = std::max(last, made[static_cast<std::size_t>(control)]);
    return last;
  };
  for (const NodeId id : graph.topological_order()) {
    const auto at = static_cast<std::size_t>(id);
    place[at] = next++;
    made[at] = id < first_added ? place[at] : last_input(id);
  }
  const auto ready = [&](NodeId id) {
    return std::pair(last_input(id), place[static_cast<std::size_t>(id)]);
  };
  std::vector<NodeId> order = to_order_;
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return ready(a) < ready(b); });
  for (std::size_t i = 1; i < order.size(); ++i)
    graph.mutable_node(order[i]).control_inputs.push_back(order[i - 1]);
}

std::vector<VariableGradient> CollectiveStrategy::reduce_bucket(TrainingGraph& training,
                                                                const std::vector<VariableGradient>& dense,
                                                                std::size_t bucket) {
  Graph& graph = training.graph;
  std::vector<VariableGradient> reduced = dense;
  const bool narrows = wire_ != DType::Float32 && !dense.empty();
  if (narrows) reduce_as_halves(graph, reduced, bucket);
  Node node;
  if (!narrows)
    for (const VariableGradient& gradient : dense) node.inputs.push_back(gradient.dense);
  const int rider = static_cast<int>(node.inputs.size());
  if (bucket == 0) node.inputs.insert(node.inputs.end(), {training.weighted_loss, stop_vote(graph)});
  if (node.inputs.empty()) return reduced;
  node.name = graph.unique_name("all_reduce/bucket" + std::to_string(bucket));
  const NodeId id = add_collective(graph, std::move(node), "braid.AllReduce");
  for (std::size_t i = 0; !narrows && i < dense.size(); ++i) reduced[i].dense = {id, static_cast<int>(i)};
  if (bucket == 0) {
    training.loss = mean_over_ranks(graph, {id, rider});
    training.stop_votes = {id, rider + 1};
  }
  return reduced;
}

std::vector<VariableGradient> CollectiveStrategy::reduce_in_buckets(
    TrainingGraph& training, const std::vector<VariableGradient>& gradients) {
  auto buckets = bucket_gradients(gradients, bucket_bytes_);
  if (buckets.empty()) buckets.emplace_back();  // the loss and the votes need one
  std::vector<VariableGradient> reduced;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::vector<VariableGradient> dense;
    for (const VariableGradient& gradient : buckets[b]) {
      if (gradient.slices)
        reduced.push_back(gather_rows(training, gradient));
      else
        dense.push_back(gradient);
    }
    std::ranges::move(reduce_bucket(training, dense, b), std::back_inserter(reduced));
  }
  return reduced;
}

void CollectiveStrategy::reduce_as_halves(Graph& graph, std::vector<VariableGradient>& gradients,
                                          std::size_t bucket) {
  const std::string name = "all_reduce/bucket" + std::to_string(bucket);
  std::vector<ValueRef> values;
  for (const VariableGradient& gradient : gradients) values.push_back(gradient.dense);
  values = cast_together(graph, std::move(values), wire_, name + "/narrowed");
  Node node;
  node.name = graph.unique_name(name + "/halves");
  node.inputs = values;
  const NodeId id = add_collective(graph, std::move(node), "braid.AllReduce");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
  values = cast_together(graph, std::move(values), DType::Float32, name + "/widened");
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].dense = values[i];
}

VariableGradient CollectiveStrategy::gather_rows(TrainingGraph& training, VariableGradient gradient) {
  const std::string& variable = gradient.variable.name;
  Node node;
  node.name = training.graph.unique_name("all_gather/" + variable);
  node.inputs = {gradient.slices->indices, gradient.slices->values};
  if (const auto rows = training.slice_rows.find(variable); rows != training.slice_rows.end()) {
    node.attrs.set(kIndexRows, rows->second.indices);
    node.attrs.set(kValueRows, rows->second.values);
  }
  if (pads_indices(training.graph, gradient)) node.attrs.set(kPadsIndices, true);
  const NodeId id = add_collective(training.graph, std::move(node), "braid.AllGatherRows");
  gradient.slices = IndexedSlices{{id, 0}, {id, 1}};
  return gradient;
}

ValueRef CollectiveStrategy::stop_vote(Graph& graph) const {
  return add_node(graph, "braid.StopVote", "all_reduce/stop_vote", {}, {{kOnDevice, on_device_}});
}

ValueRef CollectiveStrategy::mean_over_ranks(Graph& graph, ValueRef sum) const {
  const ValueRef scale = add_node(
      graph, "Const", "all_reduce/loss_scale", {},
      {{"dtype", DType::Float32}, {"value", Tensor::scalar(1.0F / static_cast<float>(peers_.world))}});
  return add_node(graph, "Mul", "all_reduce/loss", {sum, scale}, {{"T", DType::Float32}});
}

}  // namespace braid::worker
