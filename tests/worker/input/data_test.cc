// A job's input becomes tables: formats, globs, shards, vocabularies, and what is refused.
#include "worker/input/data.h"
#include "worker/input/job_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/input/formats/example.h"
#include "engine/input/formats/tfrecord.h"
#include "proto/job.pb.h"
#include "tests/support/expect_error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/job/job.h"
#include "worker/step/training_program.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataTest : public ::testing::Test {
 protected:
  static proto::Job job(const std::string& input) {
    return parse_job(
        "model { name: 'mlp' } steps: 3 optimizer { learning_rate: 0.1 } input { global_batch_size: 2 " +
            input + " }",
        "j");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.path() / name, std::ios::binary) << text;
  }
  std::vector<float> labels(const proto::Job& job, const DataShard& shard = {}) const {
    const JobData data = load_data(job, dir_.path(), false, shard);
    const auto values = data.train->find("label")->data.data<float>();
    return {values.begin(), values.end()};
  }
  TempDir dir_;
};

constexpr const char* kLabel = "columns { name: 'y' kind: LABEL }";

TEST_F(DataTest, GlobsAreSortedAndAMissNamesThePattern) {
  write("part-2.csv", "2\n");
  write("part-1.csv", "1\n");
  write("x[1].csv", "7\n");
  EXPECT_THAT(labels(job(std::string("format: CSV train_files: 'part-*.csv' ") + kLabel)), ElementsAre(1, 2));
  EXPECT_THAT(labels(job(std::string("format: CSV train_files: 'x[1].csv' ") + kLabel)), ElementsAre(7))
      << "a file of that very name comes first";
  EXPECT_ERROR(labels(job(std::string("format: CSV train_files: 'none-*.csv' ") + kLabel)), InvalidArgument,
               HasSubstr("no file matches '" + (dir_.path() / "none-*.csv").string()));
}

TEST_F(DataTest, ShardsOfFilesAndRows) {
  for (int i = 0; i < 5; ++i)
    write("f" + std::to_string(i), std::to_string(i) + "\n" + std::to_string(10 + i) + "\n");
  const std::string input = std::string("format: CSV train_files: 'f?' ") + kLabel;
  EXPECT_THAT(labels(job(input + " shard: FILES"), {1, 2}), ElementsAre(1, 11, 3, 13));
  EXPECT_THAT(labels(job(input + " shard: ROWS"), {1, 3}), ElementsAre(10, 2, 13));
  EXPECT_THAT(labels(job(input), {1, 3}), ::testing::SizeIs(10)) << "without shards each loads all";
  EXPECT_ERROR(labels(job(input + " shard: FILES"), {5, 6}), InvalidArgument,
               HasSubstr("5 files are fewer than 6 workers"));
}

TEST_F(DataTest, EpochsOfShardedRowsAreCountedOverAllWorkers) {
  write("a.csv", "1\n2\n3\n4\n5\n6\n7\n");
  proto::Job rows = job(std::string("format: CSV train_files: 'a.csv' shard: ROWS ") + kLabel);
  rows.set_steps(0);
  rows.set_epochs(2);
  for (int rank : {0, 1})
    EXPECT_EQ(total_steps(rows, *load_data(rows, dir_.path(), false, {rank, 2}).train), 6U);
  rows.mutable_input()->set_carry_remainder(true);
  EXPECT_EQ(total_steps(rows, *load_data(rows, dir_.path(), false, {0, 2}).train), 7U);
  EXPECT_EQ(training_batches(rows, 1, 2).global_batch, 1) << "a worker's batches are of its own rows";
  EXPECT_EQ(training_batches(rows, 1, 2).world, 1);
}

TEST_F(DataTest, RecordsTextAndVocabulariesFromFiles) {
  write("words", "red\n\ngreen\n");
  write("a.txt", "green\nred\n");
  const JobData text = load_data(
      job("format: TEXT train_files: 'a.txt' columns { name: 'line' kind: CLASS vocabulary_file: 'words' }"),
      dir_.path(), false);
  EXPECT_THAT(text.train->find("label")->data.data<std::int64_t>(), ElementsAre(1, 0));
  TfRecordWriter out(dir_.path() / "a.tfrecord");
  ExampleWriter example;
  example.add("y", std::vector<std::int64_t>{3});
  out.write(example.finish());
  out.finish();
  EXPECT_THAT(labels(job(std::string("format: TFRECORD train_files: 'a.tfrecord' ") + kLabel)),
              ElementsAre(3));
}

TEST_F(DataTest, GeneratedRowsForTrainingAndTest) {
  proto::Job generated =
      job(std::string(
              "format: GENERATOR generator { rows: 6 test_rows: 4 } columns { name: 'x' kind: NUMERIC } ") +
          kLabel);
  const JobData data = load_data(generated, dir_.path(), true);
  EXPECT_EQ(data.train->rows, 6);
  EXPECT_EQ(data.test->rows, 4);
  EXPECT_NE(data.train->find("dense")->data.data<float>()[0],
            data.test->find("dense")->data.data<float>()[0]);
}

TEST_F(DataTest, FilesWithoutRecordsAreNamed) {
  write("a.csv", "");
  write("b.csv", "\n\n");
  EXPECT_ERROR(labels(job(std::string("format: CSV train_files: '?.csv' ") + kLabel)), InvalidArgument,
               ::testing::AllOf(HasSubstr("input.train_files: '" + (dir_.path() / "a.csv").string()),
                                HasSubstr("and 1 more files have no records")));
  write("c.csv", "1\n");
  EXPECT_ERROR(labels(job(std::string("format: CSV shard: ROWS train_files: 'c.csv' ") + kLabel), {1, 2}),
               InvalidArgument, HasSubstr("c.csv' has no records for worker 1"));
}

TEST_F(DataTest, AMissingFileIsNamedWithItsFieldAndFolder) {
  EXPECT_ERROR(labels(job(std::string("format: CSV train_files: 'none.csv' ") + kLabel)), InvalidArgument,
               ::testing::AllOf(HasSubstr("input.train_files: '" + (dir_.path() / "none.csv").string()),
                                HasSubstr("No such file"),
                                HasSubstr("relative to --data-dir, which is '" + dir_.path().string())));
}

TEST_F(DataTest, AColumnThatNothingReadsIsRefused) {
  const auto refusal = [&](const std::string& columns) {
    proto::Job wide =
        job("format: GENERATOR generator { rows: 6 } columns { name: 'age' kind: NUMERIC } "
            "columns { name: 'city' kind: CATEGORICAL buckets: 4 } " +
            columns + kLabel);
    wide.mutable_model()->set_name("wide_deep");
    return message_of([&] { job_model(wide, *load_data(wide, dir_.path(), false).train); });
  };
  EXPECT_EQ(refusal("columns { name: 'tags' kind: CATEGORICAL buckets: 4 output: 'tags' } "),
            "job '': input.columns: nothing reads 'tags' (output 'tags'): model 'wide_deep' reads 'dense', "
            "'sparse', 'label'; give a column one of these as its output, or kind SKIP");
  EXPECT_THAT(refusal("columns { name: 'n' kind: NUMERIC output: 'a' } columns { name: 'm' kind: NUMERIC "
                      "output: 'a' } "),
              HasSubstr("nothing reads 'n' (output 'a'), 'm' (output 'a'): model"));
  EXPECT_EQ(refusal("columns { name: 'tags' kind: SKIP } "), "nothing was thrown");
}

TEST_F(DataTest, ATableHasARowForEachIdOfItsColumn) {
  proto::Job wide =
      job(std::string("format: GENERATOR generator { rows: 6 } columns { name: 'age' kind: NUMERIC } "
                      "columns { name: 'city' kind: CATEGORICAL buckets: 7 } "
                      "columns { name: 'shop' kind: CATEGORICAL } ") +
          kLabel);
  wide.mutable_model()->set_name("wide_deep");
  EXPECT_ERROR(load_data(wide, dir_.path(), false), InvalidArgument,
               HasSubstr("column 'shop': buckets must be at least 1"));
  wide.mutable_model()->set_hash_buckets(5);
  const JobData data = load_data(wide, dir_.path(), false);
  const auto& fields = data.train->find("sparse")->fields;
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].name, "city");
  EXPECT_EQ(fields[0].ids, 7);
  EXPECT_EQ(fields[1].ids, 5);
  const auto ids = data.train->find("sparse")->data.data<std::int64_t>();
  for (std::size_t row = 0; row < 6; ++row) EXPECT_LT(ids[2 * row + 1], 5);
  EXPECT_NO_THROW(job_model(wide, *data.train));
}

TEST_F(DataTest, InputsThatMakeNoTableAreRefused) {
  const auto check = [](const std::string& input) {
    proto::Job refused = job(input);
    fill_job_defaults(refused);
    check_job(refused);
  };
  write("a", "");
  EXPECT_ERROR(load_data(job("format: TFRECORD train_files: 'a'"), dir_.path(), false), InvalidArgument,
               HasSubstr("input.columns is missing: TFRECORD needs its schema"));
  EXPECT_ERROR(load_data(job(std::string("format: CSV ") + kLabel), dir_.path(), false), InvalidArgument,
               HasSubstr("train_files is missing"));
  EXPECT_ERROR(
      labels(job("format: CSV train_files: 'a' columns { name: 'y' kind: LABEL list_separator: 'ab' }")),
      InvalidArgument, HasSubstr("column 'y': list_separator must be one character"));
  for (const char* separator : {"\\n", "\\r", "\""})
    EXPECT_ERROR(labels(job(std::string("format: CSV train_files: 'a' csv { separator: '") + separator +
                            "' } " + kLabel)),
                 InvalidArgument, HasSubstr("input.csv.separator cannot be a line end or a quote"));
  EXPECT_ERROR(check("format: GENERATOR"), InvalidArgument, HasSubstr("needs input.generator.rows"));
  EXPECT_ERROR(check("format: IDX shard: ROWS"), InvalidArgument, HasSubstr("input.shard is for CSV"));
  EXPECT_ERROR(check("format: CSV shuffle_buffer: -1"), InvalidArgument, HasSubstr("shuffle_buffer"));
  proto::Job files = job("format: CSV shard: FILES");
  files.set_steps(0);
  files.set_epochs(1);
  fill_job_defaults(files);
  EXPECT_ERROR(check_job(files), InvalidArgument, HasSubstr("input.shard FILES needs steps"));
  proto::Job best = job("format: CSV");
  best.mutable_checkpoint()->set_keep_best(1);
  fill_job_defaults(best);
  EXPECT_ERROR(check_job(best), InvalidArgument, HasSubstr("keep_best needs evaluation.every_steps"));
}

}  // namespace
}  // namespace braid::worker
