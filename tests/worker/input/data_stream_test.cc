// Which jobs stream their rows, and that they are those of the files.
#include "worker/input/data_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "proto/job.pb.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "worker/input/data.h"
#include "worker/job/job.h"
#include "worker/step/training_program.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

class DataStreamTest : public ::testing::Test {
 protected:
  DataStreamTest() {
    std::filesystem::create_directories(dir_.path() / "rows");
    for (int f = 0; f < 3; ++f) {
      std::ofstream out(dir_.path() / "rows" / ("part-" + std::to_string(f)));
      for (int r = 0; r < 40; ++r) out << 100 * f + r << "\n";
    }
    std::ofstream(dir_.path() / "rows" / "_SUCCESS");
  }
  static proto::Job job(const std::string& input) {
    return parse_job(
        "model { name: 'mlp' } epochs: 2 optimizer { learning_rate: 0.1 } input { global_batch_size: 8 "
        "format: CSV train_files: 'rows' columns { name: 'y' kind: LABEL } " +
            input + " }",
        "j");
  }
  JobData load(const proto::Job& job, const DataShard& shard = {}) const {
    return load_data(job, dir_.path(), false, shard);
  }
  TempDir dir_;
};

TEST_F(DataStreamTest, SizeDecidesWhereTheJobDoesNot) {
  EXPECT_FALSE(load(job("")).stream) << "some hundred bytes";
  EXPECT_TRUE(load(job("stream { from_bytes: 100 }")).stream);
  EXPECT_TRUE(load(job("read: STREAM")).stream);
  EXPECT_FALSE(load(job("read: MEMORY stream { from_bytes: 100 }")).stream);
  EXPECT_FALSE(load(job("shard: ROWS stream { from_bytes: 100 }")).stream);
}

TEST_F(DataStreamTest, AnEpochIsTheRowsOfTheDirectory) {
  const proto::Job streamed =
      job("read: STREAM stream { block_bytes: 64 virtual_shards: 3 window_rows: 40 }");
  const JobData data = load(streamed);
  EXPECT_EQ(data.train->rows_of_all, 120);
  EXPECT_EQ(total_steps(streamed, *data.train), 30U);
  const auto batcher = make_batcher(streamed, data, {"label"}, training_batches(streamed, 0, 1));
  std::multiset<float> rows;
  for (std::uint64_t t = 0; t < 15; ++t) {
    const Batch batch = batcher->make(t);
    for (const float row : batch.tensors[0].data<float>()) rows.insert(row);
  }
  EXPECT_EQ(rows.size(), 120U);
  EXPECT_EQ(std::set<float>(rows.begin(), rows.end()).size(), 120U) << "each once";
}

TEST_F(DataStreamTest, WorkersMayStreamFilesOfTheirOwn) {
  const proto::Job files = parse_job(
      "model { name: 'mlp' } steps: 5 optimizer { learning_rate: 0.1 } input { global_batch_size: 8 format: "
      "CSV "
      "shard: FILES read: STREAM train_files: 'rows/part-*' columns { name: 'y' kind: LABEL } }",
      "j");
  EXPECT_EQ(load(files, {0, 2}).train->rows_of_all, 80);
  EXPECT_EQ(load(files, {1, 2}).train->rows_of_all, 40);
}

TEST_F(DataStreamTest, RefusesWhatCannotBeStreamed) {
  EXPECT_ERROR(check_job(job("read: STREAM shard: ROWS")), InvalidArgument, HasSubstr("virtual_shards"));
  proto::Job pipe = job("read: STREAM");
  pipe.mutable_input()->set_train_files(0, "-");
  EXPECT_ERROR(load(pipe), InvalidArgument, HasSubstr("'-' is read once"));
}

}  // namespace
}  // namespace braid::worker
