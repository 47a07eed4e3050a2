// Stages that take from other stages, and steps that take from several: whose records belong together, and
// who waits where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/staging/stage_marks.h"
#include "engine/staging/stage_pools.h"
#include "engine/staging/staged_session.h"
#include "tests/engine/staging/stage_test_util.h"
#include "tests/support/in_some_attempt.h"

namespace braid::testing {
namespace {

using namespace std::chrono_literals;

/// Record t is the number t. Reading record `held` waits for `go`.
RecordSource numbers(const std::string& placeholder, std::uint64_t end, std::uint64_t held = UINT64_MAX,
                     std::shared_future<void> go = {}) {
  return {{placeholder}, [=](std::uint64_t ticket) {
            if (ticket >= end) throw OutOfRange("no more records");
            if (ticket == held) go.wait();
            return batch_of(Tensor::scalar(static_cast<float>(ticket)));
          }};
}

struct ChainSession {
  Runtime runtime{{}};
  StagedSession session;
  ChainSession(const GraphBuilder& b, const std::string& fetch, std::vector<RecordSource> sources,
               StageSession stages = {})
      : ChainSession(import_graph(b.graph()), fetch, std::move(sources), std::move(stages)) {}
  ChainSession(const Graph& graph, const std::string& fetch, std::vector<RecordSource> sources,
               StageSession stages)
      : session(graph, stages_of(graph), {fetch}, {}, std::move(sources),
                {.compile = {}, .stages = std::move(stages)}, runtime) {}
  float step(std::uint64_t t, std::chrono::milliseconds timeout = 60s) {
    StepParams params;
    params.step = t;
    return session.run(params, {}, soon(timeout)).fetches[0].data<float>()[0];
  }
};

/// 2 x of the records "x" less 2 z of the records "z", a stage each: 0 as long as records of one ticket meet.
Output difference_of_two_stages(GraphBuilder& b) {
  const Output x = b.placeholder("x", DType::Float32, {}), z = b.placeholder("z", DType::Float32, {});
  const Output a = staged(b, Nested<Output>(b.add(x, x)), {.name = "a"}).leaf();
  const Output c = staged(b, Nested<Output>(b.add(z, z)), {.name = "c"}).leaf();
  return b.op("Sub", {a, c});
}

TEST(StageChainTest, AStageThatWaitsForTheOneAboveLeavesThePoolOfBothToIt) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {});
  const Output above =
      staged(b, Nested<Output>(b.add(x, x)), {.name = "above", .use_stage_subgraph_thread_pool = true})
          .leaf();
  const Output below = staged(b, Nested<Output>(b.mul(above, above)),
                              {.name = "below", .use_stage_subgraph_thread_pool = true})
                           .leaf();
  StageSession stages{
      .pools = std::make_shared<StagePools>(std::vector<StagePoolOptions>{{.inter_op_threads_num = 1}})};
  ChainSession session(b, b.relu(below).name(), {numbers("x", 20)}, stages);
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 20; ++t)
    EXPECT_EQ(session.step(t), 4.0F * static_cast<float>(t) * static_cast<float>(t));
  EXPECT_THROW(session.step(20), OutOfRange);
}

TEST(StageChainTest, WaitingForTheStageAboveIsNotWork) {
  in_some_attempt([] {
    constexpr auto kHeld = 300ms;
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, {});
    const Output above = staged(b, Nested<Output>(b.add(x, x)), {.name = "above"}).leaf();
    const Output below = staged(b, Nested<Output>(b.mul(above, above)), {.name = "below"}).leaf();
    const RecordSource slow{{"x"}, [&](std::uint64_t ticket) {
                              if (ticket == 0) std::this_thread::sleep_for(kHeld);
                              return numbers("x", 20).read(ticket);
                            }};
    ChainSession session(b, b.relu(below).name(), {slow});
    const PrefetchHook hook(session.session);
    EXPECT_EQ(session.step(0), 0);
    EXPECT_GE(session.session.stage(0).stats().threads[0].busy_seconds, 0.3);
    EXPECT_LT(session.session.stage(1).stats().threads[0].busy_seconds, 0.2);
  });
}

TEST(StageChainTest, AStepThatWasLateTakesUpWhatItHadTaken) {
  std::promise<void> go;
  GraphBuilder b;
  ChainSession session(b, difference_of_two_stages(b).name(),
                       {numbers("x", 20), numbers("z", 20, 5, go.get_future().share())});
  const PrefetchHook hook(session.session);
  for (std::uint64_t t = 0; t < 5; ++t) EXPECT_EQ(session.step(t), 0);
  EXPECT_THROW(session.step(5, 50ms), DeadlineExceeded);
  go.set_value();
  for (std::uint64_t t = 5; t < 20; ++t) EXPECT_EQ(session.step(t), 0) << "records of one ticket, step " << t;
  EXPECT_THROW(session.step(20), OutOfRange);
}

TEST(StageChainTest, AStageOfTwoThatIgnoresLatenessKeepsTheirRecordsTogether) {
  std::promise<void> go;
  GraphBuilder b;
  StageOptions hasty{.name = "both", .capacity = 20, .timeout_millis = 50ms};
  hasty.ignored_exception_types = {ErrorCode::DeadlineExceeded};
  hasty.max_ignored_in_a_row = 10000;
  const Output both = staged(b, Nested<Output>(difference_of_two_stages(b)), hasty).leaf();
  ChainSession session(b, b.relu(b.mul(both, both)).name(),
                       {numbers("x", 20), numbers("z", 20, 5, go.get_future().share())});
  const PrefetchHook hook(session.session);
  // A take has the same 50 ms, which a busy machine needs now and then.
  const auto patient_step = [&](std::uint64_t t) {
    for (int attempt = 1; attempt < 400; ++attempt) {
      try {
        return session.step(t);
      } catch (const DeadlineExceeded&) {
        continue;
      }
    }
    return session.step(t);
  };
  for (std::uint64_t t = 0; t < 5; ++t) EXPECT_EQ(patient_step(t), 0);
  EXPECT_TRUE(eventually([&] { return !session.session.stage(2).stats().ignored.empty(); }));
  go.set_value();
  for (std::uint64_t t = 5; t < 20; ++t) EXPECT_EQ(patient_step(t), 0) << "step " << t;
  EXPECT_THROW(patient_step(20), OutOfRange);
}

TEST(StageChainTest, ANewLifeBeginsWithoutWhatTheOldOneHadTaken) {
  std::promise<void> go;
  GraphBuilder b;
  ChainSession session(b, difference_of_two_stages(b).name(),
                       {numbers("x", 20), numbers("z", 20, 5, go.get_future().share())});
  {
    const PrefetchHook hook(session.session, 5);
    EXPECT_THROW(session.step(5, 50ms), DeadlineExceeded);
    go.set_value();
  }
  const PrefetchHook hook(session.session, 10);
  for (std::uint64_t t = 10; t < 20; ++t) EXPECT_EQ(session.step(t), 0) << "step " << t;
}

TEST(StageChainTest, RecordsWithoutRowsGoThroughAsOthersDo) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {-1, 3}),
               text = b.placeholder("text", DType::String, {-1});
  const Nested<Output> above =
      staged(b, Nested<Output>::dict({{"x", b.add(x, x)}, {"text", text}}), {.name = "above"});
  const Output hashed =
      b.op("StringToHashBucketFast", {above["text"].leaf()}, {{"num_buckets", std::int64_t{1000}}}, "hashed");
  const Nested<Output> below = staged(b, Nested<Output>::list({b.relu(above["x"].leaf()), hashed}));
  const Output y = b.relu(below[0].leaf()), ids = b.add(below[1].leaf(), below[1].leaf());
  const Graph graph = import_graph(b.graph());
  const RecordSource source{
      {"x", "text"}, [](std::uint64_t ticket) {
        const auto rows = static_cast<std::int64_t>(ticket % 3);
        Batch batch = batch_of(Tensor::zeros(DType::Float32, {rows, 3}));
        batch.tensors.push_back(
            Tensor::strings(Shape{rows}, std::vector<std::string>(static_cast<std::size_t>(rows), "word")));
        batch.rows = rows;
        return batch;
      }};
  Runtime runtime{{}};
  StagedSession session(graph, stages_of(graph), {y.name(), ids.name()}, {}, {source}, {.compile = {}},
                        runtime);
  const PrefetchHook hook(session);
  for (std::uint64_t t = 0; t < 9; ++t) {
    StepParams params;
    params.step = t;
    const StepResult result = session.run(params, {}, soon());
    const auto rows = static_cast<std::int64_t>(t % 3);
    EXPECT_EQ(result.fetches[0].shape(), (Shape{rows, 3}));
    EXPECT_EQ(result.fetches[1].shape(), (Shape{rows}));
  }
}

TEST(StageChainTest, AStepThatFeedsOtherValuesThanTheFirstIsRefusedAndTakesNothing) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {});
  const Output other = b.op("PlaceholderWithDefault", {b.constant(Tensor::scalar(100.0F))},
                            {{"dtype", DType::Float32}, {"shape", Shape{}}}, "other");
  const Output y = b.add(staged(b, Nested<Output>(b.add(x, x))).leaf(), other);
  const Graph graph = import_graph(b.graph());
  Runtime runtime{{}};
  const auto run = [](StagedSession& session, const SubgraphRunner::Values& feeds) {
    return session.run({}, feeds, soon()).fetches[0].data<float>()[0];
  };
  for (const bool fed_at_first : {true, false}) {
    StagedSession session(graph, stages_of(graph), {y.name()}, {}, {numbers("x", 20)}, {.compile = {}},
                          runtime);
    const PrefetchHook hook(session);
    const SubgraphRunner::Values seven{{"other", Tensor::scalar(7.0F)}}, none;
    EXPECT_EQ(run(session, fed_at_first ? seven : none), fed_at_first ? 7 : 100);
    EXPECT_THROW(run(session, fed_at_first ? none : seven), InvalidArgument);
    EXPECT_EQ(message_of([&] {
                run(session, {{"x", Tensor::scalar(7.0F)}});
              }),
              "'x' comes with records: a step cannot be fed with it");
    EXPECT_EQ(run(session, fed_at_first ? seven : none), fed_at_first ? 9 : 102);
  }
}

TEST(StageChainTest, AClosedChainDrainsWhatItsFirstStageHasBegun) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {});
  const Output above = staged(b, Nested<Output>(b.add(x, x)), {.name = "above", .capacity = 6}).leaf();
  const Output below = staged(b, Nested<Output>(b.add(above, above)), {.name = "below"}).leaf();
  std::atomic<int> begun{0};
  const RecordSource source{{"x"}, [&](std::uint64_t ticket) {
                              ++begun;
                              return numbers("x", UINT64_MAX).read(ticket);
                            }};
  ChainSession session(b, b.relu(below).name(), {source});
  const PrefetchHook hook(session.session);
  Stage &first = session.session.stage(0), &second = session.session.stage(1);
  ASSERT_TRUE(
      eventually([&] { return begun == 9 && first.stats().ready == 6 && second.stats().ready == 1; }));
  session.session.close();
  std::uint64_t steps = 0;
  EXPECT_THROW(for (;; ++steps) EXPECT_EQ(session.step(steps), 4.0F * static_cast<float>(steps)), OutOfRange);
  EXPECT_EQ(steps, 9U) << "those that were ready, and one in the hands of each";
}

TEST(StageChainTest, ManyLivesOfAChainBeginWithTheirFirstRecordAndEndWithoutAThreadInside) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, {});
  const Output above = staged(b, Nested<Output>(b.add(x, x)), {.name = "above", .num_threads = 2}).leaf();
  const Output below = staged(b, Nested<Output>(b.add(above, above)), {.name = "below"}).leaf();
  const Output last = staged(b, Nested<Output>(b.add(below, below)), {.name = "last"}).leaf();
  const Output y = b.relu(last);
  const Graph graph = import_graph(b.graph());
  for (int session_number = 0; session_number < 10; ++session_number) {
    ChainSession session(graph, y.name(), {numbers("x", UINT64_MAX)}, {});
    for (std::uint64_t life = 0; life < 30; ++life) {
      const PrefetchHook hook(session.session, life);
      if (life % 3 == 0) continue;
      ASSERT_EQ(session.step(life), 8.0F * static_cast<float>(life)) << "life " << life;
    }
    session.session.start(7);  // and ends while all are at work
  }
}

}  // namespace
}  // namespace braid::testing
