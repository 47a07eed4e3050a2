// The job's staging section, the part of a model that runs ahead of the step, and the metrics of its stage.
#include "worker/input/input_staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "engine/staging/stage_pools.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "worker/job/job.h"
#include "worker/watch/stage_metrics.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Job job_with(const std::string& staging) {
  proto::Job job = parse_job(R"(model { name: "mlp" } steps: 1 optimizer { learning_rate: 1 }
      input { format: SYNTHETIC global_batch_size: 4 } streams { count: 2 } staging { )" +
                                 staging + " }",
                             "test");
  fill_job_defaults(job);
  return job;
}

std::string refusal(const std::string& staging) {
  return message_of([&] { check_job(job_with(staging)); });
}

TEST(InputStagingTest, SizesAreNumbersOrAuto) {
  const StageOptions numbers =
      stage_options(job_with("capacity: 5 num_threads: 3 timeout_millis: 7 on_timeout: WAIT"));
  EXPECT_EQ(numbers.capacity, 5);
  EXPECT_EQ(numbers.num_threads, 3);
  EXPECT_EQ(numbers.timeout_millis, std::chrono::milliseconds(7));
  EXPECT_EQ(numbers.on_timeout, TimeoutPolicy::Wait);
  const StageOptions measured = stage_options(job_with("capacity: AUTO num_threads: AUTO"));
  EXPECT_EQ(measured.capacity, StageOptions::kAuto);
  EXPECT_EQ(measured.num_threads, StageOptions::kAuto);
  proto::Job job = job_with("");
  set_job_field(job, "staging.capacity=AUTO");
  set_job_field(job, "staging.num_threads=2");
  EXPECT_EQ(stage_options(job).capacity, StageOptions::kAuto);
  EXPECT_EQ(stage_options(job).num_threads, 2);
  job = job_with("");
  job.mutable_runtime()->set_device(proto::Runtime::CPU);
  EXPECT_EQ(stage_options(job).capacity, 1);
  EXPECT_EQ(stage_options(job).num_threads, 1);
  job.mutable_runtime()->set_device(proto::Runtime::CUDA);
  EXPECT_EQ(stage_options(job).capacity, StageOptions::kAuto) << "a step on a device leaves the cores to it";
  EXPECT_EQ(stage_options(job).num_threads, StageOptions::kAuto);
}

TEST(InputStagingTest, WhatCannotBeIsRefusedByItsField) {
  EXPECT_EQ(refusal("capacity: 3 num_threads: AUTO"), "nothing was thrown");
  EXPECT_THAT(refusal("capacity: -2"), HasSubstr("staging.capacity must be at least 1 or AUTO, got -2"));
  EXPECT_THAT(refusal("use_stage_subgraph_thread_pool: true"),
              HasSubstr("no session_stage_subgraph_thread_pool is declared"));
  EXPECT_THAT(refusal("use_stage_subgraph_thread_pool: true stage_subgraph_thread_pool_id: 1 "
                      "session_stage_subgraph_thread_pool { inter_op_threads_num: 2 }"),
              HasSubstr("stage_subgraph_thread_pool_id must be in [0, 0], got 1"));
  EXPECT_THAT(refusal("stage_subgraph_thread_pool_id: 1 session_stage_subgraph_thread_pool { } "
                      "session_stage_subgraph_thread_pool { }"),
              HasSubstr("staging.stage_subgraph_thread_pool_id is 1, but use_stage_subgraph_thread_pool is "
                        "not set"));
  EXPECT_THAT(refusal("stage_subgraph_stream_id: 1"), HasSubstr("stage_multi_stream is not set"));
  EXPECT_THAT(refusal("mark_target_nodes: 'a'"),
              HasSubstr("staging.mark_target_nodes is set, but auto_stage is not"));
  EXPECT_EQ(refusal("auto_stage: true mark_target_nodes: 'a'"), "nothing was thrown");
  EXPECT_THAT(refusal("stage_multi_stream: true stage_subgraph_stream_id: 2"),
              HasSubstr("stage_subgraph_stream_id must be in [0, 1], got 2"));
  EXPECT_EQ(refusal("stage_multi_stream: true stage_subgraph_stream_id: 1"), "nothing was thrown");
}

/// Two columns; one is prepared before it meets a variable.
struct Fixture {
  Graph graph;
  std::shared_ptr<Table> table = std::make_shared<Table>();
  std::unique_ptr<Batcher> batcher;
  CompileRequest request;

  Fixture() {
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, {-1, 2}),
                 z = b.placeholder("z", DType::Float32, {-1, 2});
    const Output w = b.variable("w", {2, 2}, {.init = {.kind = InitKind::Constant, .a = 0.5}});
    const Output prepared = b.op("Relu", {b.op("Neg", {x}, {}, "minus")}, {}, "prepared");
    b.op("AddV2", {b.matmul(prepared, b.read(w)), z}, {}, "y");
    graph = import_graph(b.graph());
    table->rows = 16;
    for (const char* name : {"x", "z"}) {
      Tensor data(DType::Float32, {16, 2});
      for (std::size_t i = 0; i < 32; ++i) data.data<float>()[i] = static_cast<float>((i * 7) % 11) - 5.0F;
      table->columns.push_back({name, data});
    }
    batcher = std::make_unique<Batcher>(table, std::vector<std::string>{"x", "z"},
                                        BatchOptions{.global_batch = 4, .seed = 3});
    request.feeds = {{"x", DType::Float32, {4, 2}}, {"z", DType::Float32, {4, 2}}};
    request.fetches = {"y"};
  }
};

std::vector<std::string> feed_names(const CompileRequest& request) {
  std::vector<std::string> names;
  for (const FeedSpec& feed : request.feeds) names.push_back(feed.name);
  return names;
}

/// What auto_stage feeds a step with that takes an image of bytes, cast as stored columns are, or the sum of
/// it.
std::vector<FeedSpec> feeds_of_bytes(bool sums, const std::string& staging) {
  GraphBuilder b;
  const Output image = b.placeholder("image", DType::UInt8, {-1, 6});
  Output x = b.op("Mul",
                  {b.op("Cast", {image}, {{"SrcT", DType::UInt8}, {"DstT", DType::Float32}}, "cast"),
                   b.constant(Tensor::scalar(0.5F), "scale")},
                  {}, "scaled");
  if (sums) x = b.op("Sum", {x, b.constant(Tensor::scalar<std::int32_t>(1), "axis")}, {}, "sums");
  b.op("Mul", {x, b.read(b.variable("w", {}, {}))}, {}, "y");
  const Graph graph = import_graph(b.graph());
  CompileRequest request;
  request.feeds = {{"image", DType::UInt8, {4, 6}}};
  request.fetches = {"y"};
  stage_ahead(job_with(staging), graph, {"image"}, {}, request);
  return request.feeds;
}

TEST(InputStagingTest, AutoStageLeavesImagesBytesWhereFewerOfThemTravelSo) {
  const auto whole = feeds_of_bytes(false, "auto_stage: true");
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].name, "image");
  EXPECT_EQ(whole[0].dtype, DType::UInt8);
  const auto sums = feeds_of_bytes(true, "auto_stage: true");
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(sums[0].name, "sums") << "a number a row is less than its bytes";
  const auto device =
      feeds_of_bytes(false, "auto_stage: true stage_multi_stream: true stage_subgraph_stream_id: 1");
  ASSERT_EQ(device.size(), 1U);
  EXPECT_EQ(device[0].name, "scaled") << "a stage on the device is fed with the bytes itself";
}

TEST(InputStagingTest, AutoStageMovesThePreparationIntoTheStageAndKeepsTheBits) {
  Fixture f;
  CompileRequest plain = f.request, ahead = f.request;
  stage_ahead(job_with(""), f.graph, {"x", "z"}, {}, plain);
  EXPECT_THAT(feed_names(plain), ElementsAre("x", "z")) << "only where the job asks for it";
  CompileRequest kept = f.request;
  stage_ahead(job_with("auto_stage: true mark_target_nodes: 'minus'"), f.graph, {"x", "z"}, {}, kept);
  EXPECT_THAT(feed_names(kept), ElementsAre("x", "z"));
  CompileRequest unknown = f.request;
  EXPECT_EQ(message_of([&] {
              stage_ahead(job_with("auto_stage: true mark_target_nodes: 'minsu'"), f.graph, {"x", "z"}, {},
                          unknown);
            }),
            "staging.mark_target_nodes: there is no node 'minsu'");
  const proto::Job job = job_with("auto_stage: true num_threads: 2 capacity: 2");
  stage_ahead(job, f.graph, {"x", "z"}, {}, ahead);
  EXPECT_THAT(feed_names(ahead), ::testing::UnorderedElementsAre("prepared", "z"));

  Runtime runtime({});
  const StageSession session = stage_session(job);
  Instance direct(compile(f.graph, plain, {}), runtime), staged(compile(f.graph, ahead, {}), runtime);
  InputStaging columns(job, session, f.graph, *f.batcher, {"x", "z"}, feed_names(plain), runtime);
  InputStaging prepared(job, session, f.graph, *f.batcher, {"x", "z"}, feed_names(ahead), runtime);
  const auto stage = prepared.make_stage({});
  stage->start();
  const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(60));
  for (std::uint64_t t = 0; t < 12; ++t) {
    Batch whole = columns.make({.ticket = t, .thread = 0, .stop = {}});
    Batch batch = stage->take(wait);
    EXPECT_EQ(batch.cursor, whole.cursor);
    EXPECT_EQ(batch.rows, 4);
    StepRequest a, b;
    a.feeds = std::move(whole.tensors);
    b.feeds = std::move(batch.tensors);
    const Tensor want = direct.run(std::move(a), wait).fetches[0],
                 got = staged.run(std::move(b), wait).fetches[0];
    ASSERT_EQ(std::memcmp(want.raw(), got.raw(), want.bytes()), 0) << "step " << t;
  }
}

TEST(StageMetricsTest, T11_WhatAStageCountsIsExported) {
  MetricsRegistry registry;
  Stage stage({.name = "input", .capacity = 2, .ignored_exception_types = {ErrorCode::DataLoss}},
              [](std::uint64_t ticket) {
                if (ticket == 1) throw DataLoss("torn");
                if (ticket == 5) throw OutOfRange("done");
                return Batch();
              });
  {
    const StageMetrics metrics(registry, stage);
    stage.start();
    for (int i = 0; i < 4; ++i) stage.take(WaitContext::with_timeout(std::chrono::seconds(60)));
    EXPECT_THAT(
        registry.render(),
        AllOf(HasSubstr("braid_stage_batches_total{stage=\"input\"} 4"),
              HasSubstr("braid_stage_capacity_batches{stage=\"input\"} 2"),
              HasSubstr("braid_stage_ready_batches{stage=\"input\"} 0"),
              HasSubstr("braid_stage_occupancy_ratio"), HasSubstr("braid_stage_take_wait_seconds_total"),
              HasSubstr("braid_stage_room_wait_seconds_total"),
              HasSubstr("braid_stage_dropped_total{stage=\"input\"} 0"), HasSubstr("kind=\"DataLoss\"")));
  }
  EXPECT_THAT(registry.render(), HasSubstr("braid_stage_batches_total{stage=\"input\"} 4")) << "and stays";
}

}  // namespace
}  // namespace braid::worker
