// What a job says of its columns becomes a schema, with what statistics and vocabularies of the data add.
#include "worker/input/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "proto/job.pb.h"
#include "tests/support/expect_error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ColumnsTest : public ::testing::Test {
 protected:
  /// A job of these columns and a label.
  static proto::Job job(const std::string& columns, const std::string& more = {}) {
    return parse_job(
        "model { name: 'dcn_v2' hash_buckets: 50 } steps: 3 optimizer { learning_rate: 0.1 } input { format: "
        "CSV "
        "train_files: 'a.csv' global_batch_size: 2 " +
            more + columns + " columns { name: 'y' kind: LABEL } }",
        "j");
  }
  std::vector<ColumnSpec> schema(const proto::Job& job) const { return job_schema(job, dir_.path()); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.path() / name, std::ios::binary) << text;
  }
  /// x is 0 to 100, so that its percentiles are their numbers.
  void write_statistics() const {
    std::string percentiles;
    for (int p = 0; p <= 100; ++p) percentiles += (p == 0 ? "" : ",") + std::to_string(p);
    write(
        "stats.json",
        R"({"features": {"x": {"mean": 50, "std": 29, "log1p_mean": 3.6, "log1p_std": 0.9, "min": 0, "max": 100,
             "percentiles": [)" +
            percentiles + "]}, \"word\": {}}}");
  }
  TempDir dir_;
};

TEST_F(ColumnsTest, WhatAColumnSaysIsInItsSpec) {
  const auto columns =
      schema(job(R"(columns { name: "tags" kind: CATEGORICAL ragged: true weights: "w" pooling: SQRTN
      batch_ids: 77 table: "item" embedding_dim: 4 embedding_init: 0.5 }
    columns { name: "w" kind: NUMERIC ragged: true }
    columns { name: "hour" field: "time" kind: CATEGORICAL time_part: HOUR }
    columns { name: "age" kind: CATEGORICAL borders: 18 borders: 65 }
    columns { name: "both" kind: CATEGORICAL buckets: 9 cross: "hour" cross: "age" })"));
  EXPECT_TRUE(columns[0].ragged);
  EXPECT_EQ(columns[0].length, 0);
  EXPECT_EQ(columns[0].buckets, 50) << "model.hash_buckets";
  EXPECT_EQ(columns[0].weights, "w");
  EXPECT_EQ(columns[0].batch_ids, 77);
  EXPECT_EQ(columns[0].table.shared, "item");
  EXPECT_EQ(columns[0].table.dim, 4);
  EXPECT_EQ(columns[0].table.init, 0.5);
  EXPECT_EQ(columns[0].table.pooling, ListPooling::SqrtN);
  EXPECT_EQ(columns[2].time_part, TimePart::Hour);
  EXPECT_EQ(field_of(columns[2]), "time");
  EXPECT_EQ(columns[2].ids(), 25) << "no hash buckets";
  EXPECT_THAT(columns[3].borders, ElementsAre(18, 65));
  EXPECT_THAT(columns[4].cross, ElementsAre("hour", "age"));
  EXPECT_EQ(field_of(columns[4]), "");
}

TEST_F(ColumnsTest, StatisticsScaleAndCut) {
  write_statistics();
  const std::string with = "statistics_file: 'stats.json' ";
  const auto one = [&](const std::string& settings) {
    return schema(job("columns { name: 'c' field: 'x' " + settings + " }", with))[0];
  };
  EXPECT_EQ(one("kind: NUMERIC scaling: STANDARD").shift, 50);
  EXPECT_EQ(one("kind: NUMERIC scaling: STANDARD").scale, 29);
  EXPECT_EQ(one("kind: NUMERIC scaling: STANDARD log1p: true").shift, 3.6);
  EXPECT_EQ(one("kind: NUMERIC scaling: MIN_MAX").scale, 100);
  EXPECT_EQ(one("kind: NUMERIC scaling: MIN_MAX log1p: true").scale, std::log1p(100.0));
  EXPECT_THAT(one("kind: CATEGORICAL quantiles: 4").borders, ElementsAre(25, 50, 75));
  EXPECT_THAT(one("kind: CATEGORICAL quantiles: 3").borders,
              ElementsAre(::testing::DoubleNear(33.333, 1e-3), ::testing::DoubleNear(66.667, 1e-3)));
}

TEST_F(ColumnsTest, StatisticsThatAreMissingAreNamed) {
  const auto refusal = [&](const std::string& column, const std::string& with) {
    return message_of([&] { schema(job("columns { " + column + " }", with)); });
  };
  const std::string with = "statistics_file: 'stats.json' ",
                    scaled = "name: 'x' kind: NUMERIC scaling: STANDARD";
  EXPECT_THAT(refusal(scaled, ""), HasSubstr("need input.statistics_file"));
  EXPECT_THAT(refusal(scaled, with), HasSubstr("stats.json"));
  write("stats.json", "{}");
  EXPECT_THAT(refusal(scaled, with), HasSubstr("is not what `braid data stats --json` writes"));
  write_statistics();
  EXPECT_THAT(refusal("name: 'z' kind: NUMERIC scaling: STANDARD", with),
              AllOf(HasSubstr("'stats.json': has no 'z'"), HasSubstr("column 'z' reads")));
  EXPECT_THAT(refusal("name: 'word' kind: NUMERIC scaling: STANDARD", with),
              HasSubstr("says no mean of 'word'"));
  EXPECT_THAT(refusal(scaled + " shift: 2", with), HasSubstr("one says how it is scaled"));
  EXPECT_THAT(refusal("name: 'x' kind: CATEGORICAL quantiles: 4 borders: 1", with),
              HasSubstr("one says its ids"));
}

TEST_F(ColumnsTest, SomeWordsOfAVocabularyFile) {
  write("words.txt", "a\nb\nc\n");
  EXPECT_THAT(
      schema(
          job("columns { name: 'w' kind: CATEGORICAL vocabulary_file: 'words.txt' vocabulary_words: 2 }"))[0]
          .vocabulary,
      ElementsAre("a", "b"));
}

TEST_F(ColumnsTest, RangesOfColumnsFieldsAreChecked) {
  for (const char* wrong : {"embedding_dim: -1", "quantiles: 1", "batch_ids: -4", "embedding_init: -0.5"})
    EXPECT_THAT(message_of([&] {
                  check_job(job("columns { name: 'w' kind: CATEGORICAL " + std::string(wrong) + " }"));
                }),
                HasSubstr("of column 'w' must be"))
        << wrong;
}

TEST_F(ColumnsTest, GraphsReadNoRaggedColumns) {
  write("a.csv", "x,1\n");
  proto::Job its = job("columns { name: 't' kind: CATEGORICAL ragged: true }");
  its.mutable_model()->mutable_graph()->set_file("graph.pb");
  its.mutable_model()->clear_name();
  const JobData data = load_data(its, dir_.path(), false);
  EXPECT_THAT(message_of([&] { job_model(its, *data.train); }),
              HasSubstr("column 't' is ragged, and model.graph reads columns of a fixed length"));
}

}  // namespace
}  // namespace braid::worker
