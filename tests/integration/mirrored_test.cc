// Strategy MIRRORED: replicas in one process. Whole jobs as processes, on virtual devices of the CPU: the
// bits of as many processes of ALLREDUCE, the losses of one, checkpoints of all strategies, one log and one
// table, failures and requests to stop.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/checkpoints.h"
#include "tests/integration/http_client.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 20;

// With arrays that the ring sums whole, and longer ones.
constexpr const char* kJob = R"(
name: "mirrored" seed: 3 steps: 20
model { name: "din" hidden: 96 hidden: 64 embedding_dim: 8 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "item" kind: CATEGORICAL buckets: 90 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 90 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
optimizer { kind: MOMENTUM learning_rate: 0.02 }
evaluation { every_steps: 5 metric: AUC }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class MirroredTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kJob), "", std::move(more)};
  }
  static Job mirrored(const Job& job, int devices) {
    return job.with({"strategy.kind=MIRRORED", "strategy.mirrored.devices=" + std::to_string(devices)});
  }

  /// Losses and what the last checkpoint has, of the job as it is and of so many workers of ALLREDUCE.
  void expect_bits_of_processes(const Job& of, int devices, int processes, const std::string& name) {
    SCOPED_TRACE(name);
    const auto saved = [&](const char* which) {
      return of.with(checkpoints_in(directory() / (name + which), 5));
    };
    const Path apart = directory() / (name + "-apart"), together = directory() / (name + "-together");
    Cluster workers(apart, saved("-a").with({"strategy.kind=ALLREDUCE"}), {devices * processes, 0});
    workers.expect_success();
    Cluster replicas(together, mirrored(saved("-b"), devices), {processes, 0});
    replicas.expect_success();
    EXPECT_EQ(losses_of(replicas.steps_file(0)), losses_of(workers.steps_file(0)));
    const Values expected = values_of_newest(directory() / (name + "-a"));
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(values_of_newest(directory() / (name + "-b")), expected);
    EXPECT_EQ(result_of(replicas.worker(0)).quality, result_of(workers.worker(0)).quality);
  }
};

TEST_F(MirroredTest, BitsAreThoseOfAsManyProcesses) {
  for (const int devices : {2, 3, 4}) expect_bits_of_processes(job(), devices, 1, std::to_string(devices));
}

TEST_F(MirroredTest, ProcessesMayEachHaveSeveralReplicas) {
  expect_bits_of_processes(job(), 2, 2, "two");
  const Job unsaid = job({"strategy.kind=MIRRORED"});
  Cluster cluster(directory() / "unsaid", unsaid, {2, 0});
  EXPECT_THAT(cluster.exit_codes(), testing::Each(2));
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("needs strategy.mirrored.devices"));
}

/// What may depend on who a worker is, or on how the host's memory is exchanged.
TEST_F(MirroredTest, SettingsMeanWhatTheyMeanForProcesses) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> all = {
      {"uneven", {"input.global_batch_size=50", "optimizer.clip_norm=0.1"}},
      {"accumulated", {"optimizer.accumulate_steps=2", "strategy.bucket_bytes=2000"}},
      {"narrow", {"strategy.wire=BF16", "streams.count=3", "streams.policy=COST"}},
      {"compressed", {"strategy.compression.kind=INT8"}},
      {"sharded", {"strategy.shard=GRADIENTS"}},
      {"local steps", {"strategy.average_every_steps=5"}},
      {"median", {"strategy.reduction=MEDIAN"}},
      {"streamed", {"staging.enabled=false", "runtime.steps_in_flight=3", "optimizer.clip_worker_norm=1"}}};
  for (const auto& [name, settings] : all) expect_bits_of_processes(job(settings), 3, 1, name);
}

TEST_F(MirroredTest, BatchNormAndDropoutAreThoseOfProcesses) {
  const Job normalised = cnn().with({"model.name=resnet18", "model.hidden=4,4,8,8", "steps=5"});
  for (const std::string synchronised : {"false", "true"})
    expect_bits_of_processes(normalised.with({"strategy.sync_batch_norm=" + synchronised}), 2, 1,
                             "batch norm " + synchronised);
  expect_bits_of_processes(mlp().with({"model.dropout=0.3", "steps=20"}), 3, 1, "dropout");
}

TEST_F(MirroredTest, LossesAreThoseOfOneProcess) {
  const std::vector<float> expected = train("alone", job());
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(train("one", mirrored(job(), 1)), expected) << "one replica";
  EXPECT_EQ(train("unsaid", job({"strategy.kind=MIRRORED"})), expected) << "the CPU is one";
  for (const int devices : {2, 3, 4}) {
    const std::vector<float> losses = train(std::to_string(devices), mirrored(job(), devices));
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << "step " << i;
  }
}

TEST_F(MirroredTest, CheckpointsAreThoseOfAllStrategies) {
  const auto at = [&](int steps) {
    return job({"evaluation.enabled=false", "steps=" + std::to_string(steps)})
        .with(checkpoints_in(directory() / "checkpoints", 5));
  };
  Cluster(directory() / "local", at(5), {1, 0}).expect_success();
  Cluster(directory() / "mirrored", mirrored(at(10), 3), {1, 0}, {"--resume"}).expect_success();
  Cluster(directory() / "apart", at(15).with({"strategy.kind=ALLREDUCE"}), {2, 0}, {"--resume"})
      .expect_success();
  Cluster(directory() / "again", mirrored(at(20), 2), {1, 0}, {"--resume"}).expect_success();
  const Job whole = job({"evaluation.enabled=false"}).with(checkpoints_in(directory() / "whole", kSteps));
  Cluster(directory() / "alone", whole, {1, 0}).expect_success();
  const auto diff = run("diff", {"ckpt", "diff", path("whole"), path("checkpoints"), "--tolerance", "1e-5"});
  EXPECT_EQ(diff->exit_code(), 0) << diff->out() << diff->err();
}

TEST_F(MirroredTest, AResumedRunHasTheBitsOfOneThatWasNotStopped) {
  const auto saved = [&](const char* name, int steps) {
    return mirrored(job({"steps=" + std::to_string(steps)}).with(checkpoints_in(directory() / name, 10)), 2);
  };
  Cluster(directory() / "whole", saved("a", kSteps), {1, 0}).expect_success();
  Cluster(directory() / "first", saved("b", 10), {1, 0}).expect_success();
  Cluster(directory() / "second", saved("b", kSteps), {1, 0}, {"--resume"}).expect_success();
  EXPECT_EQ(values_of_newest(directory() / "b"), values_of_newest(directory() / "a"));
}

TEST_F(MirroredTest, OneLogOneTableOneTrace) {
  const Job of =
      mirrored(job({"metrics.trace_file=" + path("trace.json"), "metrics.steps_file=" + path("steps"),
                    "streams.count=2", "streams.policy=COST"}),
               2);
  const auto trained = run("train", of.arguments());
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_THAT(trained->out(), AllOf(HasSubstr("/cpu:0/compute0"), HasSubstr("/cpu:1/compute1"),
                                    HasSubstr("/cpu:1/comm"), HasSubstr("/cpu:1/stage0")));
  EXPECT_THAT(trained->err(), Not(HasSubstr("replica /cpu:1")));
  const std::string log = trained->err();
  const auto first = log.find("step 5: auc");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("step 5: auc", first + 1), std::string::npos) << "evaluated once";
  std::ifstream steps(path("steps"));
  std::string line;
  std::getline(steps, line);
  EXPECT_EQ(nlohmann::json::parse(line).value("examples", 0), 48) << line << ": of all replicas";
  std::ifstream in(path("trace.json"));
  const auto trace = nlohmann::json::parse(in);
  std::map<std::string, int> tracks;
  std::map<int, int> slices;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
    if (event["ph"] == "X") ++slices[event["tid"]];
  }
  for (const char* name : {"/cpu:0/compute0", "/cpu:1/compute0", "/cpu:1/comm", "/cpu:1/stage0"}) {
    ASSERT_TRUE(tracks.contains(name)) << name;
    EXPECT_GE(slices[tracks[name]], kSteps) << name;
  }
}

TEST_F(MirroredTest, AnEarlyStopIsOfAll) {
  const auto trained = run("train", mirrored(job({"steps=200", "evaluation.target=0.01"}), 3).arguments());
  ASSERT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_LT(result_of(*trained).last_step, 200u);
}

TEST_F(MirroredTest, WhoAsksSeesAllReplicasAndARequestToStopSavesAndEnds) {
  const Job of = mirrored(job({"steps=1000000", "evaluation.enabled=false", "metrics.listen=127.0.0.1:0"})
                              .with(checkpoints_in(directory() / "checkpoints", 1000000)),
                          2);
  Process trains(braid(of.arguments()), {}, directory() / "train");
  ASSERT_TRUE(reaches_step(trains, 1)) << trains.err();
  const std::string address = metrics_address(trains);
  const auto metrics = http_get(address, "/metrics");
  ASSERT_TRUE(metrics);
  for (const char* stream :
       {"stream=\"/cpu:0/compute0\"", "stream=\"/cpu:1/compute0\"", "stream=\"/cpu:1/comm\""})
    EXPECT_GT(sample(metrics->body, "braid_stream_launches_total", stream).value_or(0), 0) << stream;
  const double steps = sample(metrics->body, "braid_steps_total").value_or(0);
  EXPECT_EQ(sample(metrics->body, "braid_examples_total").value_or(0), 48 * steps) << "of all replicas";
  const auto status = http_get(address, "/status.json");
  ASSERT_TRUE(status);
  EXPECT_THAT(status->body, HasSubstr("/cpu:1/compute0"));
  trains.signal(SIGTERM);
  EXPECT_EQ(trains.exit_code(), 143) << trains.err();
  EXPECT_EQ(checkpointed_steps(directory() / "checkpoints").back(), result_of(trains).last_step);
}

/// Only the second replica reads the second file.
TEST_F(MirroredTest, AReplicaThatFailsEndsTheJobWithItsName) {
  std::string good;
  for (int i = 0; i < 40; ++i) good += "1,a,0\n";
  const std::string files = write("a.csv", good) + "," + write("b.csv", good + "what,a,0\n");
  const std::string text = R"(name: "csv" steps: 5 model { name: "wide_deep" hidden: 4 embedding_dim: 2 }
    input { format: CSV shard: FILES global_batch_size: 8
      columns { name: "x" kind: NUMERIC } columns { name: "c" kind: CATEGORICAL buckets: 7 }
      columns { name: "y" kind: LABEL } }
    optimizer { kind: SGD learning_rate: 0.1 } runtime { device: CPU })";
  const Job of{write("csv.pbtxt", text), "", {"input.train_files=" + files, "evaluation.enabled=false"}};
  const auto expect_named = [&](const char* name, const Job& which, int exit, const char* why) {
    const auto trained = run(name, mirrored(which, 2).arguments());
    EXPECT_EQ(trained->exit_code(), exit) << trained->err();
    EXPECT_THAT(trained->err(), AllOf(HasSubstr("replica /cpu:1: "), HasSubstr(why)));
  };
  expect_named("reads", of, 2, "b.csv' line 41: ");
  // Between steps that the replicas make together, of which the first one waits for the next.
  write("b.csv", good + "3e38,a,0\n" + good);
  expect_named(
      "trains",
      of.with({"input.shuffle=false", "strategy.average_every_steps=50", "steps=100", "staging.capacity=1"}),
      1, "step 1");
}

/// A graph as TensorFlow 1 writes it in text: so many towers, each on its part of a split; 1: no split.
std::string tower_graph(int towers) {
  std::string text;
  const auto node = [&](const std::string& name, const std::string& op,
                        const std::vector<std::string>& inputs, const std::string& attributes,
                        const std::string& device = "") {
    text += fmt::format("node {{ name: '{}' op: '{}' device: '{}' ", name, op, device);
    for (const std::string& input : inputs) text += fmt::format("input: '{}' ", input);
    text += attributes + " }\n";
  };
  const std::string f = "attr { key: 'T' value { type: DT_FLOAT } } ";
  const auto constant = [&](const std::string& name, const std::string& type, const std::string& value) {
    node(name, "Const", {},
         fmt::format("attr {{ key: 'dtype' value {{ type: {0} }} }} attr {{ key: 'value' value {{ tensor {{ "
                     "dtype: {0} tensor_shape {{ {1} }} }} }}",
                     type, value));
  };
  for (const auto& [name, shape] :
       {std::pair("dense", "dim { size: -1 } dim { size: 3 }"), std::pair("label", "dim { size: -1 }")})
    node(name, "Placeholder", {},
         fmt::format("attr {{ key: 'dtype' value {{ type: DT_FLOAT }} }} attr {{ key: 'shape' value {{ shape "
                     "{{ {} }} }} }}",
                     shape));
  constant("first", "DT_FLOAT", "dim { size: 3 } dim { size: 1 } } float_val: 0.125");
  constant("axis", "DT_INT32", "} int_val: 0");
  constant("parts", "DT_FLOAT", fmt::format("}} float_val: {}", towers));
  node("w", "VarHandleOp", {},
       "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'shape' value { shape { dim { size: 3 } "
       "dim { "
       "size: 1 } } } } attr { key: 'shared_name' value { s: 'w' } }");
  node("w/assign", "AssignVariableOp", {"w", "first"}, "attr { key: 'dtype' value { type: DT_FLOAT } }");
  if (towers > 1)
    for (const std::string of : {"dense", "label"})
      node(of + "/split", "Split", {"axis", of},
           f + fmt::format("attr {{ key: 'num_split' value {{ i: {} }} }}", towers));
  std::vector<std::string> losses;
  for (int i = 0; i < towers; ++i) {
    const std::string tower = fmt::format("tower_{}/", i), gpu = fmt::format("/gpu:{}", i);
    const auto part = [&](const std::string& of) {
      return towers > 1 ? fmt::format("{}/split:{}", of, i) : of;
    };
    node(tower + "read", "ReadVariableOp", {"w"}, "attr { key: 'dtype' value { type: DT_FLOAT } }", gpu);
    node(tower + "product", "MatMul", {part("dense"), tower + "read"}, f, gpu);
    node(tower + "y", "Squeeze", {tower + "product"},
         f + "attr { key: 'squeeze_dims' value { list { i: 1 } } }", gpu);
    node(tower + "rows", "SquaredDifference", {tower + "y", part("label")}, f, gpu);
    node(tower + "loss", "Mean", {tower + "rows", "axis"}, f, gpu);
    losses.push_back(tower + "loss");
  }
  node("sum", "AddN", losses, f + fmt::format("attr {{ key: 'N' value {{ i: {} }} }}", towers));
  node("loss", "RealDiv", {"sum", "parts"}, f);
  return text;
}

/// Each of them on a replica, with the rows that it would have.
TEST_F(MirroredTest, TowersOfAGraphAreReplicas) {
  const std::string text = R"(name: "towers" seed: 3 steps: 20
    input { format: GENERATOR generator { rows: 600 } global_batch_size: 48
      columns { name: "a" kind: NUMERIC } columns { name: "b" kind: NUMERIC } columns { name: "c" kind: NUMERIC }
      columns { name: "clicked" kind: LABEL } }
    optimizer { kind: SGD learning_rate: 0.1 } evaluation { enabled: false }
    streams { count: 1 policy: NONE } runtime { intra_op_threads: 1 device: CPU })";
  const auto of = [&](int towers) {
    const std::string file = write(fmt::format("{}.pbtxt", towers), tower_graph(towers));
    return Job{write("towers.job", text), "", {"model.graph.file=" + file, "model.graph.loss=loss"}};
  };
  const std::vector<float> expected = train("one", of(1)), plain = train("two", mirrored(of(1), 2));
  EXPECT_EQ(train("towers", mirrored(of(2), 2)), plain) << "the bits of the graph without towers";
  ASSERT_EQ(plain.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(plain[i], expected[i], 1e-6) << i;
  const auto wrong = run("wrong", mirrored(of(2), 3).arguments());
  EXPECT_EQ(wrong->exit_code(), 2) << wrong->err();
  EXPECT_THAT(wrong->err(), HasSubstr("the graph has towers for 2 GPUs, and there are 3 replicas: set "
                                      "strategy.mirrored.devices: 2"));
}

TEST_F(MirroredTest, WhatItDoesNotTakeIsRefusedByName) {
  const auto refused = [&](const std::string& setting, const std::string& why) {
    const auto trained = run("refused", mirrored(job(), 2).with({setting}).arguments());
    EXPECT_EQ(trained->exit_code(), 2) << setting << trained->err();
    EXPECT_THAT(trained->err(), HasSubstr(why));
  };
  refused("strategy.elastic.min_workers=1", "strategy.elastic is for strategy.kind ALLREDUCE");
  refused("strategy.backend=MPI", "replicas are threads of one");
  refused("strategy.backend=NCCL", "NCCL is for GPUs");
  refused("strategy.mirrored.devices=-1", "strategy.mirrored.devices");
  refused("input.global_batch_size=1", "input.global_batch_size");
  refused("input.shard=DYNAMIC", "input.shard DYNAMIC");
}

}  // namespace
}  // namespace braid::integration
