// Stages of graphs: T1, T7, T8 and T9 as far as they are about graphs, chains of stages, and what is refused.
// A staged session must give the bits of the same graph run as it is, with random delays of records, and of
// kernels in the stage and in the step.
#include "engine/staging/graph_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "engine/builder/graph_builder.h"
#include "engine/exec/program_cache.h"
#include "engine/exec/trace.h"
#include "engine/import/import.h"
#include "engine/staging/stage_marks.h"
#include "engine/staging/stage_pools.h"
#include "engine/staging/staged_session.h"
#include "proto/graph.pb.h"
#include "tests/engine/staging/delayed_op.h"
#include "tests/engine/staging/stage_test_util.h"
#include "tests/support/in_some_attempt.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 4;

Tensor rows(std::uint64_t ticket) {
  Tensor tensor(DType::Float32, {kRows, 3});
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>((ticket * 37 + static_cast<std::uint64_t>(i) * 11) % 17) - 8.0F;
  return tensor;
}

/// Records of `x` until `end`, with delays.
RecordSource records(std::uint64_t end = UINT64_MAX) {
  return {{"x"}, [end](std::uint64_t ticket) {
            if (ticket >= end) throw OutOfRange("no more records");
            random_delay(ticket, 200);
            Batch batch;
            batch.tensors = {rows(ticket)};
            batch.rows = kRows;
            batch.cursor = "ticket=" + std::to_string(ticket + 1);
            return batch;
          }};
}

/// relu(2x + noise) is prepared; y = prepared W, and W changes in each step. Both parts have a kernel with
/// random delays.
struct Model {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, 3});
  Output prepared, y, update;

  explicit Model(bool with_stage, StageOptions options = {}) {
    register_delayed_op();
    const Output noise = b.op("RandomUniform", {b.op("Shape", {x}, {{"out_type", DType::Int32}})},
                              {{"dtype", DType::Float32}}, "noise");
    prepared = b.relu(b.add(b.op("test.Delayed", {b.mul(x, b.constant(Tensor::scalar(2.0F)))}), noise));
    Output input = prepared;
    if (with_stage) input = staged(b, Nested<Output>(prepared), std::move(options)).leaf();
    const Output w = b.variable("w", {3, 2}, {});
    y = b.matmul(b.op("test.Delayed", {input}), b.read(w));
    update = b.op("AssignAddVariableOp",
                  {w, b.constant(Tensor::from<float>({3, 2}, std::vector<float>(6, 0.25F)))},
                  {{"dtype", DType::Float32}}, "update");
  }
  Graph graph() const { return import_graph(b.graph()); }
};

StepParams step_params(std::uint64_t step) {
  StepParams params;
  params.step = step;
  params.seed = 5;
  return params;
}

/// What the graph gives as it is, step by step.
std::vector<Tensor> unstaged(const Model& model, int steps) {
  Runtime runtime({});
  ProgramCache cache(model.graph(), {model.y.name()}, {"update"}, {}, runtime);
  std::vector<Tensor> results;
  for (int t = 0; t < steps; ++t) {
    StepRequest request;
    request.params = step_params(static_cast<std::uint64_t>(t));
    request.feeds = {rows(static_cast<std::uint64_t>(t))};
    results.push_back(
        cache.instance({{"x", DType::Float32, Shape{kRows, 3}}})->run(std::move(request), soon()).fetches[0]);
  }
  return results;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

/// A session over the graph's own marks.
struct Session {
  Runtime runtime{{}};
  StagedSession session;
  Session(Graph graph, std::vector<std::string> fetches, std::vector<std::string> targets,
          std::vector<RecordSource> sources, StageSession stages = {})
      : session(graph, stages_of(graph), std::move(fetches), std::move(targets), std::move(sources),
                {.compile = {}, .stages = std::move(stages), .seed = 5}, runtime) {}
  Tensor step(std::uint64_t t) { return session.run(step_params(t), {}, soon()).fetches[0]; }
};

TEST(GraphStageTest, T3_AStagedGraphGivesTheBitsOfTheGraphAsItIs) {
  const std::vector<Tensor> expected = unstaged(Model(false), 40);
  for (const int threads : {1, 3}) {
    const Model model(true, {.capacity = 2, .num_threads = threads});
    Session staged_run(model.graph(), {model.y.name()}, {"update"}, {records(40)});
    const PrefetchHook hook(staged_run.session);
    for (std::uint64_t t = 0; t < 40; ++t) {
      ASSERT_TRUE(same(staged_run.step(t), expected[t])) << "step " << t << ", " << threads << " threads";
      EXPECT_EQ(staged_run.session.cursor(), "ticket=" + std::to_string(t + 1));
    }
    EXPECT_THROW(staged_run.step(40), OutOfRange);
  }
  const std::vector<Tensor> marked = unstaged(Model(true), 5);
  EXPECT_TRUE(same(marked[4], expected[4])) << "marks change nothing where nobody stages";
}

TEST(GraphStageTest, T1_StructuresOfAGraphKeepTheirFormAndNothingIsRefusedWhenItIsBuilt) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3}), i = b.placeholder("i", DType::Int64, {-1, 2});
  using N = Nested<Output>;
  const N features =
      N::dict({{"dense", x}, {"none", N()}, {"sparse", N::sparse(i, x, i)}, {"list", N::list({x, N()})}});
  const N out = staged(b, features);
  EXPECT_EQ(out.to_string(), features.to_string());
  EXPECT_EQ(out.size(), 5U);
  EXPECT_NE(out["dense"].leaf().name(), "x");
  for (const N& empty : {N(), N::list({}), N::dict({{"a", N()}, {"b", N::list({N()})}})})
    EXPECT_THAT(message_of<InvalidArgument>([&] { staged(b, empty, {.name = "mine"}); }),
                AllOf(HasSubstr("stage 'mine'"), HasSubstr("hold no tensor")));
  EXPECT_EQ(stages_of(import_graph(b.graph())).size(), 1U);
}

TEST(GraphStageTest, OptionsTravelWithTheGraphDef) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {2});
  const Output p = b.placeholder("p", DType::Float32, {2});
  StageOptions options{.name = "in", .capacity = StageOptions::kAuto, .num_threads = 3, .num_clients = 2};
  options.timeout_millis = 17ms;
  options.on_timeout = TimeoutPolicy::Drop;
  options.ordered = false;
  options.closed_exception_types = {ErrorCode::Unavailable};
  options.ignored_exception_types = {ErrorCode::DataLoss, ErrorCode::OutOfRange};
  options.max_ignored_in_a_row = 9;
  options.stage_subgraph_stream_id = 1;
  options.use_stage_subgraph_thread_pool = true;
  options.stage_subgraph_thread_pool_id = 2;
  staged(b, Nested<Output>::list({p, x}), options, {{p, b.relu(x)}});
  staged(b, Nested<Output>(x));
  staged(b, Nested<Output>(x));
  GraphDef copy;
  copy.ParseFromString(b.graph().SerializeAsString());
  const Graph graph = import_graph(copy);
  const auto stages = stages_of(graph);
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].options, options);
  EXPECT_EQ(stages[0].outputs.size(), 2U);
  EXPECT_EQ(graph.value_name(stages[0].feeds.at(0).first), "p");
  EXPECT_EQ(stages[1].options, StageOptions{});
  EXPECT_EQ(stages[2].options.name, "stage_1") << "automatic names differ";
  EXPECT_THAT(message_of<InvalidArgument>([&] { staged(b, Nested<Output>(x), {.name = "in"}); }),
              HasSubstr("stage 'in' exists already"));

  for (NodeDef& node : *copy.mutable_node())
    if (node.name() == "in_1") (*node.mutable_attr())["_stage_capacity"].set_i(4);
  EXPECT_THAT(message_of<InvalidArgument>([&] { stages_of(import_graph(copy)); }),
              HasSubstr("[Identity] node 'in_1': its options differ from those of node 'in'"));
  for (NodeDef& node : *copy.mutable_node())
    if (node.name() == "in") (*node.mutable_attr())["_stage_capacity"].set_i((std::int64_t{1} << 32) + 4);
  EXPECT_THAT(message_of<InvalidArgument>([&] { stages_of(import_graph(copy)); }),
              HasSubstr("[Identity] node 'in': _stage_capacity: 4294967300 is out of range"));
}

TEST(GraphStageTest, T7_WithoutAHookAStepIsAnErrorAtOnce) {
  const Model model(true, {.name = "input"});
  Session session(model.graph(), {model.y.name()}, {"update"}, {records()});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.step(0); }),
              HasSubstr("stage 'input' was not started"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s) << "the step's deadline is a minute away";
  {
    const PrefetchHook hook(session.session);
    EXPECT_NO_THROW(session.step(0));
  }
  EXPECT_THROW(session.step(1), Cancelled) << "the hook's end is the stages' end";
}

TEST(GraphStageTest, T5_AHookThatIsAskedToStopEndsAWaitingStepAndHooksBeginAnew) {
  const std::vector<Tensor> expected = unstaged(Model(false), 1);
  const Model model(true, {.capacity = 2, .num_threads = 2});
  for (int i = 0; i < 30; ++i) {
    std::atomic<bool> slow{false};
    RecordSource source = records();
    source.read = [&slow, read = source.read](std::uint64_t ticket) {
      for (int k = 0; slow && k < 200; ++k) std::this_thread::sleep_for(1ms);
      return read(ticket);
    };
    Session session(model.graph(), {model.y.name()}, {}, {source});
    std::stop_source stop;
    const PrefetchHook hook(session.session, 0, stop.get_token());
    EXPECT_TRUE(same(session.step(0), expected[0]));
    slow = true;
    std::jthread stopper([&] {
      random_delay(static_cast<std::uint64_t>(i), 3000);
      stop.request_stop();
      slow = false;
    });
    EXPECT_THROW(for (std::uint64_t t = 1;; ++t) session.step(t), Cancelled);
  }
}

/// y = 10 p, where p is fed with a value made of x for each record.
struct FedModel {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, 3}), p = b.placeholder("p", DType::Float32, {-1, 3}), y;
  explicit FedModel(StageOptions options) {
    register_delayed_op();
    const Output value =
        b.op("CheckNumerics", {b.op("test.Delayed", {b.add(x, x)})}, {{"message", "the record"}}, "value");
    const Output features = b.mul(b.op("test.Delayed", {p}), b.constant(Tensor::scalar(10.0F)));
    y = b.op("Identity", {staged(b, Nested<Output>(features), std::move(options), {{p, value}}).leaf()}, {},
             "y");
  }
};

TEST(GraphStageTest, T8_FeedsAreEvaluatedForEachRecord) {
  const FedModel model({.capacity = 3, .num_threads = 3});
  Session session(import_graph(model.b.graph()), {"y"}, {}, {records(50)});
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 50; ++t) {
    const Tensor y = session.step(t), x = rows(t);
    for (std::size_t i = 0; i < 12; ++i)
      ASSERT_EQ(y.data<float>()[i], 20 * x.data<float>()[i]) << "record " << t;
  }
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST(GraphStageTest, T5_ASessionOfAThousandLivesLeavesNothingBehind) {
  std::atomic<int> blocks{0};
  std::thread([] {}).join();  // beside the first a sanitizer starts a thread of its own
  const std::ptrdiff_t threads = threads_of_this_process();
  {
    const FedModel model({.capacity = 2, .num_threads = 2});
    RecordSource source = records();
    source.read = [&blocks, read = source.read](std::uint64_t ticket) {
      Batch batch = read(ticket);
      ++blocks;
      batch.block = std::shared_ptr<void>(nullptr, [&blocks](void*) { --blocks; });
      return batch;
    };
    Session session(import_graph(model.b.graph()), {"y"}, {}, {source});
    std::minstd_rand random(3);
    for (int life = 0; life < 1000; ++life) {
      const std::uint64_t first = random() % 50;
      session.session.start(first);
      for (std::uint64_t t = first; t < first + random() % 3; ++t)
        ASSERT_EQ(session.step(t).data<float>()[0], 20 * rows(t).data<float>()[0]) << "life " << life;
      switch (random() % 3) {
        case 0:
          session.session.cancel();
          break;
        case 1:
          session.session.close();
          EXPECT_THROW(for (;;) session.step(0), OutOfRange);
          break;
        default:  // what is in the buffer is not taken any more
          session.session.close();
          session.session.cancel();
      }
    }
  }
  EXPECT_EQ(blocks, 0);
  EXPECT_TRUE(eventually([&] { return threads_of_this_process() <= threads; }))
      << "threads of earlier tests may have been on their way out";
}

TEST(GraphStageTest, T8_WhereAFeedFailsNothingRunsWithAnOldOne) {
  StageOptions options{.capacity = 3, .num_threads = 3};
  options.ignored_exception_types = {ErrorCode::InvalidArgument};
  options.ignored_backoff = 0ms;
  const FedModel model(options);
  RecordSource source = records(60);
  source.read = [read = source.read](std::uint64_t ticket) {
    Batch batch = read(ticket);
    if (ticket % 3 == 1) batch.tensors[0].data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    return batch;
  };
  Session session(import_graph(model.b.graph()), {"y"}, {}, {source});
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 60; ++t) {
    if (t % 3 == 1) continue;  // its feed fails: there is no record
    const Tensor y = session.step(t), x = rows(t);
    for (std::size_t i = 0; i < 12; ++i)
      ASSERT_EQ(y.data<float>()[i], 20 * x.data<float>()[i]) << "record " << t;
  }
  EXPECT_THROW(session.step(60), OutOfRange);
  EXPECT_EQ(session.session.stage(0).stats().ignored.at(ErrorCode::InvalidArgument), 20U);
}

TEST(GraphStageTest, T6_AnErrorOfAKernelReachesTheStepWithItsNode) {
  const FedModel model({});
  RecordSource source = records();
  source.read = [read = source.read](std::uint64_t ticket) {
    Batch batch = read(ticket);
    if (ticket == 3) batch.tensors[0].data<float>()[0] = std::numeric_limits<float>::infinity();
    return batch;
  };
  Session session(import_graph(model.b.graph()), {"y"}, {}, {source});
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 3; ++t) EXPECT_NO_THROW(session.step(t));
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.step(3); }),
              AllOf(HasSubstr("'value'"), HasSubstr("the record")));
}

TEST(GraphStageTest, T9_AStageWithAPoolComputesOnItsThreads) {
  StageSession stages{.pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>{
                          {.inter_op_threads_num = 2, .intra_op_threads_num = 2}})};
  const Model model(true, {.num_threads = 2, .use_stage_subgraph_thread_pool = true});
  const std::vector<Tensor> expected = unstaged(Model(false), 20);
  Session session(model.graph(), {model.y.name()}, {"update"}, {records(20)}, stages);
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 20; ++t) ASSERT_TRUE(same(session.step(t), expected[t]));
  EXPECT_GT(stages.pools->at(0).busy_seconds(), 0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { Session(model.graph(), {model.y.name()}, {}, {records()}); }),
              HasSubstr("no session_stage_subgraph_thread_pool is declared"));
}

TEST(GraphStageTest, T9_WithoutADeviceAStageWithAStreamComputesOnItsThreads) {
  const StageSession stages{.streams = 2, .stage_multi_stream = true};
  const Model model(true, {.num_threads = 2, .stage_subgraph_stream_id = 1});
  const std::vector<Tensor> expected = unstaged(Model(false), 20);
  Session session(model.graph(), {model.y.name()}, {"update"}, {records(20)}, stages);
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 20; ++t) ASSERT_TRUE(same(session.step(t), expected[t]));
}

TEST(GraphStageTest, T9_BatchesOfAStageArePackedIntoOneBlock) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3});
  const Nested<Output> out = staged(b, Nested<Output>::list({b.relu(x), b.add(x, x), x}));
  Session session(import_graph(b.graph()), {out[0].leaf().name()}, {}, {records()});
  const PrefetchHook hook(session.session);
  const Batch batch = session.session.stage(0).take(soon());
  ASSERT_EQ(batch.tensors.size(), 3U);
  EXPECT_EQ(batch.block_bytes, 3 * BlockPool::kAlignment);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(batch.tensors[i].raw(),
              static_cast<const std::byte*>(batch.block.get()) + BlockPool::kAlignment * i);
}

TEST(GraphStageTest, T9_TheTraceShowsTheStageAtWorkBesideTheStep) {
  in_some_attempt([] {
    const Model model(true, {.capacity = 2});
    RecordSource source = records(30);
    source.read = [read = source.read](std::uint64_t ticket) {
      std::this_thread::sleep_for(3ms);
      return read(ticket);
    };
    Runtime runtime({.trace = true});
    const Graph graph = model.graph();
    StagedSession session(graph, stages_of(graph), {model.y.name()}, {"update"}, {source},
                          {.compile = {}, .seed = 5}, runtime);
    const PrefetchHook hook(session);
    std::vector<std::pair<TraceTime, TraceTime>> steps;
    for (std::uint64_t t = 0; t < 30; ++t) {
      const TraceTime begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(2ms);  // the rest of a step
      if (t > 0) steps.emplace_back(begin, std::chrono::steady_clock::now());
      session.run(step_params(t), {}, soon());
    }
    const auto batches = runtime.trace()->track("stage0").slices();
    ASSERT_EQ(batches.size(), 30U);
    EXPECT_EQ(batches[7].step, 7U);
    int beside = 0;
    for (const auto& [begin, end] : steps)
      beside += std::any_of(
          batches.begin() + 1, batches.end(),
          [&, b = begin, e = end](const TraceSlice& slice) { return slice.end > b && slice.begin < e; });
    EXPECT_GT(beside, 20);
  });
}

TEST(GraphStageTest, T3_ProducersWithSubgraphsOfTheirOwnJoinInOneBuffer) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3}),
               z = b.placeholder("z", DType::Float32, {-1, 3});
  using N = Nested<Output>;
  const N out = prefetch_join(
      b, {N::list({b.mul(x, b.constant(Tensor::scalar(2.0F)))}), N::list({b.op("Neg", {z}, {}, "negative")})},
      {.name = "both", .capacity = 2});
  const Output y = b.op("Identity", {out[0].leaf()}, {}, "y");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                prefetch_join(b, {N::list({x}), N::list({x, z})});
              }),
              HasSubstr("must make one structure, got [*] and [*, *]"));
  const Graph graph = import_graph(b.graph());
  ASSERT_EQ(stages_of(graph).size(), 1U);
  EXPECT_EQ(stages_of(graph)[0].joined.size(), 1U);
  RecordSource longer = records(9), shorter = records(4);
  shorter.placeholders = {"z"};
  // Tickets are the stage's, and every other one is a producer's.
  const auto counted = [](RecordSource source) {
    source.read = [read = source.read, n = std::make_shared<std::uint64_t>(0)](std::uint64_t) {
      return read((*n)++);
    };
    return source;
  };
  Session session(graph, {"y"}, {}, {counted(longer), counted(shorter)});
  const PrefetchHook hook(session.session);
  std::vector<std::pair<float, std::uint64_t>> expected;  // factor and record
  for (std::uint64_t i = 0; i < 9; ++i) {
    expected.emplace_back(2.0F, i);
    if (i < 4) expected.emplace_back(-1.0F, i);
  }
  for (const auto& [factor, record] : expected) {
    const Tensor got = session.step(0), want = rows(record);
    for (std::size_t i = 0; i < 12; ++i) ASSERT_EQ(got.data<float>()[i], factor * want.data<float>()[i]);
  }
  EXPECT_THROW(session.step(0), OutOfRange);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                Session(graph, {"y"}, {}, {{{"x", "z"}, records().read}});
              }),
              HasSubstr("are read by stage 'both' and by another producer of it"));
}

TEST(GraphStageTest, T1_StringsAreHandedOnAndHashedInAStageOrInTheStep) {
  GraphBuilder b;
  const Output words = b.placeholder("words", DType::String, {3});
  const auto hash = [&](const Output& text, const char* name) {
    return b.op("StringToHashBucketFast", {text}, {{"num_buckets", std::int64_t{1000}}}, name);
  };
  const Nested<Output> out =
      staged(b, Nested<Output>::list({words, hash(words, "ahead")}), {.num_threads = 2});
  hash(out[0].leaf(), "in_step");
  const Graph graph = import_graph(b.graph());
  const RecordSource source{{"words"}, [](std::uint64_t ticket) {
                              Batch batch;
                              const std::vector<std::string> text{"a", std::string(ticket, 'b'), ""};
                              batch.tensors = {Tensor::strings({3}, text)};
                              return batch;
                            }};
  Session session(graph, {"in_step", out[1].leaf().name()}, {}, {source});
  const PrefetchHook hook(session.session);
  std::int64_t before = -1;
  for (std::uint64_t t = 0; t < 20; ++t) {
    const StepResult got = session.session.run(step_params(t), {}, soon());
    ASSERT_TRUE(same(got.fetches[0], got.fetches[1])) << "record " << t;
    EXPECT_NE(got.fetches[0].data<std::int64_t>()[1], before);
    before = got.fetches[0].data<std::int64_t>()[1];
  }
}

TEST(GraphStageTest, StagesFollowEachOther) {
  const std::vector<Tensor> expected = unstaged(Model(false), 30);
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3});
  const Output raw = staged(b, Nested<Output>(x), {.name = "read", .capacity = 4}).leaf();
  const Output noise = b.op("RandomUniform", {b.op("Shape", {raw}, {{"out_type", DType::Int32}})},
                            {{"dtype", DType::Float32}}, "noise");
  const Output prepared = b.relu(b.add(b.mul(raw, b.constant(Tensor::scalar(2.0F))), noise));
  const Output input = staged(b, Nested<Output>(prepared), {.name = "prepare", .num_threads = 2}).leaf();
  const Output w = b.variable("w", {3, 2}, {});
  const Output y = b.matmul(input, b.read(w));
  b.op("AssignAddVariableOp", {w, b.constant(Tensor::from<float>({3, 2}, std::vector<float>(6, 0.25F)))},
       {{"dtype", DType::Float32}}, "update");
  Session session(import_graph(b.graph()), {y.name()}, {"update"}, {records(30)});
  EXPECT_EQ(session.session.cut().order, (std::vector<int>{0, 1}));
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 30; ++t) {
    ASSERT_TRUE(same(session.step(t), expected[t])) << "step " << t;
    EXPECT_EQ(session.session.cursor(), "ticket=" + std::to_string(t + 1));
  }
  EXPECT_THROW(session.step(30), OutOfRange) << "the end goes through both";
}

TEST(GraphStageTest, AStageReadsVariablesThatNobodyWritesAndKeepsStateOfItsOwn) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3});
  VariableOptions twos;
  twos.init = {.kind = InitKind::Constant, .a = 2.0};
  const Output scale = b.variable("scale", {3}, twos);
  VariableOptions zeros;
  const Output count = b.variable("count", {}, zeros);
  const Output counted = b.op("AssignAddVariableOp", {count, b.constant(Tensor::scalar(1.0F))},
                              {{"dtype", DType::Float32}}, "counted");
  const Output number = b.op("ReadVariableOp", {count}, {{"dtype", DType::Float32}}, "number");
  b.control_dependency(counted, number);
  const Output features = b.add(b.mul(x, b.read(scale)), number);
  const Output y = staged(b, Nested<Output>(features), {.capacity = 3}).leaf();
  const Graph graph = import_graph(b.graph());
  Session session(graph, {y.name()}, {}, {records(20)});
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 20; ++t) {
    const Tensor got = session.step(t), want = rows(t);
    for (std::size_t i = 0; i < 12; ++i)
      ASSERT_EQ(got.data<float>()[i], 2 * want.data<float>()[i] + static_cast<float>(t + 1))
          << "record " << t;
  }
  auto stages = stages_of(graph);
  stages[0].options.num_threads = 2;
  EXPECT_THAT(message_of<InvalidArgument>([&] { cut_graph(graph, stages, {y.name()}, {}); }),
              AllOf(HasSubstr("writes variable 'count'"), HasSubstr("num_threads must be 1")));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { cut_graph(graph, stages_of(graph), {y.name()}, {"counted"}); }),
      AllOf(HasSubstr("variable 'count' is written by stage 'stage' (node 'counted')"),
            HasSubstr("the step")));
}

TEST(GraphStageTest, CutsThatCannotWorkAreRefusedByName) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3}),
               z = b.placeholder("z", DType::Float32, {-1, 3}),
               ids = b.placeholder("ids", DType::Int64, {-1, 3});
  const Output w = b.variable("w", {3}, {});
  const Output scaled = b.op("Mul", {x, b.read(w)}, {}, "scaled");
  b.op("AssignAddVariableOp", {w, b.constant(Tensor::from<float>({3}, std::vector<float>(3, 1)))},
       {{"dtype", DType::Float32}}, "update");
  const Output r1 = b.op("Relu", {x}, {}, "r1"), r2 = b.op("Relu", {r1}, {}, "r2"),
               r3 = b.op("Relu", {r2}, {}, "r3");
  const Graph graph = import_graph(b.graph());
  const auto value = [&](const Output& o) { return graph.parse_value(o.name()); };
  const auto refuse = [&](std::vector<GraphStage> stages, std::vector<std::string> fetches,
                          std::vector<std::string> targets = {}) {
    return message_of<InvalidArgument>([&] { cut_graph(graph, stages, fetches, targets); });
  };
  const GraphStage reads{.options = {.name = "a"}, .outputs = {value(scaled)}, .feeds = {}};
  EXPECT_THAT(refuse({reads}, {"scaled"}, {"update"}),
              AllOf(HasSubstr("variable 'w' is written by the step (node 'update') and used by stage 'a'"),
                    HasSubstr("move the cut")));
  const GraphStage a{.options = {.name = "a"}, .outputs = {value(r1), value(r3)}, .feeds = {}};
  const GraphStage c{.options = {.name = "c"}, .outputs = {value(r2)}, .feeds = {}};
  EXPECT_THAT(refuse({a, c}, {"r3"}), HasSubstr("stages 'a', 'c' need each other's outputs"));
  const GraphStage first{.options = {.name = "first"}, .outputs = {value(r1)}, .feeds = {}};
  EXPECT_THAT(refuse({first, c}, {"r1", "r2"}),
              HasSubstr("stage 'first' is taken from by stage 'c' and by the step: hand its values on"));
  EXPECT_THAT(refuse({first, first}, {"r1"}), HasSubstr("'r1' is handed over by stage 'first' already"));
  const GraphStage namesake{.options = {.name = "first"}, .outputs = {value(r2)}, .feeds = {}};
  EXPECT_THAT(refuse({first, namesake}, {"r1"}), HasSubstr("two stages are called 'first'"));
  const auto fed = [&](std::vector<std::pair<ValueRef, ValueRef>> feeds) {
    return refuse({{.options = {.name = "first"}, .outputs = {value(r1)}, .feeds = std::move(feeds)}},
                  {"r1"});
  };
  EXPECT_THAT(fed({{value(x), value(z)}, {value(x), value(z)}}),
              HasSubstr("stage 'first': its feed_dict feeds 'x' twice"));
  EXPECT_THAT(
      fed({{value(z), value(x)}}),
      HasSubstr("stage 'first': its feed_dict feeds 'z', on which nothing that it hands over depends"));
  EXPECT_THAT(fed({{value(x), value(ids)}}),
              HasSubstr("feeds 'x', which is float32, with 'ids', which is int64"));

  Runtime runtime({});
  const auto session = [&](std::vector<GraphStage> stages, std::vector<std::string> fetches,
                           std::vector<RecordSource> sources) {
    return message_of<InvalidArgument>(
        [&] { StagedSession(graph, stages, fetches, {}, sources, {.compile = {}}, runtime); });
  };
  EXPECT_THAT(session({first}, {"r1"}, {}), HasSubstr("stage 'first' needs placeholder 'x', which neither"));
  EXPECT_THAT(session({first}, {"r1", "scaled"}, {records()}),
              HasSubstr("placeholder 'x' comes with records, but the step uses it directly"));
  EXPECT_THAT(session({}, {"r1"}, {records()}), HasSubstr("placeholder 'x' comes with records"));
  EXPECT_THAT(session({first}, {"r1"}, {records(), {{"z"}, records().read}}),
              HasSubstr("no stage reads the records of 'z'"));
  EXPECT_THAT(session({first}, {"r1"}, {records(), {{}, records().read}}),
              HasSubstr("source 1 has no placeholders"));
  EXPECT_THAT(session({first}, {"r1"}, {{{"x"}, {}}}),
              HasSubstr("the source of 'x' has no function that reads"));
  EXPECT_THAT(session({first}, {"r1"}, {records(), records()}),
              HasSubstr("'x' is named twice by the sources"));
}

}  // namespace
}  // namespace braid::testing
