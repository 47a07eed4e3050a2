// `braid infer` on a GPU: groups that launch from several threads beside each other answer as one does.
#include <nlohmann/json.hpp>

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
        "infer",   "--graph", graph,      "--output", said.substr(begin, said.find('\'', begin) - begin),
        "--batch", "16",      "--iters",  "200",      "--threads",
        "4",       "--check", "--device", "cuda"};
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

}  // namespace
}  // namespace braid::integration
