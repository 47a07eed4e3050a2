// Sparse tables on servers: what a step's graph has for them, and that random models learn as one process
// does, with rows pulled ahead and without. Workers are threads, servers real ones over sockets.
#include "worker/strategies/ordered_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/ops/state/variable_init.h"
#include "engine/staging/graph_stage.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "tests/ps/cluster.h"
#include "tests/worker/methods/ranks.h"
#include "worker/job/job.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using Strings = std::vector<std::string>;
using Random = std::mt19937;

constexpr std::int64_t kExamples = 6;  // of a worker in a step
constexpr std::uint64_t kSteps = 12;

std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

struct Lookup {
  std::string feed;
  DType dtype = DType::Int64;
  std::int64_t rows = 0, length = 1;  // of the table; ids of an example
};

struct Model {
  GraphDef graph;
  std::string loss;
  std::vector<Lookup> lookups;
};

/// Tables of some dims, read by one or two columns each; under a layer, or without anything dense.
Model random_model(Random& random, bool dense) {
  Model model;
  GraphBuilder b;
  std::vector<Output> parts;
  std::int64_t width = 0;
  for (std::int64_t t = draw(random, 1, 4); t > 0; --t) {
    const std::int64_t rows = draw(random, 1, 40), dim = draw(random, 1, 3);
    const std::string name = "t" + std::to_string(t);
    const Output table =
        b.variable(name, Shape{rows, dim}, {.init = {InitKind::Uniform, -0.5F, 0.5F}, .sparse = true});
    for (std::int64_t u = draw(random, 1, 2); u > 0; --u) {
      const Lookup lookup{name + "_ids" + std::to_string(u),
                          draw(random, 0, 2) == 0 ? DType::Int32 : DType::Int64, rows, draw(random, 1, 3)};
      const Output ids = b.placeholder(lookup.feed, lookup.dtype, Shape{-1, lookup.length});
      const bool flat = draw(random, 0, 1) == 1;
      parts.push_back(
          b.reshape(b.gather(table, flat ? b.reshape(ids, {-1}) : ids), {-1, lookup.length * dim}));
      width += lookup.length * dim;
      model.lookups.push_back(lookup);
    }
  }
  Output out = parts.size() == 1 ? parts[0] : b.concat(parts, 1);
  if (dense) out = b.dense("top", out, width, 3, false);
  model.loss = b.reduce_mean(b.mul(out, out)).name();
  model.graph = b.graph();
  return model;
}

proto::Job job_of(const std::string& optimizer, const std::string& strategy) {
  proto::Job job = parse_job("seed: 3 input { global_batch_size: 12 } optimizer { kind: " + optimizer +
                                 " learning_rate: 0.1 } strategy { " + strategy + " }",
                             "test");
  fill_job_defaults(job);
  return job;
}

/// Ids of all workers' examples of each step, by lookup.
using Batches = std::vector<std::vector<std::vector<std::int64_t>>>;

Batches random_batches(Random& random, const Model& model, std::int64_t examples) {
  Batches steps(kSteps);
  for (auto& step : steps)
    for (const Lookup& lookup : model.lookups) {
      auto& ids = step.emplace_back(static_cast<std::size_t>(examples * lookup.length));
      const std::int64_t most = draw(random, 0, 3) == 0 ? 0 : lookup.rows - 1;  // sometimes all are equal
      for (std::int64_t& id : ids) id = draw(random, 0, most);
    }
  return steps;
}

class Worker {
 public:
  Worker(const Model& model, const proto::Job& job, const Peers& peers, std::int64_t examples)
      : model_(model), peers_(peers), examples_(examples), runtime_(RuntimeOptions{}) {
    auto services = std::make_shared<StepServices>();
    services->peer_deadline = std::chrono::seconds(60);
    services->stop = std::make_shared<StopFlag>();
    runtime_.services().provide(std::move(services));
    strategy_ = make_strategy(job, runtime_, peers);
    training_ = make_training_graph(model.graph, model.loss);
    strategy_->rewrite_training(training_);
    CompileRequest request;
    for (const Lookup& lookup : model.lookups)
      request.feeds.push_back({lookup.feed, lookup.dtype, Shape{examples, lookup.length}});
    request.fetches = {training_.graph.value_name(training_.loss)};
    if (training_.stop_votes.valid())
      request.fetches.push_back(training_.graph.value_name(training_.stop_votes));
    request.targets = training_.targets;
    instance_ = std::make_unique<Instance>(compile(training_.graph, request, {}), runtime_);
    for (const VariableInfo& variable : list_variables(training_.graph))
      if (auto value = runtime_.variables().read(variable.name)) {
        initialize_variable(training_.graph.node(variable.handle), job.seed(), *value);
        runtime_.variables().write(variable.name, *value);
      }
    strategy_->start(nullptr, false, 0, ps::soon());
  }

  /// Two steps in flight, as in training.
  std::vector<float> run(const Batches& batches) {
    std::vector<float> losses;
    const auto finish = [&] {
      const StepResult result = instance_->finish(ps::soon());
      losses.push_back(result.fetches[0].data<float>()[0]);
      if (result.fetches.size() > 1) {
        EXPECT_EQ(result.fetches[1].data<float>()[0], 0) << "nobody wants to stop";
      }
    };
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      ps::random_delay();
      StepRequest request;
      request.params = {
          .step = step, .learning_rate = 0.1F, .grad_scale = strategy_->gradient_scale(), .seed = 1};
      for (std::size_t l = 0; l < model_.lookups.size(); ++l) {
        const Lookup& lookup = model_.lookups[l];
        const auto count = static_cast<std::size_t>(examples_ * lookup.length);
        const std::int64_t* first = batches[step][l].data() + static_cast<std::size_t>(peers_.rank) * count;
        const Shape shape{examples_, lookup.length};
        request.feeds.push_back(
            lookup.dtype == DType::Int64
                ? Tensor::from<std::int64_t>(shape, std::vector<std::int64_t>(first, first + count))
                : Tensor::from<std::int32_t>(shape, std::vector<std::int32_t>(first, first + count)));
      }
      if (instance_->in_flight() == 2) finish();
      instance_->start(std::move(request), ps::soon());
    }
    while (instance_->in_flight() > 0) finish();
    strategy_->finish_steps(ps::soon());
    return losses;
  }

 private:
  const Model& model_;
  const Peers peers_;
  const std::int64_t examples_;
  Runtime runtime_;
  std::unique_ptr<Strategy> strategy_;
  TrainingGraph training_;
  std::unique_ptr<Instance> instance_;
};

/// For each step the mean of the workers' losses.
std::vector<double> served(const Model& model, const proto::Job& job, int workers, int servers,
                           const Batches& batches) {
  ps::Cluster cluster({servers, workers});
  std::vector<double> mean(kSteps);
  std::mutex mutex;
  std::vector<std::vector<float>> losses(static_cast<std::size_t>(workers));
  std::vector<std::jthread> threads;
  for (int w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      const Peers peers{w, workers, nullptr, cluster.client(w)};
      losses[static_cast<std::size_t>(w)] = Worker(model, job, peers, kExamples).run(batches);
    });
  threads.clear();
  for (const auto& of_worker : losses)
    for (std::size_t s = 0; s < of_worker.size(); ++s) mean[s] += of_worker[s] / static_cast<double>(workers);
  return mean;
}

class OrderedRowsTest : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  static void SetUpTestSuite() { register_strategy_ops(); }
};
using OrderedRowsGraphTest = OrderedRowsTest;

TEST_P(OrderedRowsTest, RandomModelsLearnAsOneProcessAndAheadHasTheSameBits) {
  const auto [workers, servers] = GetParam();
  Random random(static_cast<unsigned>(10 * workers + servers));
  for (int trial = 0; trial < 8; ++trial) {
    const Model model = random_model(random, trial % 4 != 3);
    const Batches batches = random_batches(random, model, kExamples * workers);
    const std::string optimizer = Strings{"SGD", "ADAGRAD", "FTRL"}[static_cast<std::size_t>(trial) % 3];
    SCOPED_TRACE("trial " + std::to_string(trial) + " " + optimizer);
    const std::vector<float> local =
        Worker(model, job_of(optimizer, "kind: LOCAL"), {}, kExamples * workers).run(batches);
    const std::vector<double> ahead =
        served(model, job_of(optimizer, "kind: PS bucket_bytes: 64 ps { pull_ahead: true }"), workers,
               servers, batches);
    const std::vector<double> not_ahead =
        served(model, job_of(optimizer, "kind: PS bucket_bytes: 64"), workers, servers, batches);
    EXPECT_EQ(ahead, not_ahead);
    for (std::size_t s = 0; s < kSteps; ++s)
      ASSERT_NEAR(ahead[s], local[s], 1e-5 * (1 + std::abs(local[s]))) << "step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(WorkersAndServers, OrderedRowsTest,
                         ::testing::Values(std::pair{1, 1}, std::pair{2, 1}, std::pair{2, 2},
                                           std::pair{3, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "_" + std::to_string(info.param.second);
                         });

bool flag(const Node& node, const std::string& name) { return node.attrs.require<bool>(name); }

int count_of(const Graph& graph, std::string_view op) {
  int count = 0;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed && graph.node(id).op->name == op) ++count;
  return count;
}

/// The graph of a step on two servers.
TrainingGraph rewritten(const GraphDef& graph, const std::string& loss, const std::string& strategy) {
  register_strategy_ops();
  TrainingGraph training = make_training_graph(graph, loss);
  Runtime runtime(RuntimeOptions{});
  ps::Cluster cluster({2, 1});
  const Peers peers{0, 1, nullptr, cluster.client(0)};
  make_strategy(job_of("SGD", strategy), runtime, peers)->rewrite_training(training);
  return training;
}

/// Four tables of two dims, of which one is read twice.
struct FourTables {
  GraphBuilder b;
  std::string loss;
  FourTables() {
    std::vector<Output> parts;
    for (const auto& [name, dim] :
         std::map<std::string, std::int64_t>{{"a", 2}, {"b", 2}, {"c", 5}, {"d", 2}}) {
      const Output table =
          b.variable(name, Shape{9, dim}, {.init = {InitKind::Constant, 1, 0}, .sparse = true});
      for (const std::string use : {"1", "2"}) {
        if (use == "2" && name != "b") continue;
        parts.push_back(b.gather(table, b.placeholder(name + use, DType::Int64, Shape{-1})));
      }
    }
    const Output out = b.dense("top", b.concat(parts, 1), 13, 1, false);
    loss = b.reduce_mean(b.mul(out, out)).name();
  }
};

TEST(OrderedRowsGraphTest, TablesOfOneDimAreOneBlockEachWay) {
  FourTables model;
  const TrainingGraph training =
      rewritten(model.b.graph(), model.loss, "kind: PS bucket_bytes: 64 ps { pull_ahead: true }");
  const Graph& graph = training.graph;
  EXPECT_EQ(count_of(graph, "braid.PsKeys"), 2) << "one for each dim";
  EXPECT_EQ(count_of(graph, "braid.PsRows"), 1);
  EXPECT_EQ(count_of(graph, "braid.PsPushRows"), 2);
  EXPECT_EQ(count_of(graph, "braid.SumBuckets"), 2);
  EXPECT_EQ(count_of(graph, "braid.Unbucket"), 5) << "one for each gather";
  EXPECT_EQ(training.ahead.size(), 2U);
  for (const std::string& name : training.ahead)
    EXPECT_EQ(graph.node(node_named(graph, name)).op->name, "braid.PsKeys");
  // The dense variable comes with the rows, and so do the votes.
  EXPECT_EQ(graph.node(training.stop_votes.node).op->name, "braid.PsRows");
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "braid.PsRows") continue;
    EXPECT_TRUE(flag(node, "ahead"));
    EXPECT_TRUE(flag(node, "versioned"));
  }
}

TEST(OrderedRowsGraphTest, DenseVariablesThatFitOneBucketTravelWithTheRows) {
  FourTables model;
  const auto counts = [&](const std::string& strategy) {
    const Graph graph = rewritten(model.b.graph(), model.loss, "kind: PS " + strategy).graph;
    return std::vector{count_of(graph, "braid.PsPull"), count_of(graph, "braid.PsPush"),
                       count_of(graph, "braid.PsRows"), count_of(graph, "braid.PsPushRows")};
  };
  EXPECT_EQ(counts(""), (std::vector{0, 0, 1, 1})) << "one request each way";
  EXPECT_EQ(counts("bucket_bytes: 64"), (std::vector{0, 1, 1, 2})) << "pushes leave as they are ready";
  EXPECT_EQ(counts("bucket_bytes: 55"), (std::vector{2, 2, 1, 2})) << "56 bytes are more";
  const TrainingGraph training = rewritten(model.b.graph(), model.loss, "kind: PS");
  const Graph& graph = training.graph;
  const NodeId pull = training.stop_votes.node;
  int readers = 0;
  for (NodeId id = 0; id < pull; ++id)
    for (const ValueRef& input : graph.node(id).inputs)
      if (graph.node(input.node).name == "top/kernel") {
        ++readers;
        EXPECT_THAT(graph.node(id).control_inputs, testing::Contains(pull)) << graph.node(id).name;
      }
  EXPECT_GT(readers, 0);
}

TEST(OrderedRowsGraphTest, OnlySynchronousPullsAreAheadAndOnlyAsynchronousOnesHaveNoRound) {
  FourTables model;
  for (const auto& [strategy, versioned, ahead] :
       {std::tuple{"kind: PS ps { pull_ahead: true }", true, true},
        {"kind: PS", true, false},
        {"kind: PS consistency: ASP ps { pull_ahead: true }", false, false},
        {"kind: PS consistency: SSP staleness: 2 ps { pull_ahead: true }", true, false},
        {"kind: PS consistency: SSP staleness: 0 ps { pull_ahead: true }", true, true},
        {"kind: PS consistency: TIMED timed { timeout_millis: 50 } ps { pull_ahead: true }", true, false}}) {
    SCOPED_TRACE(strategy);
    const TrainingGraph training = rewritten(model.b.graph(), model.loss, strategy);
    for (NodeId id = 0; id < training.graph.size(); ++id) {
      const Node& node = training.graph.node(id);
      if (node.removed || node.op->name != "braid.PsRows") continue;
      EXPECT_EQ(flag(node, "ahead"), ahead);
      EXPECT_EQ(flag(node, "versioned"), versioned);
    }
  }
}

TEST(OrderedRowsGraphTest, APushWaitsForTheGradientsOfItsTablesAlone) {
  FourTables model;
  const TrainingGraph training =
      rewritten(model.b.graph(), model.loss, "kind: PS bucket_bytes: 64 ps { pull_ahead: true }");
  const Graph& graph = training.graph;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "braid.PsPushRows") continue;
    EXPECT_TRUE(node.control_inputs.empty());
    // keys, counts, sums
    ASSERT_EQ(node.inputs.size(), 3U);
    EXPECT_EQ(graph.node(node.inputs[0].node).op->name, "braid.PsKeys");
    EXPECT_EQ(graph.node(node.inputs[2].node).op->name, "braid.SumBuckets");
  }
}

TEST(OrderedRowsGraphTest, WhatFitsIntoABucketIsPushedTogether) {
  FourTables model;
  const auto pushes = [&](int bytes) {
    return count_of(
        rewritten(model.b.graph(), model.loss, "kind: PS bucket_bytes: " + std::to_string(bytes)).graph,
        "braid.PsPushRows");
  };
  // 12 examples; four ids of each in tables of dim 2, one in that of dim 5.
  constexpr int kBytes = 12 * (4 * 2 + 5) * 4;
  EXPECT_EQ(pushes(kBytes), 1);
  EXPECT_EQ(pushes(kBytes - 1), 2);
}

}  // namespace
}  // namespace braid::worker
