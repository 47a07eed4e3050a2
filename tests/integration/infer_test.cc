// `braid infer` as users call it, on an exported model.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/formats/npy.h"
#include "tests/integration/run.h"
#include "tests/support/in_some_attempt.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InferTest : public IntegrationTest {
 protected:
  /// An exported model, and the name of its prediction.
  std::string exported(const std::string& model, std::string& prediction) {
    const auto process = run("export", {"graph", "export", "--model", model, "--inference", "--out",
                                        path(model + ".pb"), "--hash-buckets", "200"});
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    const std::string out = process->out();
    const std::size_t begin = out.find('\'') + 1;
    prediction = out.substr(begin, out.find('\'', begin) - begin);
    return path(model + ".pb");
  }
  nlohmann::json result(const Process& process) const {
    const std::string out = process.out();
    const std::size_t at = out.rfind("result: ");
    EXPECT_NE(at, std::string::npos) << out << process.err();
    return at == std::string::npos ? nlohmann::json() : nlohmann::json::parse(out.substr(at + 8));
  }
};

TEST_F(InferTest, GroupsServeClientsAndAnswerAsASingleGroup) {
  std::string prediction;
  const std::string graph = exported("dlrm", prediction);
  for (const std::string launch : {"pools", "private"}) {
    const auto process = run("infer", {"infer", "--graph", graph, "--output", prediction, "--batch", "8",
                                       "--iters", "30", "--untrained", "--threads", "4", "--groups", "3",
                                       "--launch", launch, "--check", "--device", "cpu"});
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    EXPECT_THAT(process->out(), AllOf(HasSubstr("requests/s"), HasSubstr("p99"), HasSubstr("group 2: ")));
    const auto json = result(*process);
    EXPECT_EQ(json["requests"], 120);
    EXPECT_EQ(json["different"], 0);
    EXPECT_EQ(json["group_busy_seconds"].size(), 3U);
  }
}

TEST_F(InferTest, RowsOfAFileAreAnsweredInTheirOrder) {
  const std::string graph = path("g.pbtxt");
  std::ofstream(graph) << R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: -1 } dim { size: 2 } } } } }
    node { name: "y" op: "Neg" input: "x" })";
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::ofstream(path("x.npy"), std::ios::binary)
      << format_npy(DType::Float32, std::vector<std::int64_t>{5, 2}, std::as_bytes(std::span(x)));
  const auto process =
      run("infer", {"infer", "--graph", graph, "--input", "x=" + path("x.npy"), "--output", "y", "--batch",
                    "2", "--iters", "2", "--threads", "2", "--groups", "2", "--out", path("answers")});
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  const std::string bytes = read_file(directory() / "answers" / "y.npy");
  const NpyArray y = parse_npy(std::as_bytes(std::span(bytes)), "y.npy");
  EXPECT_EQ(y.shape, (std::vector<std::int64_t>{4, 2}));
  const auto* values = reinterpret_cast<const float*>(y.data.data());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(values[i], -x[i]);
}

TEST_F(InferTest, GroupsComeFromFlagsThenConfigThenEnvironment) {
  std::string prediction;
  const std::string graph = exported("dlrm", prediction);
  std::ofstream(path("config.pbtxt")) << "session_inter_op_thread_pool { num_threads: 1 }\n"
                                         "session_inter_op_thread_pool { num_threads: 1 }\n"
                                         "graph_options { rewrite_options { use_multi_stream: ON "
                                         "multi_stream_opts { multi_stream_num: 2 } } }\n";
  const std::vector<std::string> base{"infer",   "--graph", graph,      "--output", prediction,
                                      "--iters", "5",       "--device", "cpu",      "--untrained"};
  const auto groups = [&](std::vector<std::string> more, Variables variables) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run("groups", arguments, variables);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    if (!variables.empty()) {
      EXPECT_THAT(process->err(), HasSubstr("TF_GPU_STREAM_GROUP_COUNT: --groups 4, unless a flag says"));
    }
    return result(*process)["groups"].get<int>();
  };
  const Variables four{{"TF_GPU_STREAM_GROUP_COUNT", "4"}};
  EXPECT_EQ(groups({}, {}), 1);
  EXPECT_EQ(groups({}, four), 4);
  EXPECT_EQ(groups({"--config", path("config.pbtxt")}, four), 4);
  EXPECT_EQ(groups({"--groups", "2"}, four), 2);
}

TEST_F(InferTest, SettingsThatCannotBeMeantAreRefusedByField) {
  const std::string graph = path("g.pbtxt");
  std::ofstream(graph) << R"(node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
    attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 3 } } } })";
  for (const char* setting : {"streams.count=100", "streams.priorities=9", "streams.measure_seconds=-3",
                              "runtime.device_memory_fraction=7", "runtime.intra_op_threads=5000"}) {
    const auto process =
        run("set", {"infer", "--graph", graph, "--output", "c", "--device", "cpu", "--set", setting});
    EXPECT_EQ(process->exit_code(), 2) << setting << ": " << process->err();
    const std::string field(setting, std::strchr(setting, '=') - setting);
    EXPECT_THAT(process->err(), HasSubstr("InvalidArgument: " + field + " must be "));
  }
}

TEST_F(InferTest, ATimeoutThatNoClockCountsIsRefused) {
  const std::string graph = path("g.pbtxt");
  std::ofstream(graph) << R"(node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
    attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 3 } } } })";
  for (const char* seconds : {"1e11", "1e300", "0"}) {
    const auto process =
        run("timeout", {"infer", "--graph", graph, "--output", "c", "--device", "cpu", "--timeout", seconds});
    EXPECT_EQ(process->exit_code(), 2) << seconds << ": " << process->err();
  }
}

TEST_F(InferTest, AnAnswerBehindItsDeadlineIsLateThoughNobodyStoodInLine) {
  std::string prediction;
  const std::string graph = exported("dlrm", prediction);
  const auto process = run("late", {"infer", "--graph", graph, "--output", prediction, "--batch", "512",
                                    "--iters", "5", "--timeout", "1e-6", "--device", "cpu", "--untrained"});
  EXPECT_EQ(process->exit_code(), 1) << process->err();
  EXPECT_EQ(result(*process)["late"], 5);
  EXPECT_EQ(result(*process)["requests"], 0);
}

TEST_F(InferTest, ThePositionalCommandLineDoesTheSame) {
  const std::string graph = path("g.pbtxt");
  std::ofstream(graph) << R"(
    node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: -1 } dim { size: 4 } } } } }
    node { name: "b" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: -1 } dim { size: 4 } } } } }
    node { name: "sum" op: "AddV2" input: "a" input: "b" }
    node { name: "difference" op: "Sub" input: "a" input: "b" })";
  std::ofstream(path("config.pbtxt")) << "session_inter_op_thread_pool { num_threads: 1 }";
  const auto call = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MULTISTREAM_INFERENCE_BINARY);
    auto process = std::make_unique<Process>(arguments, Variables{{"TF_GPU_STREAM_GROUP_COUNT", "3"}},
                                             directory() / "positional");
    process->wait(kLongRun);
    return process;
  };
  const auto good =
      call({graph, "2", "a", "b:0", "2", "sum", "difference", "16", "10", "4", path("config.pbtxt")});
  EXPECT_EQ(good->exit_code(), 0) << good->err();
  const auto json = result(*good);
  EXPECT_EQ(json["groups"], 3);
  EXPECT_EQ(json["clients"], 4);
  EXPECT_EQ(json["batch"], 16);
  EXPECT_EQ(json["requests"], 40);
  const auto cut = call({graph, "2", "a"});
  EXPECT_EQ(cut->exit_code(), 2);
  EXPECT_THAT(cut->err(), AllOf(HasSubstr("input 2 of 2 is missing"), HasSubstr("usage: ")));
  const auto wrong = call({graph, "1", "a", "1", "sum", "none", "10", "4", path("config.pbtxt")});
  EXPECT_EQ(wrong->exit_code(), 2);
  EXPECT_THAT(wrong->err(), HasSubstr("BATCH 'none'"));
}

TEST_F(InferTest, TheTrainingProgramPrintsTheSameLossesAndTheLine) {
  Process process({MULTISTREAM_TRAINING_BINARY, "--steps", "2", "--width", "16", "--layers", "3"}, {},
                  directory() / "training");
  EXPECT_EQ(process.exit_code(), 0) << process.err();
  const std::string out = process.out();
  EXPECT_THAT(out, AllOf(HasSubstr("include_grad true, 4 streams: "), HasSubstr("step 900: loss"),
                         HasSubstr("Z = "), HasSubstr("loss 0.154")));
  std::vector<std::string> losses;
  for (std::size_t at = 0; (at = out.find("x), loss ", at)) != std::string::npos; at += 9)
    losses.push_back(out.substr(at + 9, 8));
  EXPECT_THAT(losses, ::testing::AllOf(::testing::SizeIs(4), ::testing::Each(losses.at(0))));
}

TEST_F(InferTest, TheTrainingProgramTakesItsStreamsFromTheEnvironment) {
  std::ofstream(path("rules.txt")) << "1:branch3/.*\n2:no/such/node\n";
  Process process({MULTISTREAM_TRAINING_BINARY, "--steps", "2", "--width", "16", "--layers", "3"},
                  {{"TF_GPU_STREAM_GROUP_COUNT", "5"},
                   {"TF_NODE_LEVEL_MULTISTREAM", "true"},
                   {"TF_STREAM_FROM_FILE", path("rules.txt")}},
                  directory() / "training");
  EXPECT_EQ(process.exit_code(), 0) << process.err();
  EXPECT_THAT(process.out(), HasSubstr("include_grad true, 5 streams: "));
  EXPECT_THAT(process.err(), HasSubstr("rules.txt:2: no node matches '2:no/such/node'"));
  Process refused({MULTISTREAM_TRAINING_BINARY},
                  {{"TF_GPU_STREAM_GROUP_COUNT", "2"}, {"TF_NODE_LEVEL_MULTISTREAM", "true"}},
                  directory() / "refused");
  EXPECT_EQ(refused.exit_code(), 2);
  EXPECT_THAT(refused.err(), HasSubstr("stream 2 does not exist; the program has 2 compute streams"));
}

TEST_F(InferTest, RequestsThatFindTheLineFullAreCountedAndFailTheRun) {
  std::string prediction;
  const std::string graph = exported("dlrm", prediction);
  in_some_attempt([&] {  // clients must meet
    const auto process =
        run("full", {"infer", "--graph", graph, "--output", prediction, "--batch", "64", "--iters", "50",
                     "--threads", "8", "--queue", "0", "--device", "cpu", "--untrained"});
    EXPECT_EQ(process->exit_code(), 1);
    const auto json = result(*process);
    EXPECT_GT(json["refused"].get<int>(), 0);
    EXPECT_EQ(json["refused"].get<int>() + json["requests"].get<int>(), 400);
  });
}

TEST_F(InferTest, WhatCannotRunIsRefused) {
  std::string prediction;
  const std::string graph = exported("dlrm", prediction);
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"infer", "--graph", graph};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto process = run("refused", arguments);
    EXPECT_EQ(process->exit_code(), 2) << process->err();
    return process->err();
  };
  EXPECT_THAT(refused({"--output", "nothing"}), HasSubstr("nothing"));
  EXPECT_THAT(refused({"--output", prediction, "--input", "dense"}),
              HasSubstr("no --input for 'sparse', which the outputs need"));
  EXPECT_THAT(refused({"--output", prediction, "--input", "dense=3,b"}), HasSubstr("neither a shape"));
  EXPECT_THAT(refused({"--output", prediction}),
              AllOf(HasSubstr("variables have no values: '"), HasSubstr("--untrained")));
  EXPECT_THAT(refused({"--output", prediction, "--untrained", "--pool", "1"}),
              HasSubstr("launch pool 1 does not exist"));
  EXPECT_THAT(refused({"--output", prediction, "--untrained", "--launch", "private", "--pool", "0"}),
              HasSubstr("launch pool 0 does not exist"));
  EXPECT_THAT(refused({"--output", prediction, "--launch", "private", "--pools", "2"}),
              HasSubstr("--pools does not go with --launch private"));
}

}  // namespace
}  // namespace braid::integration
