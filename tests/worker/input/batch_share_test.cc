#include "worker/input/batch_share.h"

#include <gtest/gtest.h>

#include "proto/job.pb.h"
#include "tests/support/expect_error.h"

namespace braid::worker {
namespace {

proto::Job job_of(std::int64_t rows) {
  proto::Job job;
  job.mutable_input()->set_global_batch_size(rows);
  return job;
}

TEST(BatchShareTest, PartsFollowEachOtherAndDifferByOneRowAtMost) {
  for (const std::int64_t rows : {1, 2, 3, 16, 17, 100, 101})
    for (int world = 1; world <= 9 && world <= rows; ++world) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const RowPart part = row_part(rows, rank, world);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.rows, rows / world);
        EXPECT_LE(part.rows, (rows + world - 1) / world);
        next += part.rows;
      }
      EXPECT_EQ(next, rows);
    }
}

TEST(BatchShareTest, WeightedMeansOfThePartsAverageToTheMeanOfAllRows) {
  for (const int world : {2, 3, 5, 16}) {
    double mean = 0, of_all = 0;
    for (int row = 0; row < 17; ++row) of_all += row * row / 17.0;
    for (int rank = 0; rank < world; ++rank) {
      const BatchShare share = batch_share(job_of(17), rank, world);
      const RowPart part = row_part(17, rank, world);
      double of_part = 0;
      for (std::int64_t row = part.first; row < part.first + part.rows; ++row)
        of_part += static_cast<double>(row * row) / static_cast<double>(part.rows);
      mean += double{share.weight()} * of_part / world;
      EXPECT_FALSE(share.even());
      EXPECT_NE(share.weight(), 1.0F) << "all ranks have the same graph";
    }
    EXPECT_NEAR(mean, of_all, 1e-5);
  }
}

TEST(BatchShareTest, EvenPartsHaveNoWeight) {
  const BatchShare share = batch_share(job_of(18), 1, 3);
  EXPECT_TRUE(share.even());
  EXPECT_EQ(share.weight(), 1.0F);
  EXPECT_EQ(share.rows(), 6);
}

TEST(BatchShareTest, EveryWorkerHasARow) {
  EXPECT_EQ(batch_share(job_of(3), 2, 3).rows(), 1);
  EXPECT_ERROR(batch_share(job_of(3), 0, 4), InvalidArgument,
               ::testing::HasSubstr("input.global_batch_size is 3, fewer than one row for each of the 4"));
}

TEST(BatchShareTest, WorkersOfAGroupHaveTheSameRows) {
  proto::Job job = job_of(12);
  job.mutable_strategy()->set_kind(proto::Strategy::TENSOR);
  job.mutable_strategy()->mutable_mesh()->set_data(2);
  for (const int rank : {0, 1, 2, 3}) {
    const RowReader reader = row_reader(job, rank, 4);
    EXPECT_EQ(reader.rank, rank / 2);
    EXPECT_EQ(reader.world, 2);
    EXPECT_EQ(batch_share(job, rank, 4).rows(), 6);
  }
}

}  // namespace
}  // namespace braid::worker
