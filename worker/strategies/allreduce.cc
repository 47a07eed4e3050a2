// ALLREDUCE: every worker holds all variables; gradients are summed over the workers in buckets, on the comm
// stream, while backward goes on. Rows of embedding tables are gathered instead, so nothing of a table's size
// is sent. The loss rides in the first bucket, so every worker reports the mean over the global batch.
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/clip_gradients.h"
#include "worker/job/optimizers.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

class AllReduceStrategy : public Strategy {
 public:
  AllReduceStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : runtime_(runtime),
        peers_(peers),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        bucket_bytes_(job.strategy().bucket_bytes()),
        on_device_(peers.communicator ? peers.communicator->backend() == "nccl"
                                      : job.strategy().backend() == proto::Strategy::NCCL),
        services_(runtime.services().find<StepServices>()) {
    runtime.services().provide<comm::Communicator>(peers.communicator);
    if (on_device_ && services_)
      services_->vote = runtime.device()->allocate_pinned(sizeof(float), "stop vote");
  }

  std::string_view name() const override { return "ALLREDUCE"; }

  void rewrite_training(TrainingGraph& training) override {
    Graph& graph = training.graph;
    NodeId previous = kNoNode;  // the collective before, for one total order
    const auto buckets = bucket_gradients(training.gradients, bucket_bytes_);
    std::vector<VariableGradient> reduced;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      Node node;
      std::vector<const VariableGradient*> dense;
      for (const auto& gradient : buckets[b]) {
        if (gradient.slices) {
          reduced.push_back(gather_rows(training, gradient, previous));
        } else {
          dense.push_back(&gradient);
          node.inputs.push_back(gradient.dense);
        }
      }
      if (b == 0) node.inputs.insert(node.inputs.end(), {training.weighted_loss, stop_vote(graph)});
      if (!node.inputs.empty()) {
        node.name = graph.unique_name("all_reduce/bucket" + std::to_string(b));
        const NodeId id = add_collective(graph, std::move(node), "braid.AllReduce", previous);
        for (std::size_t i = 0; i < dense.size(); ++i) {
          reduced.push_back(*dense[i]);
          reduced.back().dense = {id, static_cast<int>(i)};
        }
        if (b == 0) {
          const int rider = static_cast<int>(dense.size());
          training.loss = mean_over_ranks(graph, {id, rider});
          training.stop_votes = {id, rider + 1};
        }
      }
    }
    clip_by_global_norm(training, reduced, clip_norm_, true);
    for (const auto& gradient : reduced)
      add_update(training, gradient, optimizers_.spec_of(gradient.variable.name));
  }

  bool needs_one_plan() const override { return peers_.world > 1; }
  void agree_on_plan(std::uint64_t plan_hash, const WaitContext& wait) override {
    auto mine = static_cast<std::int64_t>(plan_hash);
    std::vector<std::int64_t> all(static_cast<std::size_t>(peers_.world));
    peers_.communicator->all_gather(&mine, all.data(), 1, DType::Int64, StreamRef::host(), wait);
    for (int r = 0; r < peers_.world; ++r)
      if (all[static_cast<std::size_t>(r)] != all[0])
        throw InvalidArgument(
            "rank " + std::to_string(r) +
            " compiled another plan than rank 0: the processes must run the same job file, data and build");
  }

  std::uint64_t start(const CheckpointInfo*, bool, std::uint64_t step, const WaitContext& wait) override {
    auto first = static_cast<std::int64_t>(step);
    peers_.communicator->broadcast(&first, 1, DType::Int64, 0, StreamRef::host(), wait);
    for (const auto& name : runtime_.variables().names()) {
      Tensor value = *runtime_.variables().read(name);
      if (value.dtype() != DType::Float32) continue;
      peers_.communicator->broadcast(value.raw(), value.elements(), value.dtype(), 0, StreamRef::host(),
                                     wait);
      runtime_.variables().write(name, value);
    }
    return static_cast<std::uint64_t>(first);
  }

  void begin_step(std::uint64_t step, const WaitContext& wait) override {
    if (services_ && services_->vote) {
      const float vote = services_->stop_vote();
      std::memcpy(services_->vote.get(), &vote, sizeof(vote));
    }
    peers_.communicator->begin_step(step, wait);
  }
  void end_step(std::uint64_t step) override { peers_.communicator->end_step(step); }
  void fail_step(std::uint64_t step) override {
    peers_.communicator->end_step(step);
    // The device's kernels would wait for this rank until their deadline; sockets tell of its end themselves.
    if (on_device_) peers_.communicator->abort();
  }

  void finish_steps(const WaitContext& wait) override { peers_.communicator->barrier(wait); }
  void shut_down(bool, const WaitContext& wait) override {
    if (!on_device_) return;
    // NCCL's ranks end together; the leader may still have been evaluating.
    try {
      peers_.communicator->barrier(wait);
    } catch (const Error& error) {
      log_warning("not all workers ended in time: {}", error.message());
    }
  }
  void abort() override { peers_.communicator->abort(); }
  float gradient_scale() const override { return 1.0F / static_cast<float>(peers_.world); }

 private:
  NodeId add_collective(Graph& graph, Node node, const char* op, NodeId& previous) {
    node.op = &OpRegistry::global().require(op);
    node.attrs.set("world", static_cast<std::int64_t>(peers_.world));
    node.attrs.set(kOnDevice, on_device_);
    if (previous != kNoNode) node.control_inputs.push_back(previous);
    return previous = graph.add(std::move(node));
  }

  VariableGradient gather_rows(TrainingGraph& training, VariableGradient gradient, NodeId& previous) {
    Graph& graph = training.graph;
    Node node;
    node.name = graph.unique_name("all_gather/" + gradient.variable.name);
    node.inputs = {gradient.slices->indices, gradient.slices->values};
    if (const auto rows = training.slice_rows.find(gradient.variable.name);
        rows != training.slice_rows.end()) {
      node.attrs.set(kIndexRows, rows->second.indices);
      node.attrs.set(kValueRows, rows->second.values);
    }
    const NodeId id = add_collective(graph, std::move(node), "braid.AllGatherRows", previous);
    gradient.slices = IndexedSlices{{id, 0}, {id, 1}};
    return gradient;
  }

  ValueRef stop_vote(Graph& graph) const {
    Node vote;
    vote.attrs.set(kOnDevice, on_device_);
    vote.name = graph.unique_name("all_reduce/stop_vote");
    vote.op = &OpRegistry::global().require("braid.StopVote");
    return {graph.add(std::move(vote)), 0};
  }

  ValueRef mean_over_ranks(Graph& graph, ValueRef sum) {
    Node scale;
    scale.name = graph.unique_name("all_reduce/loss_scale");
    scale.op = &OpRegistry::global().require("Const");
    scale.attrs = {{"dtype", DType::Float32},
                   {"value", Tensor::scalar(1.0F / static_cast<float>(peers_.world))}};
    const NodeId scale_id = graph.add(std::move(scale));
    Node mean;
    mean.name = graph.unique_name("all_reduce/loss");
    mean.op = &OpRegistry::global().require("Mul");
    mean.attrs = {{"T", DType::Float32}};
    mean.inputs = {sum, {scale_id, 0}};
    return {graph.add(std::move(mean)), 0};
  }

  Runtime& runtime_;
  Peers peers_;
  const Optimizers optimizers_;
  const float clip_norm_;
  std::int64_t bucket_bytes_;
  const bool on_device_;          // the communicator takes the memory of GPUs
  StepServices* const services_;  // null in tests without steps
};

}  // namespace

std::unique_ptr<Strategy> make_allreduce_strategy(const proto::Job& job, Runtime& runtime,
                                                  const Peers& peers) {
  return std::make_unique<AllReduceStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
