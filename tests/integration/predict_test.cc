// Raw rows in, probabilities out: `braid predict` against NumPy from the exported weights, against itself
// over formats, keys and labels that are not there, and against what `braid evaluate` and training measure.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/files.h"
#include "base/formats/npy.h"
#include "tests/cli/tool_test.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kPredictedRows = 401;  // no multiple of a batch

/// A Python that has NumPy: BRAID_PYTHON, else python3. Empty: there is none.
std::string python() {
  const char* const wanted = std::getenv("BRAID_PYTHON");
  const std::string command = wanted ? wanted : "python3";
  return std::system((command + " -c 'import numpy' >/dev/null 2>&1").c_str()) == 0 ? command : "";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// What is behind the first comma of each line but the header.
std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> values;
  for (const std::string& line : lines_of(text)) values.push_back(line.substr(line.find_first_of(",\t") + 1));
  values.erase(values.begin());
  return values;
}

std::vector<double> sorted_numbers(const std::string& text) {
  std::vector<double> numbers;
  for (const std::string& value : values_of(text)) numbers.push_back(std::stod(value));
  std::ranges::sort(numbers);
  return numbers;
}

class PredictTest : public ToolTest {
 protected:
  void SetUp() override {
    std::mt19937 random(11);
    const std::vector<std::string> devices{"phone", "tablet", "desk", ""};
    for (int r = 0; r < kPredictedRows; ++r) {
      const int age = static_cast<int>(random() % 60) + 18, city = static_cast<int>(random() % 40);
      const std::string income = random() % 9 == 0 ? "" : std::to_string(random() % 90000);
      const bool clicked = (age + city) % 3 == 0 || random() % 5 == 0;
      rows_.push_back({"user " + std::to_string(r), std::to_string(age), income,
                       "city" + std::to_string(city), devices[random() % 4], clicked ? "1" : "0"});
    }
    write("train.csv", text_of(','));
    write("job.pbtxt", R"(
      name: "clicks" seed: 5 steps: 60
      model { name: "wide_deep" hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 60 }
      input {
        format: CSV train_files: "train.csv" test_files: "train.csv" global_batch_size: 64
        csv { header: true }
        columns { name: "id" kind: SKIP }
        columns { name: "age" kind: NUMERIC shift: 40 scale: 12.5 }
        columns { name: "income" kind: NUMERIC log1p: true scale: 3 missing: 50 }
        columns { name: "city" kind: CATEGORICAL buckets: 50 }
        columns { name: "device" kind: CATEGORICAL vocabulary: "phone" vocabulary: "tablet" buckets: 5 }
        columns { name: "clicked" kind: LABEL }
      }
      optimizer { kind: ADAGRAD learning_rate: 0.1 }
      evaluation { batch_size: 64 }
      runtime { device: CPU intra_op_threads: 1 })");
  }

  using Row = std::vector<std::string>;
  std::string text_of(char separator, bool header = true, bool label = true) const {
    std::vector<Row> all = rows_;
    if (header) all.insert(all.begin(), {"id", "age", "income", "city", "device", "clicked"});
    std::string text;
    for (const Row& row : all) {
      for (std::size_t c = 0; c < row.size() - (label ? 0 : 1); ++c)
        text += (c > 0 ? std::string(1, separator) : "") + row[c];
      text += '\n';
    }
    return text;
  }

  std::vector<std::string> with_job(const std::string& command, std::vector<std::string> more) const {
    std::vector<std::string> all{command, "--job", path("job.pbtxt"), "--data-dir", directory().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Trains the job, and gives its result.
  json train_job(std::vector<std::string> set = {}) {
    std::vector<std::string> more{"--set", "checkpoint.directory=" + path("checkpoints")};
    for (std::string& assignment : set) more.insert(more.end(), {"--set", std::move(assignment)});
    return result_in(expect_good(with_job("train", more)));
  }
  static json result_in(const std::string& out) {
    const std::size_t at = out.rfind("result: ");
    return at == std::string::npos ? json() : json::parse(out.substr(at + 8));
  }
  json predict(const std::string& in, const std::string& out, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--checkpoint", path("checkpoints"), "--in", in, "--out", out});
    return result_in(expect_good(with_job("predict", more)));
  }
  /// Fails the test unless NumPy makes the same of these rows.
  void expect_as_numpy(const std::string& format, const std::string& rows, const std::string& predictions) {
    expect_good({"ckpt", "export", path("checkpoints"), "--out", path("weights.npz")});
    const std::string script =
        (Path(BRAID_SOURCE_DIR) / "tests/integration/predictions_by_numpy.py").string();
    Process compared({"/usr/bin/env", python(), script, "--format", format, "--rows", rows, "--weights",
                      path("weights.npz"), "--predictions", predictions},
                     {}, directory() / ("numpy-" + format));
    EXPECT_EQ(compared.exit_code(), 0) << compared.out() << compared.err();
    EXPECT_THAT(compared.out(), HasSubstr("largest difference")) << compared.err();
  }

  std::vector<Row> rows_;
};

TEST_F(PredictTest, RowsOfCsvTsvAndTfRecordHaveThePredictionsOfNumpy) {
  train_job();
  write("rows.csv", text_of(','));
  write("rows.tsv", text_of('\t'));
  expect_good({"data", "convert", path("rows.csv"), "--header", "--out", path("rows.tfrecord")});
  EXPECT_EQ(predict(path("rows.csv"), path("csv.csv"))["rows"], kPredictedRows);
  EXPECT_EQ(predict(path("rows.tsv"), path("tsv.tsv"), {"--set", R"(input.csv.separator=\t)"})["rows"],
            kPredictedRows);
  EXPECT_EQ(predict(path("rows.tfrecord"), path("tfrecord.csv"), {"--set", "input.format=TFRECORD"})["rows"],
            kPredictedRows);
  const std::vector<std::string> values = values_of(read_file(path("csv.csv")));
  ASSERT_EQ(values.size(), static_cast<std::size_t>(kPredictedRows));
  EXPECT_EQ(values, values_of(read_file(path("tsv.tsv"))));
  EXPECT_EQ(values, values_of(read_file(path("tfrecord.csv"))));
  EXPECT_EQ(lines_of(read_file(path("csv.csv")))[0], "row,probability");
  if (python().empty())
    GTEST_SKIP() << "there is no Python with NumPy: pip install numpy, or name one in BRAID_PYTHON";
  expect_as_numpy("csv", path("rows.csv"), path("csv.csv"));
  expect_as_numpy("tfrecord", path("rows.tfrecord"), path("tfrecord.csv"));
  // Python's reader of the predictions takes commas.
  expect_as_numpy("tsv", path("rows.tsv"), path("csv.csv"));
}

TEST_F(PredictTest, CriteoRowsHaveThePredictionsOfNumpy) {
  expect_good({"data", "criteo", "--rows", "500", "--test-rows", "131", "--out", directory().string()});
  expect_good({"data", "convert", path("test.tsv"), "--out", path("test.tfrecord")});
  write("job.pbtxt", R"(
      name: "criteo" seed: 5 steps: 20
      model { name: "wide_deep" hidden: 16 embedding_dim: 4 hash_buckets: 300 }
      input { format: CRITEO train_files: "train.tsv" test_files: "test.tsv" global_batch_size: 64 }
      optimizer { kind: ADAGRAD learning_rate: 0.1 }
      runtime { device: CPU intra_op_threads: 1 })");
  train_job();
  EXPECT_EQ(predict(path("test.tsv"), path("p.csv"))["rows"], 131);
  EXPECT_EQ(predict(path("test.tfrecord"), path("t.csv"))["rows"], 131);
  EXPECT_EQ(read_file(path("p.csv")), read_file(path("t.csv")));
  std::string unlabelled;
  for (const std::string& line : lines_of(read_file(path("test.tsv"))))
    unlabelled += line.substr(line.find('\t') + 1) + "\n";
  EXPECT_EQ(predict(write("unlabelled.tsv", unlabelled), path("u.csv"))["rows"], 131);
  EXPECT_EQ(read_file(path("p.csv")), read_file(path("u.csv")));
  EXPECT_EQ(predict(path("unlabelled.tsv"), path("k.csv"), {"--key", "C3"})["rows"], 131);
  EXPECT_THAT(read_file(path("k.csv")), ::testing::StartsWith("C3,probability\n"));
  if (python().empty())
    GTEST_SKIP() << "there is no Python with NumPy: pip install numpy, or name one in BRAID_PYTHON";
  expect_as_numpy("criteo", path("test.tsv"), path("p.csv"));
  expect_as_numpy("criteo_tfrecord", path("test.tfrecord"), path("t.csv"));
}

TEST_F(PredictTest, KeysPassThroughAndLabelsMayBeAbsent) {
  train_job();
  const std::string labelled = write("rows.csv", text_of(','));
  predict(labelled, path("p.csv"));
  predict(labelled, path("keyed.csv"), {"--key", "id"});
  const std::vector<std::string> keyed = lines_of(read_file(path("keyed.csv")));
  EXPECT_EQ(keyed[0], "id,probability");
  EXPECT_THAT(keyed[401], ::testing::StartsWith("user 400,"));
  for (const bool header : {true, false}) {
    predict(write("bare.csv", text_of(',', header, false)), path("bare-out.csv"),
            {"--set", std::string("input.csv.header=") + (header ? "true" : "false")});
    EXPECT_EQ(read_file(path("p.csv")), read_file(path("bare-out.csv"))) << header;
  }
  // In two files, in any batches, and as an array.
  const std::vector<std::string> lines = lines_of(text_of(',', false));
  std::string first, second;
  for (std::size_t i = 0; i < lines.size(); ++i) (i < 150 ? first : second) += lines[i] + "\n";
  predict(write("1.csv", first), path("both.csv"),
          {"--in", write("0.csv", second), "--set", "input.csv.header=false", "--batch", "7"});
  // A row's last bits may depend on the batch that it is in, where products of few rows have kernels of their
  // own.
  const auto whole = values_of(read_file(path("p.csv")));
  EXPECT_THAT(sorted_numbers(read_file(path("both.csv"))),
              ::testing::Pointwise(::testing::DoubleNear(1e-6), sorted_numbers(read_file(path("p.csv")))));
  predict(labelled, path("p.npy"));
  const std::string bytes = read_file(path("p.npy"));
  const NpyArray array = parse_npy(std::as_bytes(std::span(bytes)), "p.npy");
  ASSERT_THAT(array.shape, ::testing::ElementsAre(kPredictedRows));
  float last = 0;
  std::memcpy(&last, array.data.data() + array.data.size() - sizeof(last), sizeof(last));
  EXPECT_EQ(last, std::stof(whole.back()));
  // Named by a pattern, and packed through a pipe.
  predict(path("row[s].csv"), path("pattern.csv"));
  EXPECT_EQ(read_file(path("pattern.csv")), read_file(path("p.csv")));
  std::string command = "gzip -c '" + labelled + "' |";
  for (const std::string& word : braid(with_job(
           "predict", {"--checkpoint", path("checkpoints"), "--in", "-", "--out", path("packed.csv")})))
    command += " '" + word + "'";
  Process packed({"/bin/sh", "-c", command}, {}, directory() / "packed");
  EXPECT_EQ(packed.exit_code(), 0) << packed.err();
  EXPECT_EQ(read_file(path("packed.csv")), read_file(path("p.csv")));
  // Standard output has nothing else.
  const auto piped = run(
      "piped", with_job("predict", {"--checkpoint", path("checkpoints"), "--in", labelled, "--out", "-"}));
  EXPECT_EQ(piped->exit_code(), 0) << piped->err();
  EXPECT_EQ(piped->out(), read_file(path("p.csv")));
}

TEST_F(PredictTest, BadRecordsAreRefusedOrHaveALineWithoutAPrediction) {
  train_job();
  std::vector<std::string> lines = lines_of(text_of(','));
  predict(write("good.csv", text_of(',')), path("good-out.csv"));
  lines[3] = "user 2,old,1,city1,phone,0";
  lines[9] = "too few";
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string bad = write("bad.csv", text);
  expect_refused(
      with_job("predict", {"--checkpoint", path("checkpoints"), "--in", bad, "--out", path("p.csv")}),
      AllOf(HasSubstr("bad.csv' line 4"), HasSubstr("'old' is not a number")));
  EXPECT_FALSE(std::filesystem::exists(path("p.csv")));
  const json result = predict(bad, path("p.csv"), {"--max-bad-records", "2"});
  EXPECT_EQ(result["rows"], kPredictedRows);
  EXPECT_EQ(result["bad_records"], 2);
  std::vector<std::string> good = lines_of(read_file(path("good-out.csv")));
  good[3] = "2,";
  good[9] = "8,";
  EXPECT_EQ(lines_of(read_file(path("p.csv"))), good);
}

TEST_F(PredictTest, EvaluateMeasuresWhatTrainingMeasuredAtItsEnd) {
  const json trained = train_job({"evaluation.group_column=city",
                                  "evaluation.metrics=AUC,LOG_LOSS,PR_AUC,CALIBRATION,GROUP_AUC,"
                                  "ACCURACY,NDCG_AT_K,PRECISION_AT_K",
                                  "evaluation.k=5"});
  const std::string out = expect_good(with_job(
      "evaluate", {"--checkpoint", path("checkpoints"), "--set", "evaluation.group_column=city", "--set",
                   "evaluation.metrics=AUC,LOG_LOSS,PR_AUC,CALIBRATION,GROUP_AUC,ACCURACY,NDCG_AT_K,"
                   "PRECISION_AT_K",
                   "--set", "evaluation.k=5"}));
  const json evaluated = result_in(out);
  EXPECT_EQ(evaluated["rows"], kPredictedRows) << out;
  EXPECT_EQ(evaluated["step"], 60);
  for (const char* metric :
       {"auc", "log_loss", "pr_auc", "calibration", "group_auc", "accuracy", "ndcg_at_5", "precision_at_5"}) {
    ASSERT_TRUE(trained.contains(metric)) << metric;
    EXPECT_DOUBLE_EQ(trained[metric].get<double>(), evaluated[metric].get<double>()) << metric;
    EXPECT_THAT(out, HasSubstr(metric));
  }
  // And what follows from the predictions themselves.
  predict(path("train.csv"), path("p.csv"));
  const std::vector<std::string> predicted = values_of(read_file(path("p.csv")));
  double loss = 0, promised = 0, observed = 0;
  for (std::size_t r = 0; r < predicted.size(); ++r) {
    const double p = std::stod(predicted[r]), y = rows_[r][5] == "1" ? 1 : 0;
    loss -= std::log(y > 0 ? p : 1 - p) / kPredictedRows;
    promised += p;
    observed += y;
  }
  EXPECT_NEAR(loss, evaluated["log_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(promised / observed, evaluated["calibration"].get<double>(), 1e-6);
  expect_good(with_job("evaluate", {"--checkpoint", path("checkpoints"), "--in", path("train.csv"), "--in",
                                    path("train.csv")}));
}

TEST_F(PredictTest, TasksAndClassesHaveColumnsOfTheirOwn) {
  write("job.pbtxt", R"(
      name: "tasks" steps: 5
      model { name: "mmoe" hidden: 8 experts: 2 hash_buckets: 60 embedding_dim: 4 tasks: "click" tasks: "buy" }
      input {
        format: CSV train_files: "train.csv" test_files: "train.csv" global_batch_size: 64
        columns { name: "age" kind: NUMERIC }
        columns { name: "city" kind: CATEGORICAL buckets: 50 }
        columns { name: "click" kind: LABEL output: "click" }
        columns { name: "buy" kind: LABEL output: "buy" }
      }
      optimizer { learning_rate: 0.1 }
      runtime { device: CPU intra_op_threads: 1 })");
  std::string text;
  for (int r = 0; r < 130; ++r)
    text += std::to_string(r % 70) + ",c" + std::to_string(r % 9) + "," + (r % 3 == 0 ? "1" : "0") + "," +
            (r % 4 == 0 ? "1" : "0") + "\n";
  write("train.csv", text);
  const json trained = train_job();
  EXPECT_TRUE(trained["auc_of_tasks"].contains("buy")) << trained;
  EXPECT_TRUE(trained["log_loss_of_tasks"].contains("click")) << trained;
  EXPECT_EQ(predict(path("train.csv"), path("p.csv"))["rows"], 130);
  EXPECT_EQ(lines_of(read_file(path("p.csv")))[0], "row,click_probability,buy_probability");

  write("lines.txt", "good day\nbad day\nsome day\n");
  write("job.pbtxt", R"(
      name: "classes" steps: 5
      model { name: "transformer" hidden: 8 embedding_dim: 8 hash_buckets: 60 classes: 3 }
      input {
        format: CSV train_files: "words.csv" test_files: "words.csv" global_batch_size: 3
        columns { name: "words" kind: CATEGORICAL buckets: 50 length: 4 list_separator: " " output: "tokens" }
        columns { name: "mood" kind: CLASS vocabulary: "good" vocabulary: "bad" vocabulary: "none" }
      }
      optimizer { learning_rate: 0.1 }
      checkpoint { directory: "unused" }
      runtime { device: CPU intra_op_threads: 1 })");
  write("words.csv", "good day,good\nbad day,bad\nsome day,none\nno day,none\n");
  std::filesystem::remove_all(path("checkpoints"));
  train_job();
  EXPECT_EQ(predict(path("words.csv"), path("c.csv"))["rows"], 4);
  const std::vector<std::string> lines = lines_of(read_file(path("c.csv")));
  EXPECT_EQ(lines[0], "row,class,probability_0,probability_1,probability_2");
  EXPECT_THAT(lines[1], ::testing::MatchesRegex("0,(good|bad|none),0\\.[0-9]+,0\\.[0-9]+,0\\.[0-9]+"));
}

TEST_F(PredictTest, WhatCannotBePredictedIsRefusedBeforeAnythingIsWritten) {
  train_job();
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> all = with_job("predict", {"--checkpoint", path("checkpoints")});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refused(refused({"--in", path("none.csv"), "--out", path("p.csv")}), HasSubstr("No such file"));
  expect_refused(refused({"--in", path("train.csv"), "--out", path("p.txt")}),
                 HasSubstr("does not say a format"));
  expect_refused(refused({"--in", path("train.csv"), "--out", path("train.csv")}),
                 HasSubstr("is one of the inputs"));
  expect_refused(refused({"--in", path("train.csv"), "--out", path("p.csv"), "--key", "name"}),
                 AllOf(HasSubstr("has no column 'name'"), HasSubstr("id, age, income")));
  expect_refused(
      refused({"--in", path("train.csv"), "--out", path("p.csv"), "--set", "model.embedding_dim=5"}),
      HasSubstr("the checkpoint of step 60"));
  expect_refused(refused({"--in", path("train.csv"), "--out", path("p.csv"), "--set",
                          "input.format=GENERATOR", "--set", "input.generator.rows=9"}),
                 HasSubstr("reads no files"));
  expect_refused(
      with_job("evaluate", {"--checkpoint", path("checkpoints"), "--set", "evaluation.metric=RMSE"}),
      HasSubstr("does not measure"));
}

class EarlyStoppingTest : public IntegrationTest,
                          public ::testing::WithParamInterface<std::vector<std::string>> {};

/// Evaluations after steps 10, 20, ...; no improvement is large enough for min_delta, so that the third ends
/// it.
TEST_P(EarlyStoppingTest, AllWorkersEndAfterTheSameStepAndTheBestCheckpointStays) {
  const std::vector<std::string> cluster = GetParam();
  std::vector<std::string> arguments{"launch"};
  arguments.insert(arguments.end(), cluster.begin(), cluster.begin() + 4);
  arguments.insert(arguments.end(),
                   {"--", "train", "--job",
                    (Path(BRAID_SOURCE_DIR) / "examples/jobs/wide_deep_generated.pbtxt").string()});
  const std::vector<std::string> set{"steps=5000",
                                     "evaluation.every_steps=10",
                                     "evaluation.early_stopping.patience=2",
                                     "evaluation.early_stopping.min_delta=0.6",
                                     "checkpoint.directory=" + path("checkpoints"),
                                     "checkpoint.keep=1",
                                     "input.generator.rows=4000",
                                     "input.generator.test_rows=500",
                                     "input.global_batch_size=64",
                                     "runtime.device=CPU",
                                     "runtime.intra_op_threads=1"};
  for (const std::string& assignment : set) arguments.insert(arguments.end(), {"--set", assignment});
  for (std::size_t i = 4; i < cluster.size(); ++i) arguments.insert(arguments.end(), {"--set", cluster[i]});
  const auto process = run("launch", arguments);
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  std::vector<json> results;
  for (const std::string& line : lines_of(process->out() + process->err()))
    if (const std::size_t at = line.find("result: {"); at != std::string::npos)
      results.push_back(json::parse(line.substr(at + 8)));
  ASSERT_GE(results.size(), 2U) << process->out() << process->err();
  const bool together = cluster.back() != "strategy.consistency=ASP";
  std::uint64_t last = 0;
  int leaders = 0;
  for (const json& result : results) {
    EXPECT_EQ(result["exit"], 0) << result;
    EXPECT_LT(result["last_step"].get<std::uint64_t>(), 5000U) << result;
    if (last > 0 && together) {
      EXPECT_EQ(result["last_step"], last) << result;
    }
    last = result["last_step"];
    if (!result.contains("stopped_early")) continue;
    ++leaders;
    EXPECT_EQ(result["stopped_early"], "no improvement in 2 evaluations") << result;
    EXPECT_GE(last, 30U);
    EXPECT_LE(last, 40U);
    const std::string best = result["best"]["checkpoint"];
    EXPECT_TRUE(std::filesystem::exists(Path(best) / "MANIFEST")) << result;
    EXPECT_EQ(result["best"]["metric"], "auc");
  }
  EXPECT_EQ(leaders, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, EarlyStoppingTest,
    ::testing::Values(std::vector<std::string>{"--workers", "2", "--ps", "0", "strategy.kind=ALLREDUCE"},
                      std::vector<std::string>{"--workers", "2", "--ps", "2", "strategy.kind=PS"},
                      std::vector<std::string>{"--workers", "2", "--ps", "1", "strategy.kind=PS",
                                               "strategy.consistency=ASP"}));

TEST_F(IntegrationTest, TrainingAloneStopsAtItsTarget) {
  const auto process =
      run("train",
          {"train", "--job", (Path(BRAID_SOURCE_DIR) / "examples/jobs/wide_deep_generated.pbtxt").string(),
           "--set", "evaluation.every_steps=5", "--set", "evaluation.target=0.55", "--set",
           "runtime.device=CPU", "--set", "evaluation.metric=AUC"});
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  const json result = json::parse(process->out().substr(process->out().rfind("result: ") + 8));
  EXPECT_LT(result["last_step"], 300) << result;
  EXPECT_EQ(result["last_step"].get<int>() % 5, 0) << "at once, as nobody else has to hear of it";
  EXPECT_GE(result["auc"].get<double>(), 0.55);
  EXPECT_THAT(result["stopped_early"].get<std::string>(), HasSubstr("has reached the target"));
  const auto refused = run(
      "refused", {"train", "--job", (Path(BRAID_SOURCE_DIR) / "examples/jobs/mmoe_generated.pbtxt").string(),
                  "--set", "evaluation.target=0.5"});
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("evaluation.target needs evaluation.every_steps"));
}

}  // namespace
}  // namespace braid::integration
