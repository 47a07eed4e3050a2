// `braid infer` on a GPU: groups that launch from several threads beside each other answer as one does.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/formats/npy.h"
#include "tests/gpu/gpu_job.h"

namespace braid::integration {
namespace {

class InferDeviceTest : public IntegrationTest {
 protected:
  void SetUp() override { REQUIRE_GPUS(1); }

  /// The result of 4 clients with 200 requests each, every answer checked.
  nlohmann::json infer(std::vector<std::string> more) {
    const std::string graph = (directory() / "dlrm.pb").string();
    const auto exported = run("export", {"graph", "export", "--model", "dlrm", "--inference", "--out", graph,
                                         "--hash-buckets", "200"});
    const std::string said = exported->out();
    const std::size_t begin = said.find('\'') + 1;
    std::vector<std::string> arguments{
        "infer",   "--graph", graph,         "--output", said.substr(begin, said.find('\'', begin) - begin),
        "--batch", "16",      "--iters",     "200",      "--threads",
        "4",       "--check", "--untrained", "--device", "cuda"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run("infer", arguments);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    const std::string out = process->out();
    return nlohmann::json::parse(out.substr(out.rfind("result: ") + 8));
  }
};

TEST_F(InferDeviceTest, GroupsAnswerAsASingleGroup) {
  for (const std::string groups : {"1", "4"})
    for (const bool merged : {false, true}) {
      std::vector<std::string> more{"--groups", groups};
      if (merged) more.emplace_back("--merge-streams");
      const auto result = infer(more);
      EXPECT_EQ(result["requests"], 800);
      EXPECT_EQ(result["different"], 0);
    }
}

TEST_F(InferDeviceTest, LaunchThreadsAndStreamsOfPrioritiesChangeNoAnswer) {
  const auto result = infer({"--groups", "3", "--launch", "private", "--streams", "4", "--policy", "COST",
                             "--set", "streams.priorities=1,0,0,0"});
  EXPECT_EQ(result["different"], 0);
  EXPECT_EQ(result["group_busy_seconds"].size(), 3U);
}

TEST_F(InferDeviceTest, SharesOfMultiprocessorsChangeNoAnswer) {
  for (const std::string shares : {"32:group0/.*,32:group1/.*", "rest:group0/.*,25%:group1/compute.*"}) {
    const auto result = infer(
        {"--groups", "2", "--streams", "2", "--policy", "COST", "--set", "streams.partition=" + shares});
    EXPECT_EQ(result["requests"], 800);
    EXPECT_EQ(result["different"], 0) << shares;
  }
}

TEST_F(InferDeviceTest, MoreMultiprocessorsThanTheDeviceHasAreRefused) {
  const std::string graph = (directory() / "mlp.pb").string();
  ASSERT_EQ(run("export", {"graph", "export", "--model", "mlp", "--inference", "--out", graph})->exit_code(),
            0);
  const auto process = run("many", {"infer", "--graph", graph, "--output", "logits/BiasAdd", "--untrained",
                                    "--device", "cuda", "--set", "streams.partition=100000:group0/.*"});
  EXPECT_EQ(process->exit_code(), 2) << process->err();
  EXPECT_THAT(process->err(), ::testing::HasSubstr("streams.partition '100000:group0/.*': of the device's "));
}

/// Batches that differ: an answer that is left from another request shows.
TEST_F(InferDeviceTest, EveryBatchHasTheAnswerOfTheCpu) {
  const std::string graph = (directory() / "mlp.pb").string(), rows = (directory() / "rows.npy").string();
  const auto exported = run("export", {"graph", "export", "--model", "mlp", "--inference", "--out", graph});
  ASSERT_EQ(exported->exit_code(), 0) << exported->err();
  constexpr std::int64_t kRows = 512, kPixels = 784;
  std::vector<float> pixels(kRows * kPixels);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 7919 % 1009) / 1009;
  const std::vector<std::int64_t> shape{kRows, 28, 28, 1};
  write_file_atomically(rows, format_npy(DType::Float32, shape, std::as_bytes(std::span(pixels))));
  const auto answers = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments{"infer",
                                       "--graph",
                                       graph,
                                       "--input",
                                       "image=" + rows,
                                       "--output",
                                       "logits/BiasAdd",
                                       "--batch",
                                       "16",
                                       "--iters",
                                       "64",
                                       "--threads",
                                       "4",
                                       "--set",
                                       "runtime.tf32=false",
                                       "--untrained",
                                       "--out",
                                       (directory() / name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run(name, arguments);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    const std::string bytes = read_file(directory() / name / "logits_BiasAdd.npy");
    std::vector<float> values(kRows * 10);
    EXPECT_GT(bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), bytes.data() + bytes.size() - values.size() * sizeof(float),
                values.size() * sizeof(float));
    return values;
  };
  const std::vector<float> expected = answers("cpu", {"--device", "cpu"});
  for (const std::string groups : {"1", "3"})
    for (const bool merged : {false, true}) {
      std::vector<std::string> more{"--device", "cuda", "--groups", groups};
      if (merged) more.emplace_back("--merge-streams");
      const std::vector<float> got = answers("cuda" + groups + (merged ? "merged" : ""), more);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 1e-3F) << groups << ", " << i;
    }
}

}  // namespace
}  // namespace braid::integration
