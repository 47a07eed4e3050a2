// TF_CONFIG: what operators write is read, and what is wrong is refused with its place.
#include "launch/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/expect_refused.h"
#include "tests/support/outside_data.h"

namespace braid::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Job = ClusterSpec::Job;

ClusterSpec resolve(const std::string& tf_config) { return resolve_cluster({{"TF_CONFIG", tf_config}}, {}); }

std::string refusal(const std::string& tf_config) {
  return refusal_of([&] { resolve(tf_config); });
}

TEST(TfConfigTest, OperatorCasesResolveToTheirTask) {
  const auto file = outside_data("tf_config/kubeflow_tf_operator_cases.json");
  SKIP_WITHOUT_OUTSIDE_DATA(file);
  std::ifstream stream(file);
  int read = 0;
  int refused = 0;
  for (const auto& sample : nlohmann::json::parse(stream)) {
    const std::string text = sample["tf_config_text"];
    SCOPED_TRACE(text);
    if (text.empty()) {  // the operator leaves the variable unset
      EXPECT_TRUE(resolve_cluster({}, {}).single_machine());
    } else if (sample["note"].get<std::string>().find("NOT valid JSON") != std::string::npos) {
      EXPECT_THAT(refusal(text), HasSubstr("not valid JSON at byte 203 (line 10, column 5)"));
      ++refused;
    } else {
      const ClusterSpec spec = resolve(text);
      const auto expected = nlohmann::json::parse(text);
      EXPECT_EQ(job_name(spec.task.type), expected["task"]["type"].get<std::string>());
      EXPECT_EQ(spec.task.index, expected["task"]["index"].get<int>());
      EXPECT_TRUE(spec.address(spec.task).has_value());
      EXPECT_TRUE(spec.addresses_known());
      EXPECT_EQ(spec.evaluator.size(), expected["cluster"].contains("evaluator") ? 1u : 0u);
      ++read;
    }
  }
  EXPECT_EQ(read, 12);
  EXPECT_EQ(refused, 1);
}

TEST(TfConfigTest, ChiefComesBeforeWorkersInTheRanks) {
  const ClusterSpec spec = resolve(
      R"({"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"], "chief": ["d:1"]}, "task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(spec.rank, 2);
  EXPECT_EQ(spec.world, 3);
  EXPECT_EQ(spec.leader(), (Task{TaskType::Chief, 0}));
  EXPECT_FALSE(spec.is_leader());
  EXPECT_EQ(
      spec.describe(),
      "worker 1, rank 2 of 3, local rank 0 of 1; cluster: 1 chief (d:1), 2 worker (a:1 b:1), 1 ps (c:1); "
      "from TF_CONFIG");
}

TEST(TfConfigTest, MasterIsTheChiefAndWorkerZeroLeadsWithoutOne) {
  const ClusterSpec master = resolve(
      R"({"cluster": {"master": ["a:1"], "worker": ["b:1"]}, "task": {"type": "master", "index": 0}})");
  EXPECT_EQ(master.chief, (Job{{0, "a:1"}}));
  EXPECT_TRUE(master.is_leader());
  const ClusterSpec worker =
      resolve(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_TRUE(worker.is_leader());
}

TEST(TfConfigTest, ServersAndEvaluatorsHaveNoRank) {
  const std::string cluster = R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": )";
  EXPECT_EQ(resolve(cluster + R"({"type": "ps", "index": 0}})").rank, std::nullopt);
  const ClusterSpec evaluator = resolve(cluster + R"({"type": "evaluator", "index": 0}})");
  EXPECT_EQ(evaluator.rank, std::nullopt);
  EXPECT_EQ(evaluator.address(evaluator.task), std::nullopt);
  EXPECT_EQ(evaluator.world, 1);
}

TEST(TfConfigTest, IndexMayBeAString) {
  EXPECT_EQ(
      resolve(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "1"}})").rank,
      1);
}

TEST(TfConfigTest, SparseWorkersArePartial) {
  for (const char* key : {"cluster", "sparseCluster"}) {
    const ClusterSpec spec =
        resolve(std::string("{\"") + key +
                R"(": {"worker": {"3": "w3:1"}, "ps": ["p:1"]}, "task": {"type": "worker", "index": 3}})");
    EXPECT_TRUE(spec.partial);
    EXPECT_EQ(spec.worker, (Job{{3, "w3:1"}}));
    EXPECT_EQ(spec.rank, 3);
  }
}

TEST(TfConfigTest, CompleteIndexObjectsAreNotPartial) {
  const ClusterSpec spec =
      resolve(R"({"cluster": {"worker": {"1": "b:1", "0": "a:1"}}, "task": {"type": "worker", "index": 1}})");
  EXPECT_FALSE(spec.partial);
  EXPECT_EQ(spec.worker, (Job{{0, "a:1"}, {1, "b:1"}}));
}

TEST(TfConfigTest, ServerOfDynamicWorkersTrustsItsTask) {
  const ClusterSpec spec =
      resolve(R"({"cluster": {"worker": {}, "ps": ["own:1"]}, "task": {"type": "ps", "index": 2}})");
  EXPECT_EQ(spec.task, (Task{TaskType::Ps, 2}));
  EXPECT_EQ(spec.ps, (Job{{2, "own:1"}}));
  EXPECT_TRUE(spec.partial);
}

TEST(TfConfigTest, ChiefOfDynamicWorkersNeedNotBeListed) {
  const ClusterSpec spec =
      resolve(R"({"cluster": {"worker": {}, "ps": []}, "task": {"type": "chief", "index": 0}})");
  EXPECT_TRUE(spec.is_leader());
  EXPECT_TRUE(spec.partial);
  EXPECT_FALSE(spec.addresses_known());
}

TEST(TfConfigTest, Ipv6HostsAreRead) {
  const ClusterSpec spec = resolve(
      R"({"cluster": {"worker": ["[::1]:4000", "[fd00::2]:4000"]}, "task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(spec.worker.at(1), "[fd00::2]:4000");
  EXPECT_EQ(spec.local_rank, 0);
}

TEST(TfConfigTest, LocalRankCountsTasksOfTheSameHost) {
  const ClusterSpec spec = resolve(
      R"({"cluster": {"worker": ["h1:1", "h2:1", "h1:2", "h2:2"], "ps": ["h2:3"]}, "task": {"type": "worker", "index": 3}})");
  EXPECT_EQ(spec.local_rank, 1);
  EXPECT_EQ(spec.local_world, 2);
}

TEST(TfConfigTest, NoClusterIsASingleMachine) {
  for (const char* text : {"{}", R"({"cluster": {}})", R"({"task": {"type": "worker", "index": 0}})",
                           R"({"environment": "cloud"})"}) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(resolve(text).single_machine());
    EXPECT_TRUE(resolve(text).is_leader());
  }
  EXPECT_THAT(refusal(R"({"task": {"type": "worker", "index": 1}})"), HasSubstr("no cluster is given"));
  EXPECT_THAT(refusal(R"({"task": {"type": "ps", "index": 0}})"), HasSubstr("no cluster is given"));
}

TEST(TfConfigTest, EmptyTextIsNotUnset) { EXPECT_THAT(refusal(""), HasSubstr("TF_CONFIG is set but empty")); }

struct BadConfig {
  const char* text;
  const char* place;
  const char* reason;
};

class BadTfConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadTfConfigTest, IsRefusedWithItsPlace) {
  EXPECT_THAT(refusal(GetParam().text), AllOf(HasSubstr(GetParam().place), HasSubstr(GetParam().reason)));
}

#define WORKERS R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": )"

INSTANTIATE_TEST_SUITE_P(
    All, BadTfConfigTest,
    ::testing::Values(
        BadConfig{"{\"cluster\":", "byte 11 (line 1, column 12)", "syntax error"},
        BadConfig{"not json", "byte 1", "syntax error"},
        BadConfig{"[1]", "TF_CONFIG $:", "expected an object, got array"},
        BadConfig{R"({"cluster": ["a:1"]})", "$.cluster:", "expected an object of jobs, got array"},
        BadConfig{R"({"cluster": {"worker": "a:1"}})", "$.cluster.worker:", "expected a list or an object"},
        BadConfig{R"({"cluster": {"worker": [1]}})",
                  "$.cluster.worker[0]:", "expected an address, got number"},
        BadConfig{R"({"cluster": {"worker": {"x": "a:1"}}})",
                  "$.cluster.worker.x:", "expected an index >= 0, got x"},
        BadConfig{R"({"cluster": {"wroker": ["a:1"]}})", "$.cluster:", "unknown job 'wroker'"},
        BadConfig{R"({"cluster": {"worker": ["a"]}})", "$.cluster.worker[0]:", "'a' has no port"},
        BadConfig{R"({"cluster": {"worker": ["a:0"]}})", "$.cluster.worker[0]:", "not in 1..65535"},
        BadConfig{R"({"cluster": {"worker": ["a:70000"]}})", "$.cluster.worker[0]:", "not in 1..65535"},
        BadConfig{R"({"cluster": {"worker": [":1"]}})", "$.cluster.worker[0]:", "no valid host"},
        BadConfig{R"({"cluster": {"worker": ["fd00::2:80"]}})", "$.cluster.worker[0]:", "[host]:port"},
        BadConfig{R"({"cluster": {"worker": ["[::1]"]}})", "$.cluster.worker[0]:", "has no port"},
        BadConfig{R"({"cluster": {"worker": ["a:1"], "ps": ["a:1"]}})",
                  "$.cluster.ps[0]:", "is also TF_CONFIG $.cluster.worker[0]"},
        BadConfig{R"({"cluster": {"chief": ["a:1", "b:1"]}})", "$.cluster.chief[1]:", "at most one chief"},
        BadConfig{R"({"cluster": {"worker": ["w:1"], "evaluator": ["a:1", "b:1"]}})",
                  "$.cluster.evaluator[1]:", "at most one evaluator"},
        BadConfig{R"({"cluster": {"chief": ["a:1"], "master": ["b:1"]}})",
                  "$.cluster:", "both 'chief' and 'master'"},
        BadConfig{R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
                  "$.cluster:", "no worker and no chief"},
        BadConfig{R"({"cluster": {"worker": ["a:1"]}, "sparseCluster": {"worker": ["a:1"]}})",
                  "TF_CONFIG $:", "both \"cluster\" and"},
        BadConfig{WORKERS "3}", "$.task:", "expected an object, got number"},
        BadConfig{WORKERS R"({"index": 0}})", "$.task.type:", "missing"},
        BadConfig{WORKERS R"({"type": 1, "index": 0}})", "$.task.type:", "expected a job's name"},
        BadConfig{WORKERS R"({"type": "boss", "index": 0}})", "$.task.type:", "unknown type 'boss'"},
        BadConfig{WORKERS R"({"type": "worker"}})", "$.task.index:", "missing"},
        BadConfig{WORKERS R"({"type": "worker", "index": -1}})", "$.task.index:", "got -1"},
        BadConfig{WORKERS R"({"type": "worker", "index": 1.5}})",
                  "$.task.index:", "expected an index, got number"},
        BadConfig{WORKERS R"({"type": "worker", "index": "one"}})", "$.task.index:", "got one"},
        BadConfig{WORKERS R"({"type": "worker", "index": 4294967296}})", "$.task.index:", "got 4294967296"},
        BadConfig{WORKERS R"({"type": "worker", "index": 2}})",
                  "$.task:", "worker 2: the index is out of range"},
        BadConfig{WORKERS R"({"type": "ps", "index": 0}})", "$.task:", "the cluster lists no ps"},
        BadConfig{WORKERS R"({"type": "evaluator", "index": 1}})", "$.task:", "at most one evaluator"},
        BadConfig{R"({"cluster": {"worker": ["a:1", "b:1"]}})", "TF_CONFIG lists 2 tasks",
                  "not which of them this is"}));

TEST(TfConfigTest, WrittenTextReadsBackAsTheSameCluster) {
  for (const char* text :
       {R"({"cluster": {"worker": ["a:1", "b:1"], "ps": ["[::1]:2"]}, "task": {"type": "ps", "index": 0}})",
        R"({"cluster": {"worker": {"1": "b:1"}, "ps": ["p:1"]}, "task": {"type": "worker", "index": 1}})"}) {
    const ClusterSpec spec = resolve(text);
    const ClusterSpec again = resolve(write_tf_config(spec, spec.task));
    EXPECT_EQ(again.describe(), spec.describe());
    EXPECT_EQ(again.tasks(), spec.tasks());
  }
}

std::string refusal_of_workers(const std::string& addresses) {
  return refusal(R"({"cluster": {"worker": [)" + addresses +
                 R"(]}, "task": {"type": "worker", "index": 0}})");
}

TEST(TfConfigTest, AKeyThatIsThereTwiceIsRefused) {
  EXPECT_THAT(refusal(R"({"cluster": {"worker": ["a:1"], "worker": ["b:1", "c:1"]}})"),
              HasSubstr(R"(TF_CONFIG: the key "worker" is there twice)"));
  EXPECT_NO_THROW(resolve(
      R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "x": {"task": 1}})"));
}

TEST(TfConfigTest, OneAddressInTwoWaysIsRefused) {
  for (const char* pair : {R"("a.b:1", "A.b:1")", R"("a:1", "a:01")", R"("[::1]:1", "[0:0::1]:1")",
                           R"("[fe80::1%eth0]:1", "[FE80::1%eth0]:1")"})
    EXPECT_THAT(refusal_of_workers(pair), HasSubstr("is also TF_CONFIG $.cluster.worker[0]")) << pair;
}

TEST(TfConfigTest, HostsThatCanBeNoneAreRefused) {
  for (const char* host : {"[::g]", "[1.2.3.4]", "[::1%]", "[::1 ]", "a\\u0000b", "a,b", "a@b", "\xc3\xa4"})
    EXPECT_THAT(refusal_of_workers('"' + std::string(host) + R"(:1")"), HasSubstr("has no valid host"))
        << host;
  EXPECT_THAT(refusal_of_workers(R"("grpc://a:1")"), HasSubstr("has a scheme"));
}

}  // namespace
}  // namespace braid::launch
