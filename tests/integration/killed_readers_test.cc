// Each way of reading rows, killed at ten moments: the same bits, also with other workers.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "tests/integration/count_model.h"
#include "tests/integration/killed_often.h"

namespace braid::integration {
namespace {

constexpr const char* kParquetJob = R"(
name: "parquet" seed: 3
model { name: "wide_deep" hidden: 16 embedding_dim: 4 }
input {
  format: PARQUET train_files: "rows.parquet" global_batch_size: 64
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 50 }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: ADAM learning_rate: 0.02 }
runtime { intra_op_threads: 1 device: CPU }
)";

constexpr const char* kCountJob = R"(
name: "count" seed: 3
model {{ graph {{ file: "{}" loss: "loss" feeds {{ value: "id" column: "label" }} frozen: "w" }} }}
input {{ format: {} train_files: "rows.*" csv {{ header: true }} columns {{ name: "id" kind: CLASS }} }}
optimizer {{ kind: SGD learning_rate: 64 }}
runtime {{ device: CPU intra_op_threads: 1 }}
evaluation {{ enabled: false }}
)";

class KilledReadersFaultTest : public IntegrationTest {
 protected:
  Path made(const std::string& name, std::vector<std::string> arguments) {
    const Path path = directory() / name;
    arguments.insert(arguments.end(), {"--out", path.string()});
    const auto process = run("make-" + name, std::move(arguments));
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return path;
  }
  /// `steps` of 64 rows that are streamed in small blocks.
  static Job streamed(Job job, int steps, const std::vector<std::string>& set) {
    return job
        .with({"input.read=STREAM", "input.stream.block_bytes=4096", "input.stream.window_rows=256",
               "input.stream.virtual_shards=4", "staging.num_threads=2", "staging.capacity=3",
               "streams.policy=COST", "model.dropout=0", "steps=" + std::to_string(steps)})
        .with(set);
  }
  Job clicks(const std::string& format, const std::vector<std::string>& set) {
    const Path data = directory() / "clicks";
    if (!std::filesystem::exists(data))
      made("clicks", {"data", "criteo", "--rows", "4000", "--seed", "3", "--format", format});
    return streamed(dlrm(directory()), kSteps, set)
        .with({"input.train_files=clicks/train." + format, "optimizer.kind=ADAM"});
  }
  /// MLPerf's rows, of the layout that `format` says.
  Job mlperf(const std::string& format) {
    const Path rows =
        made("rows", {"data", "mlperf-dlrm", "--rows", "2000", "--seed", "3", "--format", format});
    Job job{"mlperf_dlrm_v2.pbtxt",
            rows,
            {"model.embedding_dim=4", "model.max_rows=20", "model.bottom=8", "model.hidden=12,6",
             "model.cross_rank=3", "input.global_batch_size=32", "evaluation.enabled=false",
             "runtime.device=CPU", "runtime.intra_op_threads=1"}};
    job = streamed(job, kSteps, {"input.stream.block_bytes=20000"});
    return format == "npy" ? job.with({"input.train_files=train_labels.npy"}) : job;
  }
  void expect_the_same(const Job& job) {
    const auto in = [&](const std::string& folder) {
      std::filesystem::create_directories(directory() / folder);
      return directory() / folder;
    };
    const auto job_in = [&](const Path& root) { return job.with(checkpoints_in(root, kEvery)); };
    expect_kills_change_nothing(in("kills"), job_in, kSteps, kEvery);
    if (!HasFailure()) expect_other_workers_go_on(in("workers"), job_in, 2 * kEvery);
  }
  /// Rows with a number each, for count_graph(); batches of 64.
  Job counted(const std::string& format, int steps, const std::vector<std::string>& set) {
    constexpr int kRows = 4000;
    std::minstd_rand random(11);
    std::vector<int> first;
    for (int r = 0; r < kRows; ++r) first.push_back(static_cast<int>(random() >> 15));  // below 2^16
    write("count.pbtxt", count_graph(kRows, 1, first));
    return Job{write("job.pbtxt", fmt::format(kCountJob, path("count.pbtxt"), format)),
               directory(),
               {"input.global_batch_size=64", "steps=" + std::to_string(steps), "staging.num_threads=2",
                "staging.capacity=3", "metrics.progress_seconds=0.05"}}
        .with(set);
  }
  std::string numbers() {
    std::string rows = "id\n";
    for (int r = 0; r < 4000; ++r) rows += fmt::format("{}\n", r);
    return write("rows.csv", rows);
  }
  /// Killed ten times, each time with another number of workers.
  void expect_exact(const Job& job) {
    const auto job_in = [&](const Path& root) { return job.with(checkpoints_in(root, kEvery)); };
    expect_the_bits_of_one_worker(directory(), job_in, 2 * kEvery, {1, 2, 4, 1, 4, 2, 1, 2, 4, 2, 4});
  }
  static constexpr int kSteps = 180, kEvery = 10;
};

TEST_F(KilledReadersFaultTest, DirectReads) {
  expect_the_same(clicks("tsv", {"input.stream.direct_reads=ON"}));
}

TEST_F(KilledReadersFaultTest, TfRecord) { expect_the_same(clicks("tfrecord", {})); }

#ifdef BRAID_TEST_PYTHON  // this build has Apache Arrow
TEST_F(KilledReadersFaultTest, Parquet) {
  std::minstd_rand random(7);
  std::string rows = "age,city,clicked\n";
  for (int r = 0; r < 4000; ++r) {
    const auto age = random() % 80, city = random() % 40;
    // Long and not alike, so that the file has a dozen blocks of row groups.
    rows += fmt::format("{},{:0>700}{:0>8},{}\n", age, random(), city, (age + city) % 3 == 0 ? 1 : 0);
  }
  const auto made = run("make", {"data", "convert", write("rows.csv", rows), "--out", path("rows.parquet"),
                                 "--row-group", "64"});
  ASSERT_EQ(made->exit_code(), 0) << made->err();
  expect_the_same(streamed({write("job.pbtxt", kParquetJob), directory(), {}}, kSteps,
                           {"input.stream.memory_bytes=4194304"}));
}

/// Of an S3 server whose answers are cut and late.
TEST_F(KilledReadersFaultTest, RowsOfAStoreHaveTheBitsOfOneWorkerToo) {
  const std::string script = fmt::format("{}/tests/engine/input/s3_server.py", BRAID_SOURCE_DIR);
  Process server({BRAID_TEST_PYTHON, script, "--stay", numbers()}, {}, directory() / "store");
  if (!server.says("ready "))
    GTEST_SKIP() << "no moto in " << BRAID_TEST_PYTHON << ": tests/engine/input/requirements.txt";
  int port = 0, proxy = 0;
  std::istringstream(server.out().substr(std::string("ready").size())) >> port >> proxy;
  for (const auto& [name, value] : Variables{{"AWS_ACCESS_KEY_ID", "key"},
                                             {"AWS_SECRET_ACCESS_KEY", "secret"},
                                             {"AWS_EC2_METADATA_DISABLED", "true"}})
    ::setenv(name.c_str(), value.c_str(), 1);
  const Job job = counted(
      "CSV", 200,
      {fmt::format("input.train_files=s3://clicks/data/rows.csv?endpoint_override=127.0.0.1:{}&scheme=http&"
                   "region=us-east-1",
                   proxy),
       "input.read=STREAM", "input.stream.block_bytes=4096", "input.stream.window_rows=256",
       "input.stream.virtual_shards=4", "input.stream.index_directory=" + path("index")});
  const auto job_in = [&](const Path& root) { return job.with(checkpoints_in(root, kEvery)); };
  expect_the_bits_of_one_worker(directory(), job_in, 2 * kEvery, {1, 2, 4, 2});
}
#endif

TEST_F(KilledReadersFaultTest, MlperfArrays) { expect_the_same(mlperf("npy")); }

TEST_F(KilledReadersFaultTest, MlperfRows) { expect_the_same(mlperf("bin")); }

TEST_F(KilledReadersFaultTest, OnAnyNumberOfWorkersTheBitsAreThoseOfOne) {
  numbers();
  expect_exact(counted("CSV", 400,
                       {"input.read=STREAM", "input.stream.block_bytes=256", "input.stream.window_rows=256",
                        "input.stream.virtual_shards=4"}));
}

TEST_F(KilledReadersFaultTest, RowsInMemoryHaveTheBitsOfOneWorkerToo) {
  numbers();
  expect_exact(counted("CSV", 400, {"input.read=MEMORY"}));
}

}  // namespace
}  // namespace braid::integration
