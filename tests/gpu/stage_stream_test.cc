// A stage with a stream of its own on a device: the bits of the graph run as it is, whoever takes what it
// makes, under random delays of records and of kernels of the host in the stage and in the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "engine/exec/program_cache.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "engine/staging/stage_marks.h"
#include "engine/staging/staged_session.h"
#include "proto/graph.pb.h"
#include "tests/engine/staging/delayed_op.h"
#include "tests/engine/staging/stage_test_util.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr std::int64_t kRows = 64, kColumns = 48;

RecordSource records(std::uint64_t end = UINT64_MAX) {
  return {{"x"}, [end](std::uint64_t ticket) {
            if (ticket >= end) throw OutOfRange("no more records");
            random_delay(ticket, 200);
            Tensor rows(DType::Float32, {kRows, kColumns});
            for (std::int64_t i = 0; i < rows.elements(); ++i)
              rows.data<float>()[static_cast<std::size_t>(i)] =
                  static_cast<float>((ticket * 37 + static_cast<std::uint64_t>(i) * 11) % 17) - 8.0F;
            return batch_of(std::move(rows));
          }};
}

/// What `stage` gets: relu(x table + noise), which reads a variable that nobody writes. The step multiplies
/// it by W, which changes in each step.
struct Model {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, kColumns});
  Output prepared, y;

  Model(const std::vector<StageOptions>& stages, bool delayed) {
    register_delayed_op();
    const auto slowly = [&](Output value) { return delayed ? b.op("test.Delayed", {value}) : value; };
    const Output table = b.variable("table", {kColumns, kColumns}, {.init = {InitKind::Normal, 0, 1}});
    const Output noise = b.op("RandomUniform", {b.op("Shape", {x}, {{"out_type", DType::Int32}})},
                              {{"dtype", DType::Float32}}, "noise");
    prepared = b.relu(b.add(slowly(b.matmul(x, b.read(table))), noise));
    for (const StageOptions& stage : stages)
      prepared = staged(b, Nested<Output>(b.mul(prepared, prepared)), stage).leaf();
    const Output w = b.variable("w", {kColumns, 8}, {});
    y = b.matmul(slowly(prepared), b.read(w));
    const Output more =
        b.constant(Tensor::from<float>({kColumns, 8}, std::vector<float>(kColumns * 8, 0.25F)));
    b.op("AssignAddVariableOp", {w, more}, {{"dtype", DType::Float32}}, "update");
  }
};

constexpr std::uint64_t kSeed = 5;

StepParams step_params(std::uint64_t step) {
  StepParams params;
  params.step = step;
  params.seed = kSeed;
  return params;
}

StageOptions on_stream(const std::string& name, int stream, int threads = 1) {
  return {.name = name, .capacity = 2, .num_threads = threads, .stage_subgraph_stream_id = stream};
}

class StageStreamTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSteps = 30;

  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    device_ = open_cuda({.tf32 = false});
  }

  /// The values of `y` without a stage.
  std::vector<Tensor> unstaged(const Model& model) {
    Runtime runtime({.device = device_});
    ProgramCache cache(import_graph(model.b.graph()), {model.y.name()}, {"update"}, on_device(), runtime);
    std::vector<Tensor> results;
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      StepRequest request;
      request.params = step_params(t);
      request.feeds = records().read(t).tensors;
      const auto instance = cache.instance({{"x", DType::Float32, {kRows, kColumns}}});
      if (t == 0) runtime.variables().write("table", initial_table(model));
      results.push_back(instance->run(std::move(request), soon()).fetches[0]);
    }
    return results;
  }

  static Tensor initial_table(const Model& model) {
    const Graph graph = import_graph(model.b.graph());
    Tensor table(DType::Float32, {kColumns, kColumns});
    initialize_variable(graph.node(graph.find("table")), kSeed, table);
    return table;
  }

  static CompileOptions on_device() {
    CompileOptions compile;
    compile.domain = Domain::Device;
    return compile;
  }

  /// Fetches of each step.
  std::vector<std::vector<Tensor>> run(const Model& model, const std::vector<std::string>& fetches) {
    Runtime runtime({.device = device_});
    const Graph graph = import_graph(model.b.graph());
    StagedSession session(graph, stages_of(graph), fetches, {"update"}, {records(kSteps)},
                          {.compile = on_device(),
                           .stages = {.streams = 4, .stage_multi_stream = true, .priorities = {0, 1, 2}},
                           .seed = kSeed},
                          runtime);
    std::vector<std::vector<Tensor>> results;
    {
      const PrefetchHook hook(session);
      for (std::uint64_t t = 0; t < kSteps; ++t) {
        results.push_back(session.run(step_params(t), {}, soon()).fetches);
      }
      EXPECT_THROW(session.run({}, {}, soon()), OutOfRange);
    }
    streams_.clear();
    for (const DeviceStreamWork& stream : runtime.activity().device_streams)
      if (stream.launches > 0) streams_.push_back(stream.name);
    return results;
  }

  /// The values of `y` of the first steps, where nothing is updated.
  std::vector<Tensor> run_steps(const Model& model, std::uint64_t steps) {
    Runtime runtime({.device = device_});
    const Graph graph = import_graph(model.b.graph());
    StagedSession session(
        graph, stages_of(graph), {model.y.name()}, {}, {records(steps)},
        {.compile = on_device(), .stages = {.streams = 2, .stage_multi_stream = true}, .seed = kSeed},
        runtime);
    const PrefetchHook hook(session);
    std::vector<Tensor> values;
    for (std::uint64_t t = 0; t < steps; ++t)
      values.push_back(session.run(step_params(t), {}, soon()).fetches[0]);
    return values;
  }

  static void expect_same(const std::vector<std::vector<Tensor>>& got,
                          const std::vector<std::vector<Tensor>>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t t = 0; t < got.size(); ++t)
      for (std::size_t f = 0; f < want[t].size(); ++f) {
        ASSERT_EQ(got[t][f].domain(), Domain::Host);
        ASSERT_EQ(got[t][f].shape(), want[t][f].shape());
        ASSERT_EQ(std::memcmp(got[t][f].raw(), want[t][f].raw(), want[t][f].bytes()), 0)
            << "step " << t << ", fetch " << f;
      }
  }

  std::shared_ptr<Accelerator> device_;
  std::vector<std::string> streams_;  // of the last run, that had work
};

TEST_F(StageStreamTest, T9_AStagedGraphGivesWhatTheGraphGivesAsItIs) {
  for (const bool delayed : {false, true}) {
    const Model model({on_stream("ahead", 1)}, delayed);
    const auto once = run(model, {model.y.name()});
    EXPECT_THAT(streams_,
                IsSupersetOf({"ahead.0/compute0", "ahead.0/h2d", "ahead.0/d2h", "compute0", "h2d"}));
    // Other nodes are fused where there is no cut.
    const std::vector<Tensor> whole = unstaged(model);
    for (std::size_t t = 0; t < kSteps; ++t)
      for (std::size_t i = 0; i < whole[t].data<float>().size(); ++i)
        ASSERT_NEAR(once[t][0].data<float>()[i], whole[t].data<float>()[i],
                    1e-5 * std::abs(whole[t].data<float>()[i]) + 1e-3)
            << "step " << t;
    for (const int threads : {1, 3}) {
      const Model again({on_stream("ahead", 2, threads)}, delayed);
      expect_same(run(again, {again.y.name()}), once);
    }
  }
}

TEST_F(StageStreamTest, T9_StagesFollowEachOtherOnTheDeviceAndOnTheHost) {
  const auto fetched = [&](int first, int second) {
    const Model model({on_stream("first", first, 2), on_stream("second", second)}, false);
    return run(model, {model.y.name(), model.prepared.name()});
  };
  const auto both = fetched(1, 2);
  EXPECT_THAT(streams_, IsSupersetOf({"first.0/compute0", "first.1/compute0", "second.0/compute0"}));
  expect_same(fetched(1, 1), both);
  expect_same(fetched(1, 0), both);  // a square has the same bits everywhere
}

TEST_F(StageStreamTest, WhatTheStepReadsOnTheHostComesBack) {
  Model model({on_stream("ahead", 1)}, true);
  const Output rounded =
      model.b.op("Cast", {model.prepared}, {{"SrcT", DType::Float32}, {"DstT", DType::Int64}});
  const Output text = model.b.op("AsString", {rounded}, {}, "text");
  const auto results = run(model, {text.name(), model.prepared.name()});
  for (const auto& fetches : results)
    for (std::int64_t i = 0; i < fetches[1].elements(); ++i)
      ASSERT_EQ(
          fetches[0].string_at(i),
          std::to_string(static_cast<std::int64_t>(fetches[1].data<float>()[static_cast<std::size_t>(i)])));
}

TEST_F(StageStreamTest, T9_BatchesAreInTheDevicesMemoryAndItComesBack) {
  const Model model({on_stream("ahead", 1, 2)}, false);
  const Graph graph = import_graph(model.b.graph());
  Runtime runtime({.device = device_});
  const std::uint64_t before = device_->bytes_in_use();
  std::uint64_t settled = 0;
  {
    StagedSession session(
        graph, stages_of(graph), {model.y.name()}, {}, {records()},
        {.compile = {}, .stages = {.streams = 2, .stage_multi_stream = true}, .seed = kSeed}, runtime);
    for (int life = 0; life < 50; ++life) {
      const PrefetchHook hook(session);
      const Batch batch = session.stage(0).take(soon());
      ASSERT_EQ(batch.tensors.size(), 1U);
      ASSERT_EQ(batch.tensors[0].domain(), Domain::Device);
      ASSERT_EQ(batch.tensors[0].shape(), (Shape{kRows, kColumns}));
      session.cancel();
      if (life == 10) settled = device_->bytes_in_use();
    }
    EXPECT_LE(device_->bytes_in_use(), settled + 4 * kRows * kColumns * sizeof(float)) << "blocks go round";
  }
  EXPECT_LE(device_->bytes_in_use(), before + kColumns * kColumns * sizeof(float)) << "all but the variable";
}

TEST_F(StageStreamTest, T5_CloseDrainsAndCancelEndsAndBothBeginAgainAHundredTimes) {
  const Model model({on_stream("ahead", 1, 2)}, true);
  const std::vector<Tensor> expected = run_steps(model, 8);
  Runtime runtime({.device = device_});
  const Graph graph = import_graph(model.b.graph());
  StagedSession session(
      graph, stages_of(graph), {model.y.name()}, {}, {records()},
      {.compile = on_device(), .stages = {.streams = 2, .stage_multi_stream = true}, .seed = kSeed}, runtime);
  for (int life = 0; life < 100; ++life) {
    const PrefetchHook hook(session);
    std::uint64_t t = 0;
    const auto step = [&] {
      const Tensor y = session.run(step_params(t), {}, soon()).fetches[0];
      if (t < expected.size()) expect_same({{y}}, {{expected[t]}});
      ++t;
    };
    for (int i = 0; i < life % 4; ++i) step();
    if (life % 2) {
      session.close();
      EXPECT_THROW(while (t < 20) step(), OutOfRange) << "what was begun comes, and then the end";
      EXPECT_LE(t, 3 + 2 + 2 + 1U) << "capacity, threads, and one on its way";
    } else {
      random_delay(static_cast<std::uint64_t>(life), 2000);
      const auto begin = std::chrono::steady_clock::now();
      session.cancel();
      EXPECT_THROW(session.run(step_params(t), {}, soon()), Cancelled);
      EXPECT_LT(ms_since(begin), 10'000) << "and not at a deadline";
    }
  }
}

/// y: the rows of a table that the record's ids name, doubled. Ids are fed for each record.
struct Lookup {
  static constexpr std::int64_t kTable = 10, kIds = 4;
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Int32, {kIds}), fed = b.placeholder("fed", DType::Int32, {kIds});
  Output y;

  explicit Lookup(StageOptions options) {
    std::vector<float> rows(kTable * 2);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    const Output table = b.constant(Tensor::from<float>({kTable, 2}, rows));
    const Output axis = b.constant(Tensor::scalar<std::int32_t>(0));
    const Output taken = b.op("GatherV2", {table, fed, axis}, {}, "taken");
    const Output features = b.add(taken, taken);
    const Output plus_one = b.op("AddV2", {x, b.constant(Tensor::scalar<std::int32_t>(1))}, {}, "plus_one");
    y = b.op("Identity", {staged(b, Nested<Output>(features), std::move(options), {{fed, plus_one}}).leaf()},
             {}, "y");
  }

  /// Every seventh record names a row that there is not.
  static std::int32_t id(std::uint64_t ticket) {
    return static_cast<std::int32_t>(ticket % 7 == 6 ? kTable : ticket % (kTable - 1));
  }
  static RecordSource records() {
    return {{"x"}, [](std::uint64_t ticket) {
              if (ticket >= 70) throw OutOfRange("no more records");
              const std::vector<std::int32_t> ids(kIds, id(ticket));
              return batch_of(Tensor::from<std::int32_t>({kIds}, ids));
            }};
  }

  /// What steps give, and what the end of them says.
  std::pair<std::vector<float>, std::string> run(
      std::shared_ptr<Accelerator> device, std::map<ErrorCode, std::uint64_t>* ignored = nullptr) const {
    Runtime runtime({.device = std::move(device)});
    const Graph graph = import_graph(b.graph());
    CompileOptions compile;
    compile.domain = Domain::Device;
    StagedSession session(graph, stages_of(graph), {"y"}, {}, {records()},
                          {.compile = compile, .stages = {.streams = 2, .stage_multi_stream = true}},
                          runtime);
    const PrefetchHook hook(session);
    std::vector<float> results;
    const std::string end = message_of<Error>([&] {
      for (std::uint64_t t = 0;; ++t)
        results.push_back(session.run(step_params(t), {}, soon()).fetches[0].data<float>()[3]);
    });
    if (ignored) *ignored = session.stage(0).stats().ignored;
    return {results, end};
  }
};

TEST_F(StageStreamTest, T6_AnErrorOfTheStagesKernelReachesTheStepWithItsNode) {
  const auto [results, end] = Lookup(on_stream("ahead", 1, 2)).run(device_);
  EXPECT_EQ(results.size(), 6U);
  EXPECT_THAT(end,
              ::testing::ContainsRegex("\\[GatherV2\\] node 'taken' on stream ahead\\.[01]/compute0, step 6: "
                                       "index 11 is not in \\[0, 10\\)"));
}

TEST_F(StageStreamTest, T8_FeedsAreEvaluatedForEachRecordAndNothingRunsWithAnOldOne) {
  StageOptions options = on_stream("ahead", 1, 3);
  options.ignored_exception_types = {ErrorCode::InvalidArgument};
  std::map<ErrorCode, std::uint64_t> ignored;
  const auto [results, end] = Lookup(options).run(device_, &ignored);
  std::vector<float> expected;
  for (std::uint64_t t = 0; t < 70; ++t)
    if (t % 7 != 6) expected.push_back(2 * static_cast<float>(2 * (Lookup::id(t) + 1) + 1));
  EXPECT_EQ(results, expected);
  EXPECT_THAT(end, HasSubstr("end of input"));
  EXPECT_EQ(ignored[ErrorCode::InvalidArgument], 10U);
}

}  // namespace
}  // namespace braid::testing
