// Batch normalisation over the rows of all workers: as one worker that has them all.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/input/formats/readers.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {
namespace {

std::shared_ptr<const Table> images(int rows) {
  std::mt19937 random(5);
  Tensor image(DType::Float32, Shape{rows, 12, 12, 1}), label(DType::Int64, Shape{rows});
  for (float& x : image.data<float>()) x = std::uniform_real_distribution<float>()(random);
  for (int i = 0; i < rows; ++i) label.data<std::int64_t>()[static_cast<std::size_t>(i)] = i % 3;
  return table_of_arrays({{"image", image}, {"label", label}});
}

proto::Job normalizing_job(int rows, std::vector<std::string> set) {
  set.insert(set.end(), {"strategy.kind=ALLREDUCE", "input.global_batch_size=" + std::to_string(rows)});
  return job_with(R"(name: "norms" seed: 3 steps: 4
    model { name: "resnet18" hidden: 4 hidden: 4 hidden: 8 hidden: 8 classes: 3 }
    input { format: NPY train_files: "image.npy" shuffle: false }
    optimizer { kind: SGD learning_rate: 0.01 }
    runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false }
    strategy { bucket_bytes: 4000 })",
                  set);
}

TEST(SyncBatchNormTest, SeveralWorkersAreAsOne) {
  for (const int rows : {12, 11}) {
    const auto table = images(4 * rows);
    const RankRun alone = run_leader(normalizing_job(rows, {}), 1, table);
    for (const int world : {2, 3}) {
      const auto runs = run_ranks(normalizing_job(rows, {"strategy.sync_batch_norm=true"}), world, table);
      for (const RankRun& run : runs) {
        ASSERT_EQ(run.error, "");
        EXPECT_EQ(run.values, runs[0].values) << "stored statistics too";
      }
      // Float32 through 20 layers.
      expect_near(runs[0], alone, 2e-5);
      EXPECT_NEAR(runs[0].losses[0], alone.losses[0], 1e-6);
    }
    const RankRun own = run_leader(normalizing_job(rows, {}), 2, table);
    EXPECT_GT(std::fabs(own.losses[0] - alone.losses[0]), 1e-4) << "each by its own rows is something else";
  }
}

TEST(SyncBatchNormTest, OfOneWorkerItIsThePlainOne) {
  const auto table = images(24);
  expect_near(run_leader(normalizing_job(12, {"strategy.sync_batch_norm=true"}), 1, table),
              run_leader(normalizing_job(12, {}), 1, table), 1e-6);
}

}  // namespace
}  // namespace braid::worker
