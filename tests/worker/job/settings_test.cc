// A ConfigProto and the environment as fields of a job, and who wins.
#include "worker/job/settings.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Settings from_config(std::string_view text, SettingsFor purpose = SettingsFor::Training) {
  Settings settings;
  read_config_settings(text, "c.pbtxt", purpose, settings);
  return settings;
}

Settings from_environment(const launch::Environment& environment,
                          SettingsFor purpose = SettingsFor::Training) {
  Settings settings;
  read_environment_settings(environment, purpose, settings);
  return settings;
}

constexpr std::string_view kEverything = R"(
  intra_op_parallelism_threads: 3
  inter_op_parallelism_threads: 4
  allow_soft_placement: true
  log_device_placement: true
  gpu_options { per_process_gpu_memory_fraction: 0.5 allow_growth: false visible_device_list: "1,0" }
  graph_options {
    optimizer_options { stage_multi_stream: true }
    rewrite_options {
      use_multi_stream: ON
      multi_stream_opts { multi_stream_num: 4 partition_policy: EMBEDDING_GRAPH_PARTITION }
    }
  }
  session_inter_op_thread_pool { num_threads: 2 global_name: "a" }
  session_inter_op_thread_pool { }
  session_stage_subgraph_thread_pool { inter_op_threads_num: 8 intra_op_threads_num: 2 global_name: "s" }
  session_stage_subgraph_thread_pool { inter_op_threads_num: 1 }
)";

TEST(ConfigSettingsTest, FieldsBecomeThoseOfAJob) {
  const Settings settings = from_config(kEverything);
  const proto::Job job = settings_job(settings);
  EXPECT_EQ(job.streams().count(), 4U);
  EXPECT_EQ(job.streams().policy(), proto::Streams::EMBEDDING);
  EXPECT_TRUE(job.staging().stage_multi_stream());
  ASSERT_EQ(job.staging().session_stage_subgraph_thread_pool_size(), 2);
  EXPECT_EQ(job.staging().session_stage_subgraph_thread_pool(0).inter_op_threads_num(), 8);
  EXPECT_EQ(job.staging().session_stage_subgraph_thread_pool(0).intra_op_threads_num(), 2);
  EXPECT_EQ(job.staging().session_stage_subgraph_thread_pool(0).global_name(), "s");
  EXPECT_EQ(job.runtime().intra_op_threads(), 3U);
  EXPECT_DOUBLE_EQ(job.runtime().device_memory_fraction(), 0.5);
  EXPECT_TRUE(job.runtime().device_memory_up_front());
  EXPECT_EQ(job.runtime().visible_device_list(), "1,0");
  EXPECT_TRUE(job.runtime().log_device_placement());
  EXPECT_THAT(settings.warnings,
              ElementsAre(StartsWith("c.pbtxt: session_inter_op_thread_pool has no effect:"),
                          StartsWith("c.pbtxt: inter_op_parallelism_threads has no effect:")));
}

TEST(ConfigSettingsTest, PoolsAreForRequestsAndStagesForTraining) {
  const Settings settings = from_config(kEverything, SettingsFor::Inference);
  ASSERT_EQ(settings.groups.pools.size(), 2U);
  EXPECT_EQ(settings.groups.pools[0].threads, 2);
  EXPECT_EQ(settings.groups.pools[0].name, "a");
  EXPECT_EQ(settings.groups.pools[1].threads, 1);
  EXPECT_THAT(settings.group_notes,
              ElementsAre(HasSubstr("session_inter_op_thread_pool: launch pool 0 of 2 threads"),
                          HasSubstr("session_inter_op_thread_pool: launch pool 1 of 1 thread")));
  EXPECT_THAT(from_config(kEverything).group_notes, IsEmpty());
  EXPECT_THAT(settings.warnings, Contains(HasSubstr("session_stage_subgraph_thread_pool has no effect")));
  EXPECT_THAT(settings.warnings, Contains(HasSubstr("stage_multi_stream has no effect")));
  EXPECT_FALSE(settings_job(settings).has_staging());
}

TEST(ConfigSettingsTest, FourPoliciesAndNoneThatIsNotSaid) {
  const auto policy = [](const std::string& name) {
    return settings_job(
               from_config("graph_options { rewrite_options { use_multi_stream: ON multi_stream_opts { "
                           "multi_stream_num: 2 " +
                           name + " } } }"))
        .streams()
        .policy();
  };
  EXPECT_EQ(policy("partition_policy: NO_PARTITION"), proto::Streams::NONE);
  EXPECT_EQ(policy("partition_policy: USER_DEFINED_PARTITION"), proto::Streams::USER);
  EXPECT_EQ(policy("partition_policy: EMBEDDING_GRAPH_PARTITION"), proto::Streams::EMBEDDING);
  EXPECT_EQ(policy("partition_policy: FULL_GRAPH_PARTITION"), proto::Streams::FULL);
  EXPECT_EQ(policy(""), proto::Streams::AUTO);
}

TEST(ConfigSettingsTest, StreamsNeedTheirSwitch) {
  const Settings off = from_config(
      "graph_options { rewrite_options { use_multi_stream: OFF multi_stream_opts { multi_stream_num: 4 } } "
      "}");
  EXPECT_EQ(settings_job(off).streams().count(), 1U);
  EXPECT_THAT(off.warnings,
              ElementsAre(HasSubstr("multi_stream_opts has no effect: use_multi_stream is not ON")));
  const Settings absent =
      from_config("graph_options { rewrite_options { multi_stream_opts { multi_stream_num: 4 } } }");
  EXPECT_THAT(absent.job, IsEmpty());
  EXPECT_THAT(absent.warnings, ElementsAre(HasSubstr("use_multi_stream is not ON")));
  EXPECT_THAT(message_of([] { from_config("graph_options { rewrite_options { use_multi_stream: ON } }"); }),
              HasSubstr("ON needs multi_stream_opts.multi_stream_num from 1 to 64, got 0"));
  EXPECT_THAT(
      message_of([] { from_config("graph_options { rewrite_options { use_multi_stream: AGGRESSIVE } }"); }),
      HasSubstr("ON, OFF and DEFAULT are known, got AGGRESSIVE"));
}

TEST(ConfigSettingsTest, FieldsThatAreNotHereAreRefusedByNameAndPlace) {
  EXPECT_THAT(message_of([] { from_config("allow_soft_placement: true\nrpc_options { }"); }),
              AllOf(StartsWith("c.pbtxt:2:"), HasSubstr("unknown field 'rpc_options' in ConfigProto")));
  EXPECT_THAT(message_of([] { from_config("gpu_options { allow_grow: true }"); }),
              HasSubstr("unknown field 'allow_grow' in GPUOptions; did you mean 'allow_growth'?"));
  EXPECT_THAT(message_of([] {
                from_config(
                    "graph_options { rewrite_options { multi_stream_opts { partition_policy: "
                    "FULL_PARTITION } } }");
              }),
              AllOf(StartsWith("c.pbtxt:1:"), HasSubstr("FULL_PARTITION")));
  EXPECT_EQ(message_of([] {
              from_config("graph_options { rewrite_options { multi_stream_opts { partition_policy: 9 } } }");
            }),
            "c.pbtxt: graph_options.rewrite_options.multi_stream_opts.partition_policy: unknown value 9; "
            "known: NO_PARTITION, USER_DEFINED_PARTITION, EMBEDDING_GRAPH_PARTITION, FULL_GRAPH_PARTITION");
  EXPECT_THAT(message_of([] { from_config("gpu_options { per_process_gpu_memory_fraction: 1.5 }"); }),
              HasSubstr("per_process_gpu_memory_fraction: must be between 0 and 1, got 1.5"));
  EXPECT_THAT(message_of([] { from_config("intra_op_parallelism_threads: -2"); }),
              HasSubstr("intra_op_parallelism_threads: must not be negative"));
}

TEST(ConfigSettingsTest, SoftPlacementIsOnUnlessItIsTurnedOff) {
  EXPECT_FALSE(settings_job(from_config("allow_soft_placement: true")).runtime().has_soft_placement());
  const proto::Job strict = settings_job(from_config("allow_soft_placement: false"));
  EXPECT_TRUE(strict.runtime().has_soft_placement());
  EXPECT_FALSE(strict.runtime().soft_placement());
}

// --------------------------------------------------------------------- docs/user/tensorflow_settings.md

std::string docs_page() {
  return read_file(std::filesystem::path(BRAID_SOURCE_DIR) / "docs/user/tensorflow_settings.md");
}

/// Names of a message's fields that are no messages themselves, or are lists of them.
std::vector<std::string> settings_in(const google::protobuf::Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    const auto& field = *message.field(i);
    if (!field.message_type() || field.is_repeated()) {
      names.push_back(field.name());
      continue;
    }
    for (std::string& name : settings_in(*field.message_type())) names.push_back(std::move(name));
  }
  return names;
}

TEST(SettingsTableTest, EveryFieldThatIsTakenHasARow) {
  const std::string page = docs_page();
  const auto names = settings_in(*proto::ConfigProto::descriptor());
  EXPECT_EQ(names.size(), 13U);
  for (const std::string& name : names)
    EXPECT_THAT(page, testing::ContainsRegex("\n\\* `[^\n]*" + name + "`")) << name;
}

/// Everything that settings make of a text, in words.
std::string effect(const Settings& settings) {
  std::string all;
  for (const auto& [assignment, source] : settings.job) all += source + " sets " + assignment + "\n";
  for (const std::string& warning : settings.warnings) all += warning + "\n";
  const GroupSettings& groups = settings.groups;
  if (groups.groups) all += "groups " + std::to_string(*groups.groups) + "\n";
  if (groups.launch) all += "launch " + std::to_string(static_cast<int>(*groups.launch)) + "\n";
  if (groups.launch_threads) all += "threads " + std::to_string(*groups.launch_threads) + "\n";
  if (groups.share_memory_limit) all += "share " + std::to_string(*groups.share_memory_limit) + "\n";
  return all;
}

struct Variable {
  const char *name, *value;
  const char *training, *inference;  // part of what comes of it
};

/// With TF_NODE_LEVEL_MULTISTREAM=true, and for requests without.
TEST(SettingsTableTest, EveryVariableDoesWhatItsRowSaysOrSaysThatItDoesNothing) {
  const std::vector<Variable> variables{
      {"TF_GPU_STREAM_GROUP_COUNT", "4", "sets streams.count=4", "groups 4"},
      {"TF_NODE_LEVEL_MULTISTREAM", "true", "", ""},
      {"TF_REDUCE_STREAM_WAIT", "false", "sets streams.keep_all_events=true",
       "has no effect: TF_NODE_LEVEL_MULTISTREAM is not true"},
      {"TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION", "true", "sets streams.forward_propagation=true",
       "has no effect"},
      {"TF_STREAM_FROM_FILE", "r.txt", "sets streams.rules_file=r.txt", "has no effect"},
      {"TF_GPU_STREAM_MERGE", "true", "sets streams.merge_copies=true", "sets streams.merge_copies=true"},
      {"TF_GPU_STREAM_GROUP_SHARE_MEM_POOL", "false", "has no effect", "share 0"},
      {"TF_GPU_THREAD_MODE", "gpu_private", "has no effect", "launch 1"},
      {"TF_GPU_THREAD_COUNT", "2", "has no effect", "threads 2"},
      {"TF_PER_STREAM_HOST_ALLOCATOR", "true", "has no effect", "has no effect"},
      {"TF_SEGMENT_OWN_CONST", "true", "has no effect", "has no effect"},
      {"TF_GPU_CONTEXT_COUNT", "2", "has no effect", "has no effect"},
      {"TF_FORCE_GPU_ALLOW_GROWTH", "false", "sets runtime.device_memory_up_front=true",
       "sets runtime.device_memory_up_front=true"}};
  const std::string page = docs_page();
  for (const Variable& variable : variables) {
    EXPECT_THAT(page, testing::ContainsRegex("\n\\* [^\n]*`" + std::string(variable.name) + "`"))
        << variable.name;
    const std::string training = effect(from_environment(
        {{"TF_NODE_LEVEL_MULTISTREAM", "true"}, {variable.name, variable.value}}, SettingsFor::Training));
    const std::string inference =
        effect(from_environment({{variable.name, variable.value}}, SettingsFor::Inference));
    EXPECT_THAT(training, HasSubstr(variable.training)) << variable.name;
    EXPECT_THAT(inference, HasSubstr(variable.inference)) << variable.name;
  }
  // Read elsewhere: by the log, and by the driver.
  for (const char* name : {"TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES"})
    EXPECT_THAT(page, HasSubstr("\n* `" + std::string(name) + "`: "));
}

TEST(EnvironmentSettingsTest, NodesGoOntoStreamsInTheNodeLevelMode) {
  const Settings settings = from_environment({{"TF_GPU_STREAM_GROUP_COUNT", "4"},
                                              {"TF_NODE_LEVEL_MULTISTREAM", "true"},
                                              {"TF_REDUCE_STREAM_WAIT", "0"},
                                              {"TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION", "1"},
                                              {"TF_STREAM_FROM_FILE", "/a/rules.txt"},
                                              {"TF_GPU_STREAM_MERGE", "true"}});
  const proto::Job job = settings_job(settings);
  EXPECT_EQ(job.streams().count(), 4U);
  EXPECT_TRUE(job.streams().keep_all_events());
  EXPECT_TRUE(job.streams().forward_propagation());
  EXPECT_EQ(job.streams().rules_file(), "/a/rules.txt");
  EXPECT_TRUE(job.streams().merge_copies());
  EXPECT_THAT(settings.warnings, IsEmpty());
  EXPECT_FALSE(settings.groups.groups.has_value());
}

TEST(EnvironmentSettingsTest, MemoryIsTakenUpFrontWhereItMayNotGrow) {
  EXPECT_TRUE(settings_job(from_environment({{"TF_FORCE_GPU_ALLOW_GROWTH", "false"}}))
                  .runtime()
                  .device_memory_up_front());
  EXPECT_FALSE(settings_job(from_environment({{"TF_FORCE_GPU_ALLOW_GROWTH", "true"}}))
                   .runtime()
                   .device_memory_up_front());
}

TEST(EnvironmentSettingsTest, WithoutItTheCountIsOfGroups) {
  // "false" counts as false: some programs took any text for true.
  const launch::Environment environment{{"TF_GPU_STREAM_GROUP_COUNT", "4"},
                                        {"TF_NODE_LEVEL_MULTISTREAM", "false"},
                                        {"TF_STREAM_FROM_FILE", "/a/rules.txt"}};
  const Settings inference = from_environment(environment, SettingsFor::Inference);
  EXPECT_EQ(inference.groups.groups, 4);
  EXPECT_THAT(inference.group_notes, ElementsAre("TF_GPU_STREAM_GROUP_COUNT: --groups 4"));
  EXPECT_THAT(inference.job, IsEmpty());
  const Settings training = from_environment(environment);
  EXPECT_THAT(training.job, IsEmpty());
  EXPECT_THAT(training.warnings, ElementsAre(StartsWith("TF_GPU_STREAM_GROUP_COUNT=4 has no effect: without "
                                                        "TF_NODE_LEVEL_MULTISTREAM=true"),
                                             StartsWith("TF_STREAM_FROM_FILE=/a/rules.txt has no effect: "
                                                        "TF_NODE_LEVEL_MULTISTREAM is not true")));
}

TEST(EnvironmentSettingsTest, LaunchThreadsOfGroups) {
  const Settings settings = from_environment({{"TF_GPU_THREAD_MODE", "gpu_private"},
                                              {"TF_GPU_THREAD_COUNT", "2"},
                                              {"TF_GPU_STREAM_GROUP_SHARE_MEM_POOL", "false"}},
                                             SettingsFor::Inference);
  EXPECT_EQ(settings.groups.launch, LaunchThreads::Private);
  EXPECT_EQ(settings.groups.launch_threads, 2);
  EXPECT_EQ(settings.groups.share_memory_limit, false);
  EXPECT_THAT(settings.group_notes,
              ElementsAre("TF_GPU_THREAD_MODE: --launch private", "TF_GPU_THREAD_COUNT: --launch-threads 2",
                          "TF_GPU_STREAM_GROUP_SHARE_MEM_POOL: --split-memory"));
  EXPECT_THAT(from_environment({{"TF_GPU_THREAD_MODE", "gpu_private"}}).warnings,
              ElementsAre(HasSubstr("it is for `braid infer`")));
}

TEST(EnvironmentSettingsTest, WhatDoesNothingIsNamed) {
  for (const char* name : {"TF_GPU_CONTEXT_COUNT", "TF_PER_STREAM_HOST_ALLOCATOR", "TF_SEGMENT_OWN_CONST"})
    EXPECT_THAT(from_environment({{name, "1"}}).warnings,
                ElementsAre(StartsWith(std::string(name) + "=1 has no effect: ")));
  EXPECT_THAT(from_environment({{"TF_GPU_CONTEXT_COUNT", ""}, {"TF_SOMETHING_ELSE", "1"}}).warnings,
              IsEmpty());
}

TEST(EnvironmentSettingsTest, ValuesThatDoNotParseAreRefused) {
  EXPECT_EQ(message_of([] {
              from_environment({{"TF_GPU_STREAM_GROUP_COUNT", "many"}});
            }),
            "TF_GPU_STREAM_GROUP_COUNT=many: expected a number from 1 to 64");
  EXPECT_EQ(message_of([] {
              from_environment({{"TF_NODE_LEVEL_MULTISTREAM", "2"}});
            }),
            "TF_NODE_LEVEL_MULTISTREAM=2: expected true or false");
  EXPECT_THAT(message_of([] {
                from_environment({{"TF_GPU_THREAD_MODE", "own"}}, SettingsFor::Inference);
              }),
              HasSubstr("expected global, gpu_private or gpu_shared"));
}

TEST(EnvironmentSettingsTest, ASwitchThatSwitchesNothingIsSaid) {
  EXPECT_THAT(
      from_environment({{"TF_NODE_LEVEL_MULTISTREAM", "true"}}).warnings,
      ElementsAre(HasSubstr("TF_NODE_LEVEL_MULTISTREAM=true has no effect: TF_GPU_STREAM_GROUP_COUNT")));
  EXPECT_THAT(
      from_environment({{"TF_NODE_LEVEL_MULTISTREAM", "true"}, {"TF_STREAM_FROM_FILE", "r"}}).warnings,
      IsEmpty());
  EXPECT_THAT(from_environment({{"TF_NODE_LEVEL_MULTISTREAM", "false"}}).warnings, IsEmpty());
}

TEST(EnvironmentSettingsTest, NamesOfFilesAreTakenAsTheyAre) {
  const std::string name = "a\"b\\n, count: 7";
  const proto::Job job =
      settings_job(from_environment({{"TF_NODE_LEVEL_MULTISTREAM", "true"}, {"TF_STREAM_FROM_FILE", name}}));
  EXPECT_EQ(job.streams().rules_file(), name);
  EXPECT_EQ(settings_job(from_config("gpu_options { visible_device_list: '1\" tf32: false' }"))
                .runtime()
                .visible_device_list(),
            "1\" tf32: false");
}

TEST(EnvironmentSettingsTest, LevelOfTheLog) {
  EXPECT_EQ(log_level_setting({{"TF_CPP_MIN_LOG_LEVEL", "0"}}), LogLevel::Info);
  EXPECT_EQ(log_level_setting({{"TF_CPP_MIN_LOG_LEVEL", "1"}}), LogLevel::Warning);
  EXPECT_EQ(log_level_setting({{"TF_CPP_MIN_LOG_LEVEL", "3"}}), LogLevel::Error);
  EXPECT_EQ(log_level_setting({{"TF_CPP_MIN_LOG_LEVEL", "1"}, {"BRAID_LOG", "debug"}}), std::nullopt);
  EXPECT_EQ(log_level_setting({}), std::nullopt);
  EXPECT_THAT(message_of([] {
                log_level_setting({{"BRAID_LOG", "verbose"}});
              }),
              HasSubstr("BRAID_LOG='verbose': known are debug, info"));
}

class PrecedenceTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_.path() / name) << text;
    return directory_.path() / name;
  }
  proto::Job load(const std::string& streams, const std::string& config,
                  const std::vector<std::string>& flags = {}) const {
    const auto file =
        write("job.pbtxt",
              "model { name: 'mlp' } steps: 1 input { format: IDX global_batch_size: 8 } optimizer "
              "{ learning_rate: 0.1 } " +
                  streams);
    const launch::Environment environment{{"TF_GPU_STREAM_GROUP_COUNT", "2"},
                                          {"TF_NODE_LEVEL_MULTISTREAM", "true"},
                                          {"TF_REDUCE_STREAM_WAIT", "false"}};
    const Settings settings = read_settings(environment, config.empty() ? "" : write("config.pbtxt", config),
                                            SettingsFor::Training);
    std::vector<std::string> fields;
    for (const auto& field : settings.job) fields.push_back(field.assignment);
    return load_job(file, flags, fields);
  }

  TempDir directory_;
};

constexpr const char* kThreeStreams =
    "graph_options { rewrite_options { use_multi_stream: ON multi_stream_opts { multi_stream_num: 3 "
    "partition_policy: FULL_GRAPH_PARTITION } } } session_stage_subgraph_thread_pool { inter_op_threads_num: "
    "7 }";

TEST_F(PrecedenceTest, FlagThenJobThenConfigThenEnvironment) {
  EXPECT_EQ(load("", "").streams().count(), 2U);
  EXPECT_EQ(load("", kThreeStreams).streams().count(), 3U);
  EXPECT_EQ(load("streams { count: 4 }", kThreeStreams).streams().count(), 4U);
  EXPECT_EQ(load("streams { count: 4 }", kThreeStreams, {"streams.count=5"}).streams().count(), 5U);
}

TEST_F(PrecedenceTest, WhatTheJobSetsToItsDefaultIsSet) {
  EXPECT_EQ(load("", kThreeStreams).streams().policy(), proto::Streams::FULL);
  EXPECT_EQ(load("streams { policy: AUTO }", kThreeStreams).streams().policy(), proto::Streams::AUTO);
  EXPECT_TRUE(load("", "").streams().keep_all_events());
  EXPECT_FALSE(load("streams { keep_all_events: false }", "").streams().keep_all_events());
}

TEST_F(PrecedenceTest, AListOfTheJobTakesThePlaceOfTheConfigs) {
  const auto pools = [&](const std::string& staging) {
    std::vector<int> threads;
    const proto::Job job = load(staging, kThreeStreams);
    for (const auto& pool : job.staging().session_stage_subgraph_thread_pool())
      threads.push_back(pool.inter_op_threads_num());
    return threads;
  };
  EXPECT_THAT(pools(""), ElementsAre(7));
  EXPECT_THAT(pools("staging { session_stage_subgraph_thread_pool { inter_op_threads_num: 2 } }"),
              ElementsAre(2));
}

}  // namespace
}  // namespace braid::worker
