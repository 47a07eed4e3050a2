#include "worker/input/input_staging.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "engine/device/accelerator.h"
#include "engine/exec/runtime.h"
#include "engine/staging/auto_stage.h"
#include "engine/staging/graph_stage.h"
#include "engine/staging/stage_pools.h"
#include "proto/job.pb.h"
#include "worker/input/followed_input.h"
#include "worker/input/stored_columns.h"
#include "worker/input/taken_batches.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

/// A step on a device leaves the cores to the stage; beside one on the host a second thread would take its
/// time from it.
int count_or_auto(proto::Staging::Count count, const proto::Job& job) {
  if (count == proto::Staging::DEFAULT)
    return job.runtime().device() == proto::Runtime::CUDA ? StageOptions::kAuto : 1;
  return count == proto::Staging::AUTO ? StageOptions::kAuto : static_cast<int>(count);
}

TimeoutPolicy timeout_policy(proto::Staging::OnTimeout on_timeout) {
  return on_timeout == proto::Staging::WAIT ? TimeoutPolicy::Wait : TimeoutPolicy::Error;
}

SubgraphRunner::Values named(const std::vector<std::string>& names, const std::vector<Tensor>& tensors) {
  SubgraphRunner::Values values;
  for (std::size_t i = 0; i < names.size(); ++i) values.emplace_back(names[i], tensors[i]);
  return values;
}

/// What a step is fed with where a part of its graph runs ahead.
struct StagedFeeds {
  std::vector<FeedSpec> feeds;
  std::string report;
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const FeedSpec& feed : feeds)
      sum += feed.shape.elements() * static_cast<std::int64_t>(dtype_size(feed.dtype));
    return sum;
  }
};

StagedFeeds staged_feeds(const Graph& graph, const AutoStageRequest& wanted,
                         const std::vector<FeedSpec>& columns) {
  const AutoStageResult found = auto_stage(graph, wanted);
  if (!found.stage) return {columns, found.report};
  std::vector<std::string> outputs;
  for (const ValueRef value : found.stage->outputs) outputs.push_back(graph.value_name(value));
  return {part_signature(graph, outputs, columns), found.report};
}

}  // namespace

StageOptions stage_options(const proto::Job& job) {
  const proto::Staging& from = job.staging();
  StageOptions options;
  options.name = "input";
  options.capacity = count_or_auto(from.capacity(), job);
  options.num_threads = count_or_auto(from.num_threads(), job);
  options.timeout_millis = std::chrono::milliseconds(from.timeout_millis());
  if (job.input().has_follow())
    options.timeout_millis =
        std::max(options.timeout_millis, std::chrono::ceil<std::chrono::milliseconds>(follow_time(job)));
  if (takes_batches(job)) options.timeout_millis = std::max(options.timeout_millis, kTakeTime);
  options.on_timeout = timeout_policy(from.on_timeout());
  options.use_stage_subgraph_thread_pool = from.use_stage_subgraph_thread_pool();
  options.stage_subgraph_thread_pool_id = from.stage_subgraph_thread_pool_id();
  options.stage_subgraph_stream_id = from.stage_subgraph_stream_id();
  return options;
}

StageSession stage_session(const proto::Job& job) {
  StageSession session;
  session.streams = static_cast<int>(job.streams().count());
  session.stage_multi_stream = job.staging().stage_multi_stream();
  session.priorities = {job.streams().priorities().begin(), job.streams().priorities().end()};
  if (job.staging().session_stage_subgraph_thread_pool().empty()) return session;
  std::vector<StagePoolOptions> pools;
  for (const auto& pool : job.staging().session_stage_subgraph_thread_pool())
    pools.push_back({pool.inter_op_threads_num() == 0 ? 1 : pool.inter_op_threads_num(),
                     pool.intra_op_threads_num() == 0 ? 1 : pool.intra_op_threads_num(), pool.global_name()});
  session.pools = std::make_shared<StagePools>(pools);
  return session;
}

BlockPool::Allocate batch_memory(Runtime& runtime) {
  if (!runtime.device()) return {};
  return [device = runtime.device()](std::size_t bytes) { return device->allocate_pinned(bytes, "batches"); };
}

void stage_ahead(const proto::Job& job, const Graph& graph, const std::vector<std::string>& columns,
                 const std::vector<std::string>& ahead, CompileRequest& request) {
  if (!job.staging().auto_stage() && ahead.empty()) return;
  AutoStageRequest wanted;
  if (!job.staging().auto_stage()) wanted.only = ahead;
  wanted.records = columns;
  try {
    for (const std::string& name : job.staging().mark_target_nodes()) node_named(graph, name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("staging.mark_target_nodes: " + error.message());
  }
  wanted.keep = {job.staging().mark_target_nodes().begin(), job.staging().mark_target_nodes().end()};
  wanted.fetches = request.fetches;
  wanted.targets = request.targets;
  wanted.options = stage_options(job);
  StagedFeeds found = staged_feeds(graph, wanted, request.feeds);
  const bool on_host = !job.staging().stage_multi_stream() || wanted.options.stage_subgraph_stream_id == 0;
  if (const std::vector<NodeId> casts = casts_of_bytes(graph, columns); on_host && !casts.empty()) {
    for (const NodeId id : casts) wanted.keep.push_back(graph.node(id).name);
    StagedFeeds as_bytes = staged_feeds(graph, wanted, request.feeds);
    if (as_bytes.bytes() < found.bytes()) {
      found = std::move(as_bytes);
      found.report += "; columns of bytes are cast in the step, which takes fewer bytes so";
    }
  }
  log_info("staging: {}", found.report);
  request.feeds = std::move(found.feeds);
}

InputStaging::InputStaging(const proto::Job& job, const StageSession& session, const Graph& graph,
                           Batcher& batcher, std::vector<std::string> columns,
                           const std::vector<std::string>& feeds, Runtime& step)
    : options_(stage_options(job)),
      session_(session),
      batcher_(batcher),
      columns_(std::move(columns)),
      seed_(job.seed()),
      step_(step),
      blocks_(BlockPool::make(batch_memory(step))) {
  use(graph, feeds);
}

void InputStaging::use(const Graph& graph, const std::vector<std::string>& feeds) {
  ahead_.reset();
  if (feeds == columns_) return;
  SubgraphSettings settings = stage_settings(options_, session_, step_);
  settings.seed = seed_;
  ahead_ = std::make_unique<SubgraphRunner>(graph, feeds, std::move(settings), step_);
}

Batch InputStaging::make(const StageCall& call) {
  std::uint64_t ticket = call.ticket;
  if (taken_) {
    taken_->await(call.ticket, call.stop);
    ticket = taken_->batch_of(call.ticket);
  }
  Batch batch = batcher_.make(ticket, call.stop);
  if (!ahead_) return batch;
  const WaitContext wait = WaitContext::with_timeout(options_.timeout_millis, call.stop);
  Batch made =
      pack_batch(ahead_->run(call.thread, call.ticket, named(columns_, batch.tensors), wait), *blocks_);
  made.ticket = batch.ticket;
  made.rows = batch.rows;
  made.cursor = std::move(batch.cursor);
  return made;
}

std::unique_ptr<Stage> InputStaging::make_stage(Stage::Observer observer) {
  StageProducer producer;
  producer.make = [this](const StageCall& call, Batch) { return make(call); };
  if (taken_) producer.await = [this](const StageCall& call) { taken_->await(call.ticket, call.stop); };
  return std::make_unique<Stage>(options_, std::move(producer), session_, std::move(observer));
}

}  // namespace braid::worker
