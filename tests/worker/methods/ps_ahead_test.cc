// Rows pulled ahead in whole runs: the same losses and values, bit for bit, as without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/input/formats/readers.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

using Strings = std::vector<std::string>;

constexpr int kStepsAhead = 20;

proto::Job job_ahead(const Strings& set) {
  Strings all{"strategy.kind=PS", "model.sparse_tables=true"};
  all.insert(all.end(), set.begin(), set.end());
  return job_with(wide_deep_job(kStepsAhead), all);
}

/// Rows of which all have the same ids.
std::shared_ptr<const Table> rows_of_one_id(int rows) {
  Tensor dense(DType::Float32, Shape{rows, 2}), sparse(DType::Int64, Shape{rows, 2}),
      label(DType::Float32, Shape{rows});
  for (int i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    dense.data<float>()[2 * at] = static_cast<float>(i % 7) / 7;
    dense.data<float>()[2 * at + 1] = static_cast<float>(i % 5) / 5;
    sparse.data<std::int64_t>()[2 * at] = sparse.data<std::int64_t>()[2 * at + 1] = 3;
    label.data<float>()[at] = static_cast<float>(i % 2);
  }
  return table_of_arrays({{"dense", dense}, {"sparse", sparse}, {"label", label}});
}

ServedRun expect_same_ahead(const Strings& set, int workers, int servers,
                            const std::shared_ptr<const Table>& rows) {
  Strings with = set;
  with.push_back("strategy.ps.pull_ahead=true");
  const ServedRun ahead = run_with_servers(job_ahead(with), workers, servers, rows),
                  its = run_with_servers(job_ahead(set), workers, servers, rows);
  for (std::size_t w = 0; w < ahead.workers.size(); ++w) {
    EXPECT_EQ(ahead.workers[w].error, "");
    EXPECT_EQ(its.workers[w].error, "");
    EXPECT_EQ(ahead.workers[w].losses.size(), std::size_t{kStepsAhead});
    EXPECT_EQ(ahead.workers[w].losses, its.workers[w].losses) << "worker " << w;
  }
  EXPECT_EQ(counted(its, "rows_repaired"), 0U);
  return ahead;
}

TEST(PsAheadTest, AnyNumberOfWorkersAndServersHasTheSameBits) {
  for (const int workers : {1, 2, 3})
    for (const int servers : {1, 2}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(servers) + " servers");
      const ServedRun run = expect_same_ahead({}, workers, servers, made_rows(48));
      EXPECT_GT(counted(run, "rows_repaired"), 0U) << "few ids: each round changes rows that were pulled";
    }
}

TEST(PsAheadTest, AnyOptimizerHasTheSameBits) {
  for (const std::string optimizer : {"SGD", "MOMENTUM", "ADAGRAD", "ADAM", "RMSPROP", "FTRL", "ADAMW"}) {
    SCOPED_TRACE(optimizer);
    expect_same_ahead({"optimizer.kind=" + optimizer}, 2, 2, made_rows(48));
  }
}

TEST(PsAheadTest, WorkersMayHaveDifferentNumbersOfRowsAndAllIdsMayBeEqual) {
  expect_same_ahead({"input.global_batch_size=25"}, 3, 2, made_rows(75));
  expect_same_ahead({"input.global_batch_size=3"}, 3, 2, made_rows(48));
  // The other server has a key of no step.
  expect_same_ahead({}, 2, 2, rows_of_one_id(48));
}

TEST(PsAheadTest, WhateverElseAStepDoesHasTheSameBits) {
  for (const Strings& set :
       {Strings{"strategy.bucket_bytes=100"}, Strings{"runtime.steps_in_flight=1"},
        Strings{"runtime.steps_in_flight=4"}, Strings{"streams.count=3", "streams.policy=COST"},
        Strings{"staging.auto_stage=true"}, Strings{"runtime.check_numerics=true"},
        Strings{"optimizer.clip_worker_norm=0.05"}, Strings{"optimizer.accumulate_steps=2"}}) {
    SCOPED_TRACE(set.front());
    expect_same_ahead(set, 2, 2, made_rows(48));
  }
}

}  // namespace
}  // namespace braid::worker
