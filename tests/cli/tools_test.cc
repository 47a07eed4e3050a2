// The subcommands that look at graphs and checkpoints, on real files.
#include <gmock/gmock.h>

#include <fstream>

#include "base/files.h"
#include "tests/cli/tool_test.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ToolsTest : public ToolTest {};

/// Graphs that TensorFlow has written, and the folder of their scripts.
const Path kGolden = Path(BRAID_SOURCE_DIR) / "tests/engine";

TEST_F(ToolsTest, GraphsOfTensorFlowAreCheckedShownAndPlanned) {
  for (const char* name : {"mlp.pbtxt", "lstm.pbtxt"}) {
    const std::string graph = (kGolden / "import/golden/graphs" / name).string();
    EXPECT_THAT(expect_good({"graph", "check", graph}), HasSubstr("all of them can be loaded"));
    EXPECT_THAT(expect_good({"graph", "show", graph}), HasSubstr("MatMul"));
    for (const char* policy : {"NONE", "USER", "COST", "FULL", "EMBEDDING"})
      EXPECT_THAT(expect_good({"graph", "plan", "--streams", "2", "--policy", policy, graph}),
                  AllOf(HasSubstr(std::string("policy ") + policy), HasSubstr("compute1"),
                        HasSubstr("memory: arena")));
  }
}

TEST_F(ToolsTest, AJobsStepIsPlannedDrawnMeasuredAndSteeredByRules) {
  const std::string job = (Path(BRAID_SOURCE_DIR) / "examples/jobs/linear_regression.pbtxt").string();
  const Path dot = directory() / "plan.dot", rules = directory() / "rules.txt";
  std::ofstream(rules) << "# everything of y\n1:y/.*,.*Mean.*\n1:nothing/like/this\n";
  const std::string plan = expect_good({"graph", "plan", "--job", job, "--streams", "2", "--policy", "AUTO",
                                        "--measure", "--dot", dot.string(), "--rules", rules.string()});
  EXPECT_THAT(plan, AllOf(HasSubstr("streams: AUTO took "), HasSubstr("the others are predicted to take"),
                          HasSubstr("rules.txt:3: no node matches '1:nothing/like/this'")));
  expect_good({"graph", "plan", "--job", job, "--streams", "2", "--policy", "USER", "--dot", dot.string(),
               "--rules", rules.string()});
  EXPECT_THAT(read_file(dot), AllOf(HasSubstr("digraph program {"), HasSubstr("label=\"compute0\""),
                                    HasSubstr("label=\"compute1\""), HasSubstr("MatMul")));
  std::ofstream(rules) << "2:.*\n";
  const auto refused =
      run("plan", {"graph", "plan", "--job", job, "--streams", "2", "--rules", rules.string()});
  EXPECT_EQ(refused->wait({}), 2);
  EXPECT_THAT(refused->err(),
              HasSubstr("stream 2 does not exist; the program has 2 compute streams (0 to 1)"));
}

TEST_F(ToolsTest, APlanHasThePullsPushesAndCollectivesOfAWorker) {
  const std::string job = (Path(BRAID_SOURCE_DIR) / "examples/jobs/mmoe_generated.pbtxt").string();
  const auto plan = [&](const std::string& strategy, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"graph",    "plan", "--job", job,
                                       "--device", "cpu",  "--set", "strategy.kind=" + strategy};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return expect_good(arguments);
  };
  EXPECT_THAT(plan("PS"), AllOf(HasSubstr("and 2 lanes"), HasSubstr("braid.PsRows 'ps/pull_rows'"),
                                HasSubstr("braid.PsPushRows 'ps/push_rows0'")));
  EXPECT_THAT(plan("PS_ALLREDUCE", {"--workers", "2"}),
              AllOf(HasSubstr("and 3 lanes"), HasSubstr("braid.PsRows 'ps/pull_rows'"),
                    HasSubstr("braid.AllReduce 'all_reduce/bucket0'")));
  EXPECT_THAT(plan("ALLREDUCE", {"--workers", "2"}),
              AllOf(HasSubstr("and 1 lane,"), HasSubstr("braid.AllReduce 'all_reduce/bucket0'"),
                    HasSubstr("braid.AllGatherRows 'all_gather/city/table'")));
  EXPECT_THAT(plan("LOCAL"), HasSubstr("and 0 lanes"));
  const Path rules = directory() / "ps.txt";
  std::ofstream(rules) << "1:ps/.*\n";
  const std::vector<std::string> by_rules{"--workers", "2", "--streams", "2", "--rules", rules.string()};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = by_rules;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_THAT(plan("PS", with({"--policy", "USER"})), HasSubstr("(first: 'ps/pull_rows')"));
  // What is the fastest depends on the machine.
  EXPECT_THAT(plan("PS", with({"--measure"})),
              AllOf(HasSubstr("streams: AUTO took "), Not(HasSubstr("not measured"))));
  const auto uneven =
      run("uneven", {"graph", "plan", "--job", job, "--set", "strategy.kind=PS", "--workers", "3"});
  EXPECT_EQ(uneven->wait({}), 0) << uneven->err();
  const auto few = run("few", {"graph", "plan", "--job", job, "--set", "strategy.kind=PS", "--set",
                               "input.global_batch_size=2", "--workers", "3"});
  EXPECT_EQ(few->wait({}), 2);
  EXPECT_THAT(few->err(), HasSubstr("input.global_batch_size is 2, fewer than one row for each of the 3"));
  const auto alone = run("alone", {"graph", "plan", "--job", job, "--workers", "2"});
  EXPECT_EQ(alone->wait({}), 2);
  EXPECT_THAT(alone->err(), HasSubstr("--workers: strategy.kind is LOCAL"));
}

TEST_F(ToolsTest, ABuildWithoutCudaPlansForNoDevice) {
  const std::string job = (Path(BRAID_SOURCE_DIR) / "examples/jobs/mmoe_generated.pbtxt").string();
  const auto process = run("plan", {"graph", "plan", "--job", job, "--device", "cuda"});
  const int exit_code = process->exit_code();
  EXPECT_THAT(process->out(), Not(HasSubstr("op MatMul has no CUDA kernel")));
  if (exit_code != 0) {  // with CUDA it is a plan, whether or not there is a device
    EXPECT_EQ(exit_code, 2);
    EXPECT_THAT(process->err(), HasSubstr("this build has no CUDA kernels"));
  }
}

TEST_F(ToolsTest, PlansAreComparedWithTheMemoryThatOneStreamTakes) {
  const std::string job = (Path(BRAID_SOURCE_DIR) / "examples/jobs/mmoe_generated.pbtxt").string();
  const std::string none =
      expect_good({"graph", "plan", "--job", job, "--policy", "NONE", "--device", "cpu"});
  const std::size_t at = none.find("memory: arena ") + 14;
  const std::string alone = none.substr(at, none.find(',', at) - at);
  EXPECT_THAT(none, HasSubstr("arena " + alone + ", on one stream " + alone + " (1.00x)"));
  const std::string streams =
      expect_good({"graph", "plan", "--job", job, "--streams", "4", "--policy", "FULL", "--device", "cpu"});
  EXPECT_THAT(streams, HasSubstr(", on one stream " + alone + " ("));
  EXPECT_THAT(streams, Not(HasSubstr("memory: arena " + alone)));
}

TEST_F(ToolsTest, GraphCheckNamesEveryOpThatIsNotSupported) {
  const Path file = directory() / "graph.pbtxt";
  std::ofstream(file)
      << "node { name: 'a' op: 'Foo' } node { name: 'b' op: 'Foo' } node { name: 'c' op: 'Merge' }";
  const auto process = run("check", {"graph", "check", file.string()});
  EXPECT_EQ(process->wait({}), 2);
  EXPECT_THAT(process->out(), AllOf(HasSubstr("3 of 3 nodes cannot be loaded"), ContainsRegex("Foo +2"),
                                    HasSubstr("control flow is not supported (c)")));
}

TEST_F(ToolsTest, AWholeTrainingGraphWithItsSaversCanBeLoaded) {
  EXPECT_THAT(expect_good({"graph", "check", (kGolden / "autodiff/golden/graph.pbtxt").string()}),
              HasSubstr("190 nodes, all of them can be loaded"));
}

TEST_F(ToolsTest, CheckpointsAreListedAndShown) {
  const Path root = directory() / "checkpoints";
  Cluster cluster(directory() / "job", linear_regression().with({"steps=30"}).with(checkpoints_in(root, 10)),
                  {});
  cluster.expect_success();
  const std::string listed = expect_good({"ckpt", "ls", root.string()});
  EXPECT_THAT(listed, AllOf(ContainsRegex("step +20 +1 shards"), ContainsRegex("step +30 +1 shards")));
  EXPECT_EQ(listed.find("step         10"), std::string::npos) << "two are kept";
  EXPECT_THAT(
      expect_good({"ckpt", "show", (root / "step-000000000030").string()}),
      AllOf(HasSubstr("job linear_regression  step 30"), HasSubstr("worker-0.shard"), HasSubstr("float32")));
}

TEST_F(ToolsTest, GeneratedClicksAreTheSameForTheSameSeed) {
  const auto made = [&](const std::string& name, const std::string& seed) {
    const Path out = directory() / name;
    EXPECT_THAT(expect_good({"data", "criteo", "--rows", "300", "--seed", seed, "--out", out.string()}),
                HasSubstr("AUC of the true probabilities"));
    return files_in(out);
  };
  const Files first = made("a", "1");
  EXPECT_EQ(first.size(), 2U);
  EXPECT_TRUE(made("b", "1") == first);
  EXPECT_FALSE(made("c", "2") == first);
}

TEST_F(ToolsTest, PrintedJobsCanBeRunAgain) {
  std::vector<std::string> arguments = linear_regression().with({"steps=7"}).arguments();
  arguments.emplace_back("--print-job");
  const auto printed = run("printed", arguments);
  EXPECT_EQ(printed->wait({}), 0);
  const auto again = run("again", {"train", "--job", (directory() / "printed.out").string()});
  EXPECT_EQ(result_of(*again).steps, 7U);
}

}  // namespace
}  // namespace braid::integration
