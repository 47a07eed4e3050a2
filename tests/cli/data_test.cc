// `braid data`: files of every format shown and converted as users do, real files against their published
// summaries, and damage of every kind refused with its place.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/files.h"
#include "tests/cli/tool_test.h"
#include "tests/integration/checkpoints.h"
#include "tests/support/outside_data.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class DataToolsTest : public ToolTest {
 protected:
  Json shown(const std::string& file) { return Json::parse(expect_good({"data", "show", "--json", file})); }
  std::string make_criteo(const std::string& name, const std::string& rows,
                          std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"data", "criteo", "--rows", rows, "--out", path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_good(arguments);
    return path(name);
  }
};

/// Doubles may differ by the order in which they were added.
void expect_same(const Json& got, const Json& expected, const std::string& where) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(got.contains(key)) << where << "." << key;
      expect_same(got[key], value, where + "." + key);
    }
  } else if (expected.is_number_float()) {
    EXPECT_NEAR(got.get<double>(), expected.get<double>(), 1e-9 * (1 + std::abs(expected.get<double>())))
        << where;
  } else {
    EXPECT_EQ(got, expected) << where;
  }
}

TEST_F(DataToolsTest, RealTfRecordsHaveTheirPublishedSummaries) {
  const Path root = outside_data("tfrecord");
  SKIP_WITHOUT_OUTSIDE_DATA(root);
  int files = 0;
  for (const auto& folder : std::filesystem::directory_iterator(root)) {
    if (!folder.is_directory()) continue;
    const Json summaries = Json::parse(read_file(folder.path() / "expected_summary.json"));
    for (const auto& [name, expected] : summaries.items()) {
      const Json got = shown((folder.path() / name).string());
      expect_same(got, expected, name);
      EXPECT_EQ(got["features"].size(), expected["features"].size());
      ++files;
    }
  }
  EXPECT_EQ(files, 6);
}

TEST_F(DataToolsTest, RowsAndSchemaArePrinted) {
  const std::string csv = write("a.csv", "id,name\n1,one\n2,two\n3,three\n");
  const std::string out = expect_good({"data", "show", "--rows", "2", csv});
  EXPECT_THAT(out,
              AllOf(HasSubstr("record 2\n  id: int64 2\n  name: bytes \"two\""), HasSubstr("3 records")));
  EXPECT_EQ(out.find("record 3"), std::string::npos);
}

TEST_F(DataToolsTest, TextsOfAnyLanguageBytesAndNumbersBeyondJsonAreShown) {
  const std::string csv = write("a.csv",
                                "\xEF\xBB\xBF"
                                "größe,t,big\n1,\"two\nlines, \"\"漢字\"\"\",9223372036854775807\n2,\xFF\x01,"
                                "9223372036854775807\n3,x,9223372036854775807\n");
  const std::string json = expect_good({"data", "show", "--json", csv});
  EXPECT_THAT(json, HasSubstr("\"sum\": 27670116110564327421")) << "exact, though no double";
  const Json got = Json::parse(json);
  EXPECT_EQ(got["features"]["größe"]["sum"], 6);
  EXPECT_EQ(got["first_records"][0]["t"][1][0], "two\nlines, \"漢字\"");
  EXPECT_EQ(got["first_records"][1]["t"][1][0]["base64"], "/wE=");
  EXPECT_THAT(expect_good({"data", "show", csv}),
              AllOf(HasSubstr("größe: int64 1"), HasSubstr("\"two\\x0alines, \\\"漢字\\\"\""),
                    HasSubstr("\"\\xff\\x01\"")));

  const std::string floats = write("b.csv", "f,g\n0,inf\n0,1\n");  // JSON has no number for infinity
  EXPECT_EQ(shown(floats)["features"]["g"]["sum"], "Infinity");
}

TEST_F(DataToolsTest, AnEmptyPieceOfADataSetHasNoRecords) {
  const Json got = shown(write("part-00001", ""));
  EXPECT_EQ(got["records"], 0);
  EXPECT_TRUE(got["features"].empty());
}

TEST_F(DataToolsTest, CriteoRowsConvertThereAndBack) {
  const std::string tsv = make_criteo("tsv", "400"),
                    packed = make_criteo("packed", "400", {"--format", "tfrecord", "--gzip"});
  expect_good(
      {"data", "convert", packed + "/train.tfrecord.gz", "--out", path("back.tsv"), "--to", "criteo"});
  EXPECT_TRUE(read_file(path("back.tsv")) == read_file(tsv + "/train.tsv"));
  expect_good({"data", "convert", tsv + "/train.tsv", "--out", path("again.tfrecord")});
  const Json one = shown(path("again.tfrecord")), other = shown(packed + "/train.tfrecord.gz");
  EXPECT_EQ(one["features"], other["features"]);
  EXPECT_EQ(one["first_records"], other["first_records"]);
}

TEST_F(DataToolsTest, TrainingFromTfRecordsHasTheBitsOfTrainingFromText) {
  const Job text = dlrm(make_criteo("tsv", "2000")).with({"steps=20"});
  Job packed = dlrm(make_criteo("packed", "2000", {"--format", "tfrecord", "--gzip"})).with({"steps=20"});
  packed.set.emplace_back("input.train_files=train.tf*");
  EXPECT_EQ(train("text-run", text), train("packed-run", packed));
}

TEST_F(DataToolsTest, TheSameSchemaReadsTextAndRecordsToTheSameBits) {
  const Job text = wide_deep().with({"steps=20"});
  expect_good({"data", "convert", (text.data / "adult.data").string(), "--out", path("adult.tfrecord.gz"),
               "--names",
               "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
               "capital-gain,capital-loss,hours-per-week,native-country,income"});
  Job packed = text.with({"input.format=TFRECORD", "input.train_files=adult.tfrecord.gz"});
  packed.data = directory();
  EXPECT_EQ(train("text-run", text), train("packed-run", packed));
}

TEST_F(DataToolsTest, GeneratedRowsCanBeLearnt) {
  const auto process = run("generated", Job{"wide_deep_generated.pbtxt", "", {}}.arguments());
  ASSERT_EQ(process->wait({}), 0) << process->err();
  EXPECT_GT(result_of(*process).quality.value_or(0), 0.72);
}

TEST_F(DataToolsTest, MlperfRowsAreMadeInBothForms) {
  const auto said = expect_good(
      {"data", "mlperf-dlrm", "--rows", "20", "--test-rows", "7", "--seed", "3", "--out", path("rows")});
  EXPECT_THAT(said, AllOf(HasSubstr("train_data.bin: 20 rows"), HasSubstr("val_data.bin: 7 rows"),
                          HasSubstr("AUC of the true probabilities 0.")));
  EXPECT_EQ(std::filesystem::file_size(path("rows") + "/train_data.bin"), 20 * 912U);
  expect_good({"data", "mlperf-dlrm", "--rows", "20", "--format", "npy", "--out", path("arrays")});
  for (const char* name :
       {"train_labels.npy", "train_dense.npy", "train_sparse_multi_hot.npz", "val_dense.npy"})
    EXPECT_TRUE(std::filesystem::exists(path("arrays") + "/" + name)) << name;
}

TEST_F(DataToolsTest, HistoriesAreMadeWithALaterDayToTestOn) {
  const std::vector<std::string> made{"data",      "hstu",     "--users",   "40",
                                      "--history", "24",       "--samples", "2",
                                      "--format",  "tfrecord", "--out",     path("users")};
  EXPECT_THAT(expect_good(made), AllOf(HasSubstr("train.tfrecord: "), HasSubstr("test.tfrecord: "),
                                       HasSubstr("AUC of the true probabilities 0.")));
  expect_refused({"data", "hstu", "--users", "2", "--history", "25", "--out", path("odd")},
                 HasSubstr("a positive multiple of 3, got 25"));
}

TEST_F(DataToolsTest, ImagesAndLabelsAreJoined) {
  const std::string images =
      write("images", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02\x01\x02\x03\x04", 20));
  const std::string labels = write("labels", std::string("\0\0\x08\x01\0\0\0\x02\x07\x09", 10));
  expect_good({"data", "convert", images, labels, "--out", path("a.tfrecord")});
  const Json got = shown(path("a.tfrecord"));
  EXPECT_EQ(got["records"], 2);
  EXPECT_EQ(got["features"]["label"]["sum"], 16);
  EXPECT_EQ(got["first_record"]["image"][1][0], "\x01\x02");
  expect_refused({"data", "convert", images, write("three", std::string("\0\0\x08\x01\0\0\0\x01\x07", 9)),
                  "--out", path("b.tfrecord")},
                 HasSubstr("has fewer items than"));
}

TEST_F(DataToolsTest, DamagedTfRecordsAreRefusedWithRecordAndByte) {
  const std::string file = make_criteo("packed", "50", {"--format", "tfrecord"}) + "/train.tfrecord";
  const std::string whole = read_file(file);
  std::string damaged = whole;
  damaged[whole.size() - 10] ^= 0x01;
  expect_refused({"data", "show", write("bit.tfrecord", damaged)},
                 AllOf(HasSubstr("bit.tfrecord' record 50 at byte"), HasSubstr("the CRC of its")));
  expect_refused({"data", "show", write("cut", whole.substr(0, whole.size() - 7))},
                 AllOf(HasSubstr("cut' record 50 at byte"), HasSubstr("truncated")));
  damaged = whole;
  damaged[1] ^= 0x40;
  expect_refused({"data", "show", write("length", damaged)},
                 HasSubstr("length' record 1 at byte 0: the CRC of its length"));
  expect_refused({"data", "show",
                  write("gz", read_file(make_criteo("gz-files", "50", {"--format", "tfrecord", "--gzip"}) +
                                        "/train.tfrecord.gz")
                                  .substr(0, 3000))},
                 HasSubstr("gzip data ends early"));
  damaged = whole;
  damaged[whole.size() - 10] ^= 0x01;
  const std::string tolerant =
      expect_good({"data", "show", "--max-bad", "1", write("bit.tfrecord", damaged)});
  EXPECT_THAT(tolerant, HasSubstr("49 records, every CRC right; 1 bad ones skipped"));
}

TEST_F(DataToolsTest, RecordsThatAreNoExamplesAreShownAsBytes) {
  std::string file;
  const auto append = [&](const std::string& bytes) {
    const std::uint32_t crc = crc32c_mask(crc32c(std::as_bytes(std::span(bytes))));
    file += bytes;
    file.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  };
  append(std::string("\x06\0\0\0\0\0\0\0", 8));
  append("hello\xFF");
  const std::string records = write("raw.tfrecord", file);
  expect_refused({"data", "show", records},
                 AllOf(HasSubstr("record 1 at byte 0: not a tf.train.Example"), HasSubstr("--raw")));
  EXPECT_THAT(expect_good({"data", "show", "--raw", records}),
              AllOf(HasSubstr("record 1 at byte 0: \"hello\\xff\""),
                    HasSubstr("1 records, 6 bytes of data, every CRC right")));
}

TEST_F(DataToolsTest, WhatCannotBeShownOrWrittenIsRefused) {
  expect_refused({"data", "show", path("none")}, AllOf(HasSubstr("none'"), HasSubstr("No such file")));
  expect_refused({"data", "show", directory().string()}, HasSubstr("directory"));
  expect_refused({"data", "show", write("empty", "")}, HasSubstr("is empty"));
  expect_refused({"data", "show", "--format", "orc", path("empty")},
                 HasSubstr("there is no data format 'orc'"));
  const std::string csv = write("a.csv", "1,2\n3,4\n");
  expect_refused({"data", "convert", csv, "--out", path("a.unknown")}, HasSubstr("does not say a format"));
  expect_refused({"data", "convert", csv, "--out", csv}, HasSubstr("is one of the inputs"));
  expect_refused({"data", "convert", csv, "--out", path("none/a.tfrecord")}, HasSubstr("cannot write"));
  expect_refused({"data", "convert", csv, "--out", path("b.tsv"), "--to", "criteo"},
                 HasSubstr("record 1: feature '1' has no column"));
  EXPECT_FALSE(std::filesystem::exists(path("b.tsv")));
}

}  // namespace
}  // namespace braid::integration
