// Groups of pipelines (strategy.mesh of PIPELINE), ranks that are threads, against the run of one process
// with as many parts, which differs in the order of sums alone.
#include "worker/strategies/pipeline_groups.h"

#include <gmock/gmock.h>

#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/tensor_runs.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct TrainedModel {
  const char* name;
  const char* model;
  std::shared_ptr<const Table> (*rows)();
};

const TrainedModel kMlpRows{"mlp", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4",
                            [] { return made_images(48, 6); }};
const TrainedModel kTransformerRows{
    "transformer", "name: 'transformer' hidden: 8 hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12",
    [] { return made_sequences(48); }};
const TrainedModel kDinRows{
    "din_sparse", "name: 'din' hidden: 8 hidden: 4 embedding_dim: 4 hash_buckets: 9 sparse_tables: true",
    [] { return made_histories(48); }};
const TrainedModel kWideDeepRows{"wide_deep",
                                 "name: 'wide_deep' hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30 "
                                 "sparse_tables: true",
                                 [] { return made_rows(48); }};

std::string job_of(const TrainedModel& of, int steps) {
  return pipeline_job(of.model, steps, "kind: MOMENTUM learning_rate: 0.02");
}

struct Groups {
  int data = 1, stages = 1;
};

Settings in_groups(const Groups& of, int parts = 2) {
  return pipelined(parts) + Settings{"strategy.mesh.data=" + std::to_string(of.data),
                                     "strategy.mesh.pipeline=" + std::to_string(of.stages)};
}

/// Losses that all have alike, and each stage's variables, which are the same in all groups.
RankRun run_groups(const proto::Job& job, std::shared_ptr<const Table> rows, RunStart start = RunStart::New) {
  const auto& mesh = job.strategy().mesh();
  const auto runs = run_ranks(job, static_cast<int>(mesh.data() * mesh.pipeline()), std::move(rows), start);
  RankRun all = runs[0];
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    EXPECT_EQ(runs[rank].error, "") << rank;
    EXPECT_EQ(runs[rank].losses, runs[0].losses) << rank;
    for (const auto& [name, values] : runs[rank].values) {
      const auto [had, is_new] = all.values.try_emplace(name, values);
      if (rank >= mesh.pipeline()) {
        EXPECT_EQ(values, had->second) << name << " of rank " << rank;
      }
    }
  }
  return all;
}

void expect_close(const RankRun& cut, const RankRun& local, double most = 1e-6) {
  ASSERT_EQ(cut.losses.size(), local.losses.size());
  for (std::size_t i = 0; i < local.losses.size(); ++i)
    EXPECT_NEAR(cut.losses[i], local.losses[i], most * std::max(1.0F, local.losses[i])) << "step " << i;
  EXPECT_EQ(cut.values.size(), local.values.size());
  for (const auto& [name, values] : local.values) {
    ASSERT_TRUE(cut.values.contains(name)) << name;
    const auto& other = cut.values.at(name);
    ASSERT_EQ(values.size(), other.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(other[i], values[i], 10 * most) << name;
  }
}

class PipelineGroupsTest : public ::testing::TestWithParam<TrainedModel> {};

TEST_P(PipelineGroupsTest, LossesAndVariablesAreNearOneProcess) {
  const TrainedModel& of = GetParam();
  const auto rows = of.rows();
  for (const auto& [groups, parts] : {std::pair(Groups{2, 2}, 2), {Groups{2, 1}, 3}, {Groups{3, 2}, 1}}) {
    SCOPED_TRACE(std::to_string(groups.data) + " groups of " + std::to_string(groups.stages));
    const RankRun local = run_leader(job_with(job_of(of, 20), accumulated(parts)), 1, rows);
    expect_close(run_groups(job_with(job_of(of, 20), in_groups(groups, parts)), rows), local);
  }
}

TEST_P(PipelineGroupsTest, OneGroupHasTheBitsOfAPipeline) {
  const TrainedModel& of = GetParam();
  const auto rows = of.rows();
  expect_equal(run_groups(job_with(job_of(of, 6), in_groups({1, 3})), rows),
               run_pipeline(job_with(job_of(of, 6), pipelined(2)), 3, rows));
}

TEST_P(PipelineGroupsTest, TheSameMeshHasTheSameBits) {
  const TrainedModel& of = GetParam();
  const auto rows = of.rows();
  const proto::Job job = job_with(job_of(of, 6), in_groups({2, 2}));
  expect_equal(run_groups(job, rows), run_groups(job, rows));
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineGroupsTest,
                         ::testing::Values(kMlpRows, kTransformerRows, kDinRows, kWideDeepRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PipelineGroupsMethodsTest, ClippingSeesTheNormOfTheWholeModelOnce) {
  const auto rows = kDinRows.rows();
  const Settings clipped{"optimizer.clip_norm=0.05"};
  const RankRun local = run_leader(job_with(job_of(kDinRows, 10), accumulated(2) + clipped), 1, rows);
  const RankRun plain = run_leader(job_with(job_of(kDinRows, 10), accumulated(2)), 1, rows);
  EXPECT_NE(local.losses, plain.losses) << "the norm is reached";
  expect_close(run_groups(job_with(job_of(kDinRows, 10), in_groups({2, 2}) + clipped), rows), local);
}

/// As workers of ALLREDUCE that accumulate.
TEST(PipelineGroupsMethodsTest, GroupsDrawDifferentNumbers) {
  const TrainedModel dropout{"", "name: 'mlp' hidden: 16 hidden: 12 hidden: 8 classes: 4 dropout: 0.3",
                             kMlpRows.rows};
  const auto rows = dropout.rows();
  const RankRun workers = run_leader(
      job_with(job_of(dropout, 10), Settings{"strategy.kind=ALLREDUCE"} + accumulated(2)), 2, rows);
  expect_close(run_groups(job_with(job_of(dropout, 10), in_groups({2, 2})), rows), workers);
}

TEST(PipelineGroupsMethodsTest, HalvesOnTheWireAreNear) {
  const auto rows = kMlpRows.rows();
  const RankRun local = run_leader(job_with(job_of(kMlpRows, 10), accumulated(2)), 1, rows);
  const RankRun halves =
      run_groups(job_with(job_of(kMlpRows, 10), in_groups({2, 2}) + Settings{"strategy.wire=BF16"}), rows);
  EXPECT_NE(halves.losses, run_groups(job_with(job_of(kMlpRows, 10), in_groups({2, 2})), rows).losses);
  expect_close(halves, local, 2e-3);
}

TEST(PipelineGroupsMethodsTest, BucketsOfEachStageMeetThoseOfOthers) {
  const auto rows = kMlpRows.rows();
  const RankRun local = run_leader(job_with(job_of(kMlpRows, 10), accumulated(2)), 1, rows);
  for (const char* bytes : {"1", "600", "100000"})
    expect_close(
        run_groups(job_with(job_of(kMlpRows, 10),
                            in_groups({2, 2}) + Settings{std::string("strategy.bucket_bytes=") + bytes}),
                   rows),
        local);
}

TEST(PipelineGroupsCheckpointTest, AnyMeshAndOneProcessGoOn) {
  const auto rows = kTransformerRows.rows();
  RankRun whole = run_leader(job_with(job_of(kTransformerRows, 20), accumulated(2)), 1, rows);
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 10);
  const auto settings = [](const Groups& of) {
    return of.data * of.stages == 1
               ? accumulated(2) + Settings{"strategy.mesh.data=1", "strategy.mesh.pipeline=1"}
               : in_groups(of);
  };
  for (const Groups first : {Groups{1, 1}, {1, 2}, {2, 2}})
    for (const Groups second : {Groups{1, 1}, {1, 3}, {2, 1}, {2, 2}}) {
      SCOPED_TRACE(std::to_string(first.data) + "x" + std::to_string(first.stages) + " to " +
                   std::to_string(second.data) + "x" + std::to_string(second.stages));
      TempDir directory;
      const Settings saved{"checkpoint.every_steps=10", "checkpoint.directory=" + directory.path().string()};
      run_groups(job_with(job_of(kTransformerRows, 10), settings(first) + saved), rows);
      expect_close(run_groups(job_with(job_of(kTransformerRows, 20), settings(second) + saved), rows,
                              RunStart::Resume),
                   whole);
    }
}

TEST(PipelineGroupsPlanTest, SaysWhatGroupsExchange) {
  EXPECT_THAT(
      plan_text(job_with(job_of(kMlpRows, 1), in_groups({2, 2})), 4, *kMlpRows.rows()),
      AllOf(HasSubstr("pipeline: 2 groups of 2 stages by the cost model, 2 micro-batches, ONE_F_ONE_B"),
            HasSubstr("33.3 % by (p - 1) / (m + p - 1)"), HasSubstr("between groups: "),
            HasSubstr("of gradients in 1 sum\n")));
  EXPECT_THAT(plan_text(job_with(job_of(kMlpRows, 1), pipelined(2)), 2, *kMlpRows.rows()),
              ::testing::Not(HasSubstr("groups")));
}

TEST(PipelineGroupsPlanTest, RowsThatAreNotCutEvenlyAreRefused) {
  EXPECT_THAT(
      error_of_pipeline(job_with(job_of(kMlpRows, 1), in_groups({2, 1}, 8)), 2, kMlpRows.rows()),
      HasSubstr("strategy.mesh has 2 groups of 8 micro-batches (strategy.pipeline): a batch of 24 rows"));
}

VariableGradient gradient(const char* name, std::int64_t elements, bool rows = false) {
  VariableGradient made;
  made.variable.name = name;
  made.variable.dtype = DType::Float32;
  made.variable.shape = Shape{elements};
  if (rows) made.slices.emplace();
  return made;
}

/// Stage 0 has a, b and a table, stage 1 has c; buckets of two variables.
TEST(PipelineGroupsPlanTest, StagesWithLessExchangeAsOften) {
  const GroupExchanges found = plan_group_exchanges(
      {gradient("a", 3), gradient("t", 9, true), gradient("b", 2), gradient("b2", 2), gradient("c", 4)},
      {0, 0, 0, 0, 1}, 2, 16);
  EXPECT_THAT(found.bytes, ElementsAre(28, 16));
  EXPECT_THAT(found.buckets, ElementsAre(2, 1));
  EXPECT_THAT(found.widths, ElementsAre(2, 1));
  EXPECT_EQ(found.tables, 1u);
}

}  // namespace
}  // namespace braid::worker
