// Settings of TensorFlow programs as users pass them: `--config` and the environment of a process.
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/integration/run.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SettingsTest : public IntegrationTest {
 protected:
  std::string config() const {
    return write(
        "config.pbtxt",
        "graph_options { rewrite_options { use_multi_stream: ON multi_stream_opts { multi_stream_num: "
        "3 } } }\ngpu_options { allow_growth: true }\n");
  }
};

constexpr const char* kNegative = R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: 4 } } } } }
    node { name: "a" op: "Neg" input: "x" })";

const Variables kTwoStreams{{"TF_GPU_STREAM_GROUP_COUNT", "2"}, {"TF_NODE_LEVEL_MULTISTREAM", "true"}};

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST_F(SettingsTest, FlagThenJobThenConfigThenEnvironment) {
  const std::string job =
      write("job.pbtxt",
            "model { name: 'linear_regression' } steps: 1 optimizer { learning_rate: 0.01 } input { format: "
            "SYNTHETIC global_batch_size: 17 }");
  const std::string with_streams = write("four.pbtxt", "streams { count: 4 }\n" + read_file(job));
  const auto streams = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> arguments{"train", "--job", file, "--print-job"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run("printed", arguments, kTwoStreams);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    const std::string out = process->out();
    const std::size_t at = out.find("count: ", out.find("streams {"));
    return at == std::string::npos ? out : out.substr(at + 7, 1);
  };
  EXPECT_EQ(streams(job, {}), "2");
  EXPECT_EQ(streams(job, {"--config", config()}), "3");
  EXPECT_EQ(streams(with_streams, {"--config", config()}), "4");
  EXPECT_EQ(streams(with_streams, {"--config", config(), "--set", "streams.count=5"}), "5");
}

TEST_F(SettingsTest, TrainingTakesThemAndSaysWhatDoesNothingOnce) {
  Variables variables = kTwoStreams;
  variables["TF_SEGMENT_OWN_CONST"] = "true";
  std::vector<std::string> arguments = linear_regression().with({"steps=3"}).arguments();
  arguments.insert(arguments.end(), {"--config", write("log.pbtxt", "log_device_placement: true")});
  const auto process = run("train", arguments, variables);
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(times(process->err(), "TF_SEGMENT_OWN_CONST=true has no effect"), 1U);
  EXPECT_EQ(times(process->err(), "TF_GPU_STREAM_GROUP_COUNT: streams.count=2, unless"), 1U);
  EXPECT_THAT(process->err(), HasSubstr(": (MatMul): /job:localhost/replica:0/task:0/device:CPU:0\n"));
}

TEST_F(SettingsTest, S4_AJobThatSaysNothingOfStreamsRunsOnOneAndSaysNothingOfScopes) {
  const std::string job =
      write("job.pbtxt",
            "model { name: 'linear_regression' } steps: 3 optimizer { learning_rate: 0.01 } input { format: "
            "SYNTHETIC global_batch_size: 17 } evaluation { enabled: false }");
  const auto process = run("plain", {"train", "--job", job});
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(times(process->err(), "streams: "), 0U) << process->err();  // models have no ids
  EXPECT_THAT(process->out(), AllOf(HasSubstr("compute0"), Not(HasSubstr("compute1"))));
}

TEST_F(SettingsTest, WhatIsForDevicesAloneIsSaidOnTheHost) {
  const auto process = run("host", linear_regression()
                                       .with({"steps=3", "runtime.device=CPU", "streams.merge_copies=true",
                                              "streams.priorities=1,0", "streams.partition=32:compute0"})
                                       .arguments());
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(times(process->err(), "streams.merge_copies has no effect"), 1U);
  EXPECT_EQ(times(process->err(), "streams.priorities has no effect"), 1U);
  EXPECT_EQ(times(process->err(), "streams.partition has no effect"), 1U);
}

TEST_F(SettingsTest, LevelOfTheLogIsTheirs) {
  Variables variables = kTwoStreams;
  variables["TF_CPP_MIN_LOG_LEVEL"] = "2";
  variables["TF_SEGMENT_OWN_CONST"] = "true";
  const auto process = run("quiet", linear_regression().with({"steps=3"}).arguments(), variables);
  EXPECT_EQ(process->exit_code(), 0);
  EXPECT_THAT(process->err(), Not(HasSubstr("has no effect")));
}

TEST_F(SettingsTest, S4_WhatBecomesOfStreamsIsInTheLogOfTrainingAndOfRequests) {
  const auto training = [&](std::vector<std::string> streams) {
    streams.insert(streams.end(), {"steps=3", "streams.count=2"});
    const auto process = run("training", linear_regression().with(streams).arguments());
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return process->err();
  };
  for (const bool measured : {true, false}) {
    const std::string log = training(
        {"streams.policy=AUTO", measured ? "streams.measure_seconds=0.05" : "streams.measure=false"});
    EXPECT_EQ(times(log, "info streams: AUTO took "), 1U) << log;
  }
  EXPECT_EQ(times(training({"streams.policy=EMBEDDING"}),
                  "info streams: EMBEDDING moved nothing: nothing gathers from a table"),
            1U);
  const std::string graph = write("g.pbtxt", R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: 4 } } } } }
    node { name: "a" op: "Neg" input: "x" attr { key: "_stream_id" value { i: 1 } } })");
  const auto requests = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"infer", "--graph", graph, "--output", "a", "--iters", "1", "--device", "cpu"});
    const auto process = run("requests", more);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return process->err();
  };
  EXPECT_EQ(times(requests({}), "streams: stream ids on 1 node ignored"), 1U);
  EXPECT_EQ(times(requests({"--streams", "2"}), "info streams: AUTO took "), 1U);
  EXPECT_EQ(times(requests({"--streams", "2", "--ignore-scopes"}),
                  "info ignore_scopes: the ids of 1 nodes are ignored"),
            1U);
}

TEST_F(SettingsTest, S4_RulesThatFindNothingAreWarningsAlsoWhereAutoStaysOnOneStream) {
  const std::string rules = write("rules.txt", "1:nothing/like/this\n1:nor/this\n");
  const auto process =
      run("rules",
          linear_regression()
              .with({"steps=3", "streams.count=2", "streams.policy=AUTO", "streams.rules_file=" + rules})
              .arguments(),
          {{"TF_CPP_MIN_LOG_LEVEL", "1"}});
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  for (const char* rule :
       {"rules.txt:1: no node matches '1:nothing/like/this'", "rules.txt:2: no node matches '1:nor/this'"})
    EXPECT_EQ(times(process->err(), rule), 1U) << process->err();
}

TEST_F(SettingsTest, GraphsArePlannedAndRunWithThem) {
  const std::string graph = write("g.pbtxt", R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: 4 } } } } }
    node { name: "a" op: "Neg" input: "x" attr { key: "_stream_id" value { i: 2 } } }
    node { name: "b" op: "Exp" input: "x" }
    node { name: "y" op: "AddV2" input: "a" input: "b" })");
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"graph", "plan", graph, "--policy", "USER"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("plan", arguments, kTwoStreams);
  };
  // Stream 2 exists where there are three.
  const auto environment = plan({});
  EXPECT_EQ(environment->exit_code(), 2);
  EXPECT_THAT(environment->err(), HasSubstr("'a'"));
  const auto with_config = plan({"--config", config()});
  EXPECT_EQ(with_config->exit_code(), 0) << with_config->err();
  EXPECT_THAT(with_config->out(), HasSubstr("compute2"));
  const auto with_flag = plan({"--config", config(), "--streams", "1"});
  EXPECT_EQ(with_flag->exit_code(), 2);
}

TEST_F(SettingsTest, PlansLogPlacementsWhereverThatIsAsked) {
  const std::string graph = write("g.pbtxt", kNegative);
  const std::string config = write("log.pbtxt", "log_device_placement: true");
  for (const auto& flag :
       std::vector<std::vector<std::string>>{{"--log-device-placement"}, {"--config", config}}) {
    std::vector<std::string> arguments{"graph", "plan", graph, "--device", "cpu"};
    arguments.insert(arguments.end(), flag.begin(), flag.end());
    const auto process = run("logged", arguments);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    EXPECT_THAT(process->err(), HasSubstr("a: (Neg): ")) << flag[0];
  }
}

TEST_F(SettingsTest, FlagsOfPlansThatNothingReadsAreRefused) {
  const std::string graph = write("g.pbtxt", kNegative);
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"graph", "plan"});
    const auto process = run("refused", more);
    EXPECT_EQ(process->exit_code(), 2) << process->err();
    return process->err();
  };
  EXPECT_THAT(refused({graph, "--set", "streams.count=2"}), HasSubstr("--set requires --job"));
  EXPECT_THAT(refused({"--job", graph, "--fetch", "a"}), AllOf(HasSubstr("--fetch"), HasSubstr("--job")));
  EXPECT_THAT(refused({graph, "--job", graph}), AllOf(HasSubstr("FILE"), HasSubstr("--job")));
  EXPECT_THAT(refused({graph, "--rules", ""}), HasSubstr("--rules needs a file name"));
  EXPECT_THAT(refused({graph, "--dot", "/nowhere/g.dot"}),
              HasSubstr("--dot /nowhere/g.dot: there is no directory '/nowhere'"));
  EXPECT_THAT(refused({graph, "--dot", directory().string()}), HasSubstr(": is a directory"));
  const std::string pools = write("pools.pbtxt", "session_stage_subgraph_thread_pool { }");
  for (const char* command : {"plan", "run"}) {
    const auto staged = run("staged", {"graph", command, graph, "--config", pools});
    EXPECT_THAT(staged->err(), HasSubstr("staging.session_stage_subgraph_thread_pool has no effect"));
  }
  const auto measured = run("measured", {"graph", "plan", graph, "--measure"});
  EXPECT_EQ(measured->exit_code(), 0);
  EXPECT_THAT(measured->err(), HasSubstr("--measure has no effect"));
}

TEST_F(SettingsTest, FlagsOfRequestsThatNothingReadsAreSaid) {
  const std::string graph = write("g.pbtxt", kNegative);
  const auto warnings = [&](std::vector<std::string> more, Variables variables, int exit_code = 0) {
    more.insert(more.begin(),
                {"infer", "--graph", graph, "--output", "a", "--iters", "1", "--device", "cpu"});
    const auto process = run("infer", more, variables);
    EXPECT_EQ(process->exit_code(), exit_code) << process->err();
    return process->err();
  };
  EXPECT_THAT(warnings({"--split-memory"}, {}),
              HasSubstr("--split-memory has no effect: runtime.device_memory_limit is not set"));
  EXPECT_THAT(warnings({"--split-memory", "--set", "runtime.device_memory_limit=1000000"}, {}),
              Not(HasSubstr("has no effect")));
  EXPECT_THAT(warnings({}, {{"TF_GPU_STREAM_GROUP_SHARE_MEM_POOL", "false"}}),
              HasSubstr("TF_GPU_STREAM_GROUP_SHARE_MEM_POOL=false has no effect"));
  EXPECT_THAT(warnings({"--launch-threads", "2"}, {}), HasSubstr("--launch-threads has no effect"));
  const Variables two_threads{{"TF_GPU_THREAD_COUNT", "2"}};
  EXPECT_THAT(warnings({}, two_threads), HasSubstr("TF_GPU_THREAD_COUNT has no effect"));
  EXPECT_THAT(warnings({"--launch", "private"}, two_threads), Not(HasSubstr("has no effect")));
  EXPECT_THAT(warnings({"--set", "staging.capacity=2"}, {}, 2),
              HasSubstr("--set staging.capacity=2: --set takes fields of streams and runtime here"));
}

TEST_F(SettingsTest, SettingsOfAJobThatNothingReadsAreSaidOnce) {
  const auto process =
      run("idle", linear_regression()
                      .with({"steps=2", "runtime.device=CPU", "optimizer.momentum=0.5",
                             "staging.enabled=false", "staging.capacity=3", "runtime.tf32=false"})
                      .arguments());
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  for (const char* setting : {"optimizer.momentum", "staging.capacity", "runtime.tf32"})
    EXPECT_EQ(times(process->err(), std::string(setting) + " has no effect: "), 1U) << process->err();
  const auto marked = run("marked", linear_regression().with({"staging.mark_target_nodes=x"}).arguments());
  EXPECT_EQ(marked->exit_code(), 2);
  EXPECT_THAT(marked->err(), HasSubstr("staging.mark_target_nodes is set, but auto_stage is not"));
}

TEST_F(SettingsTest, WhatCannotBeReadIsRefusedWithItsPlace) {
  const auto refused = [&](const std::string& text) {
    std::vector<std::string> arguments = linear_regression().arguments();
    arguments.insert(arguments.end(), {"--config", write("bad.pbtxt", text)});
    const auto process = run("refused", arguments);
    EXPECT_EQ(process->exit_code(), 2);
    return process->err();
  };
  EXPECT_THAT(refused("allow_soft_placement: true\ndevice_count { key: 'GPU' value: 1 }"),
              AllOf(HasSubstr("bad.pbtxt:2:"), HasSubstr("unknown field 'device_count' in ConfigProto")));
  EXPECT_THAT(refused("graph_options { "), HasSubstr("bad.pbtxt:1:"));
}

}  // namespace
}  // namespace braid::integration
