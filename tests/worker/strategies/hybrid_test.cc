// HYBRID on random small models and tables, its ranks as threads over local communicators: against one
// process, and all plans against each other, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "tests/worker/strategies/hybrid_runs.h"
#include "worker/job/job.h"
#include "worker/strategies/strategy.h"
#include "worker/strategies/table_shard.h"

namespace braid::worker {
namespace {

/// So many random models in worlds of up to two ranks. Larger ones take longer for each, and have fewer.
int trials(int world, int most) { return world <= 2 ? most : 2 * most / 5; }

class HybridRandomTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { register_strategy_ops(); }
};

TEST_P(HybridRandomTest, PlansHaveTheSameBitsAndOneProcessTheSameNumbers) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(world));
  for (int trial = 0; trial < trials(world, 25); ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const std::string optimizer =
        std::vector<std::string>{"SGD", "ADAGRAD", "ADAM"}[static_cast<std::size_t>(draw(random, 0, 2))];
    SCOPED_TRACE("trial " + std::to_string(trial) + " " + optimizer);
    const Outcome local = run_alone(model, job_of(optimizer, "LOCAL", ""), world, batches, random);
    std::optional<Outcome> first;
    for (const std::string& plan :
         {all_tables("ROW"), all_tables("TABLE"), all_tables("COLUMN"), all_tables("REPLICATE"),
          "table { match: 't1' plan: COLUMN } table { match: 't2' plan: ROW }" + std::string()}) {
      if (plan.find("t2") != std::string::npos && model.tables.size() < 2) continue;
      const Outcome its = run_group(model, job_of(optimizer, "HYBRID", plan), world, batches, random);
      if (!first) first = its;
      ASSERT_EQ(its.losses, first->losses) << plan;
      ASSERT_EQ(its.tables, first->tables) << plan;
    }
    ASSERT_NO_FATAL_FAILURE(expect_near(*first, local, world, optimizer));
  }
}

TEST_P(HybridRandomTest, IdsAsTheBatchHasThemGiveTheSameNumbers) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(100 + world));
  int dense_sums = 0;
  for (int trial = 0; trial < trials(world, 25); ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const std::string optimizer =
        std::vector<std::string>{"SGD", "ADAGRAD", "ADAM"}[static_cast<std::size_t>(draw(random, 0, 2))];
    SCOPED_TRACE("trial " + std::to_string(trial) + " " + optimizer);
    const Outcome local = run_alone(model, job_of(optimizer, "LOCAL", ""), world, batches, random);
    std::optional<Outcome> whole;
    for (const std::string& plan :
         {all_tables("TABLE"), all_tables("COLUMN"), all_tables("REPLICATE"), std::string(),
          "table { match: 't1' plan: ROW } table { match: '.*' plan: TABLE }" + std::string(),
          "table { match: 't1' plan: COLUMN } table { match: '.*' plan: TABLE }" + std::string()}) {
      const proto::Job job = job_of(optimizer, "HYBRID", "ids: ALL " + plan);
      const Outcome its = run_group(model, job, world, batches, random, "CPU");
      ASSERT_NO_FATAL_FAILURE(expect_near(its, local, world, optimizer)) << plan;
      dense_sums += its.sums_densely ? 1 : 0;
      if (plan.empty()) continue;  // a mix of its own each time
      const Outcome again = run_group(model, job, world, batches, random, "CPU");
      ASSERT_EQ(its.losses, again.losses);
      ASSERT_EQ(its.tables, again.tables);
      if (plan.find("ROW") != std::string::npos || plan.find("REPLICATE") != std::string::npos)
        continue;  // summed for each worker first
      if (!whole) whole = its;
      ASSERT_EQ(its.losses, whole->losses) << plan;
      ASSERT_EQ(its.tables, whole->tables) << plan;
    }
  }
  EXPECT_TRUE(dense_sums > 0 || world < 4);  // lists of few workers are shorter
}

/// In mixed precision what a layer reads travels as it is read. Weights of ids stay as they are.
TEST_P(HybridRandomTest, SumsAndTheirGradientsTravelAsHalves) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(700 + world));
  int halves = 0, floats = 0;
  for (int trial = 0; trial < trials(world, 20); ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    SCOPED_TRACE("trial " + std::to_string(trial));
    proto::Job job = job_of("SGD", "LOCAL", "");
    job.mutable_runtime()->set_precision(proto::Runtime::BF16);
    const Outcome local = run_alone(model, job, world, batches, random);
    for (const std::string& plan : {all_tables("TABLE"), all_tables("COLUMN")}) {
      job.mutable_strategy()->CopyFrom(job_of("SGD", "HYBRID", "ids: ALL " + plan).strategy());
      const Outcome its = run_group(model, job, world, batches, random, "CPU");
      for (std::size_t s = 0; s < kSteps; ++s)
        ASSERT_NEAR(its.losses[s], local.losses[s], 0.02 * (1 + local.losses[s])) << plan << " step " << s;
      halves += its.sends_halves;
      floats += its.sends_floats;
    }
  }
  // Floats are gradients of means, weights, and what travels beside them.
  EXPECT_GT(halves, floats / 4);
}

/// Also where a rank has none of a table's rows, and where tables beside them are on all workers.
TEST_P(HybridRandomTest, SumsOfOneColumnTravelAsHalvesAlone) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(800 + world));
  for (int trial = 0; trial < trials(world, 10); ++trial) {
    const Model model = random_sums(random);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    SCOPED_TRACE("trial " + std::to_string(trial));
    for (const std::string& plan :
         {all_tables("TABLE"), all_tables("COLUMN"),
          "table { match: 't1' plan: REPLICATE } table { match: '.*' plan: TABLE }" + std::string()}) {
      proto::Job job = job_of("SGD", "HYBRID", "ids: ALL " + plan);
      job.mutable_runtime()->set_precision(proto::Runtime::BF16);
      const Outcome its = run_group(model, job, world, batches, random, "CPU");
      EXPECT_EQ(its.sends_floats, 0) << plan;
      EXPECT_GT(its.sends_halves, 0) << plan;
    }
  }
}

/// Also in exchanges of a few bytes each, of two nodes each.
TEST_P(HybridRandomTest, IdsThatTravelAStepAheadChangeNoBits) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(400 + world));
  for (int trial = 0; trial < trials(world, 15); ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    SCOPED_TRACE("trial " + std::to_string(trial));
    for (const std::string& plan :
         {all_tables("TABLE"), all_tables("COLUMN"),
          "table { match: 't1' plan: ROW } table { match: '.*' plan: TABLE }" + std::string(),
          "table { match: 't1' plan: REPLICATE } table { match: '.*' plan: COLUMN }" + std::string()}) {
      proto::Job job = job_of("ADAM", "HYBRID", "ids: ALL " + plan);
      const Outcome ahead = run_group(model, job, world, batches, random, "CPU");
      job.mutable_strategy()->set_bucket_bytes(16);
      const Outcome in_pieces = run_group(model, job, world, batches, random, "CPU");
      job.mutable_strategy()->clear_bucket_bytes();
      fill_job_defaults(job);
      job.mutable_staging()->set_enabled(false);
      const Outcome in_step = run_group(model, job, world, batches, random, "CPU");
      EXPECT_FALSE(in_step.sends_ahead);
      EXPECT_EQ(ahead.sends_ahead,
                world > 1 && (model.tables.size() > 1 || plan.find("t1") == std::string::npos));
      ASSERT_EQ(ahead.losses, in_step.losses) << plan;
      ASSERT_EQ(ahead.tables, in_step.tables) << plan;
      EXPECT_TRUE(in_pieces.taken_apart > 0 || !ahead.sends_ahead) << plan;
      ASSERT_EQ(in_pieces.losses, in_step.losses) << plan;
      ASSERT_EQ(in_pieces.tables, in_step.tables) << plan;
    }
  }
}

/// As between GPUs: each worker sends each id once, and its sums, as lists do.
TEST_P(HybridRandomTest, DistinctRowsOfWholeTablesHaveTheBitsOfLists) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(500 + world));
  for (int trial = 0; trial < trials(world, 25); ++trial) {
    const Model model = random_gathers(random);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const std::string optimizer = std::vector<std::string>{
        "SGD", "ADAGRAD", "ADAM", "ADAGRAD row_wise: true"}[static_cast<std::size_t>(draw(random, 0, 3))];
    SCOPED_TRACE("trial " + std::to_string(trial) + " " + optimizer);
    const proto::Job job = job_of(optimizer, "HYBRID", all_tables("TABLE"));
    const Outcome lists = run_group(model, job, world, batches, random);
    const Outcome its = run_group(model, job, world, batches, random, "CPU", true);
    EXPECT_FALSE(lists.sends_distinct);
    EXPECT_EQ(its.sends_distinct, world > 1);
    EXPECT_EQ(its.sends_ahead, world > 1);
    ASSERT_EQ(its.losses, lists.losses);
    ASSERT_EQ(its.tables, lists.tables);
  }
}

/// Beside tables that are pooled, read twice, spread by rows or columns, or on all workers.
TEST_P(HybridRandomTest, DistinctRowsBesideOtherTablesGiveTheSameNumbers) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(600 + world));
  int distinct = 0;
  for (int trial = 0; trial < trials(world, 25); ++trial) {
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    SCOPED_TRACE("trial " + std::to_string(trial));
    const Outcome local = run_alone(model, job_of("ADAGRAD", "LOCAL", ""), world, batches, random);
    for (const std::string& plan :
         {std::string(), all_tables("TABLE"),
          "table { match: 't1' plan: ROW } table { match: '.*' plan: TABLE }" + std::string(),
          "table { match: 't1' plan: COLUMN } table { match: '.*' plan: TABLE }" + std::string()}) {
      const Outcome its =
          run_group(model, job_of("ADAGRAD", "HYBRID", plan), world, batches, random, "CPU", true);
      ASSERT_NO_FATAL_FAILURE(expect_near(its, local, world, "ADAGRAD")) << plan;
      distinct += its.sends_distinct ? 1 : 0;
    }
  }
  EXPECT_TRUE(distinct > 0 || world == 1);
}

/// What the planner takes is measured, so each run may have another mix.
TEST_P(HybridRandomTest, ThePlannedMixHasTheBitsOfOtherPlans) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(300 + world));
  for (int trial = 0; trial < trials(world, 10); ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const Outcome rows =
        run_group(model, job_of("ADAGRAD", "HYBRID", all_tables("ROW")), world, batches, random);
    for (const char* plan : {"", "memory_bytes: 100000", "table { match: 't1' plan: COLUMN }"}) {
      const Outcome its = run_group(model, job_of("ADAGRAD", "HYBRID", plan), world, batches, random);
      ASSERT_EQ(its.losses, rows.losses) << plan;
      ASSERT_EQ(its.tables, rows.tables) << plan;
    }
  }
}

TEST_P(HybridRandomTest, RowWiseAdagradGivesTheSameNumbersWhereverRowsAre) {
  const int world = GetParam();
  Random random(static_cast<unsigned>(200 + world));
  const std::string optimizer = "ADAGRAD row_wise: true";
  int differ = 0;
  for (int trial = 0; trial < trials(world, 15); ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const Outcome local = run_alone(model, job_of(optimizer, "LOCAL", ""), world, batches, random);
    const Outcome by_element = run_alone(model, job_of("ADAGRAD", "LOCAL", ""), world, batches, random);
    differ += local.losses == by_element.losses ? 0 : 1;  // rows of one number do not
    for (const std::string& plan :
         {all_tables("ROW"), all_tables("TABLE"), all_tables("REPLICATE"), "ids: ALL " + all_tables("TABLE")})
      ASSERT_NO_FATAL_FAILURE(expect_near(
          run_group(model, job_of(optimizer, "HYBRID", plan), world, batches, random), local, world, "SGD"))
          << plan;
  }
  EXPECT_GT(differ, trials(world, 15) / 3);
}

std::string random_plans(Random& random, const Model& model) {
  std::string plans;
  for (const std::string& table : model.tables) {
    const std::string plan = std::vector<std::string>{
        "ROW", "TABLE", "COLUMN", "REPLICATE"}[static_cast<std::size_t>(draw(random, 0, 3))];
    plans += "table { match: '" + table + "' plan: " + plan;
    if (plan == "ROW" && draw(random, 0, 1) == 1)
      plans += " hot_rows: " + std::to_string(draw(random, 1, 30));
    plans += " } ";
  }
  return plans;
}

/// So many graphs in all as the variable BRAID_RANDOM_GRAPHS says.
TEST(HybridGraphsTest, AnyMixOfPlansHasTheSameBits) {
  register_strategy_ops();
  const char* const many = std::getenv("BRAID_RANDOM_GRAPHS");
  const int trials = many ? std::atoi(many) : 30;
  Random random(7);
  for (int trial = 0; trial < trials; ++trial) {
    const int world = std::vector{2, 3, 4, 8}[static_cast<std::size_t>(draw(random, 0, 3))];
    const Model model = random_model(random, world);
    const Batches batches = random_batches(random, model, kRowsOfRank * world);
    const std::string plans = random_plans(random, model);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", " + std::to_string(world) + " ranks: " + plans);
    const Outcome rows =
        run_group(model, job_of("ADAM", "HYBRID", all_tables("ROW")), world, batches, random);
    const Outcome its = run_group(model, job_of("ADAM", "HYBRID", plans), world, batches, random);
    for (const float loss : its.losses) ASSERT_TRUE(std::isfinite(loss));
    ASSERT_EQ(its.losses, rows.losses);
    ASSERT_EQ(its.tables, rows.tables);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HybridRandomTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(TableShardTest, EveryRowIsOnOneRankInARowOfItsOwn) {
  for (const TablePlan plan : {TablePlan::Row, TablePlan::Table})
    for (const int world : {1, 2, 3, 7})
      for (const std::int64_t rows : {1, 2, 6, 100}) {
        std::vector<int> seen(static_cast<std::size_t>(rows));
        for (int rank = 0; rank < world; ++rank) {
          const TableShard shard{.name = "t",
                                 .former_name = {},
                                 .rows = rows,
                                 .dim = 2,
                                 .plan = plan,
                                 .owner = world - 1,
                                 .rank = rank,
                                 .world = world,
                                 .init = {},
                                 .slots = {},
                                 .slot_initials = {},
                                 .hot = {}};
          std::int64_t last = -1;
          shard.for_each_row([&](std::int64_t row, std::int64_t local) {
            ++seen[static_cast<std::size_t>(row)];
            EXPECT_TRUE(shard.holds(row));
            EXPECT_EQ(shard.local_row(row), local);
            EXPECT_GT(local, last);
            EXPECT_LT(local, shard.local_rows());
            last = local;
          });
          if (plan == TablePlan::Row) {
            EXPECT_EQ(shard.local_rows(), (rows + world - 1) / world);
          }
        }
        EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(rows), 1));
      }
}

}  // namespace
}  // namespace braid::worker
