// Variables that are spread over the ranks (strategy.shard PARAMETERS), ranks that are threads, against the
// run that has them everywhere, and that of one process.
#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "engine/ir/op.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/strategies/model_rows.h"
#include "tests/worker/strategies/tensor_runs.h"
#include "worker/input/columns.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/step/training_program.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/spread_variables.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  const char* model;
  std::shared_ptr<const Table> (*rows)();
  const char* spread;  // a variable that is
};

const Case kMlp{"mlp", "name: 'mlp' hidden: 15 hidden: 12 hidden: 8 classes: 4",
                [] { return made_images(48, 6); }, "mlp/layer0/kernel [36, 15]"};
const Case kCnn{"cnn", "name: 'cnn' hidden: 4 hidden: 6 hidden: 8 classes: 4",
                [] { return made_images(48, 16); }, "kernel"};
const Case kTransformer{
    "transformer", "name: 'transformer' hidden: 8 hidden: 8 embedding_dim: 8 classes: 3 hash_buckets: 12",
    [] { return made_sequences(48); }, "layer0/attention/query/kernel [8, 8]"};
const Case kDinSparse{"din_sparse",
                      "name: 'din' hidden: 8 hidden: 4 embedding_dim: 4 hash_buckets: 9 sparse_tables: true",
                      [] { return made_histories(48); }, "kernel"};
const Case kWideDeep{"wide_deep", "name: 'wide_deep' hidden: 16 hidden: 8 embedding_dim: 4 hash_buckets: 30",
                     [] { return made_rows(48); }, "kernel"};

std::string job_text(const Case& of, int steps) {
  return pipeline_job(of.model, steps, "kind: MOMENTUM learning_rate: 0.02");
}

Settings all_reduced() { return {"strategy.kind=ALLREDUCE"}; }
/// Gathers of a layer or two each.
Settings sharded(int min_elements = 8, int bucket_bytes = 400) {
  return {"strategy.kind=ALLREDUCE", "strategy.shard=PARAMETERS",
          "strategy.shard_min_elements=" + std::to_string(min_elements),
          "strategy.bucket_bytes=" + std::to_string(bucket_bytes)};
}

RankRun run_sharded(const proto::Job& job, int world, const std::shared_ptr<const Table>& rows,
                    RunStart start = RunStart::New) {
  const auto runs = run_ranks(job, world, rows, start);
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.losses, runs[0].losses);
  }
  return runs[0];
}

/// Of what `local` has the other has all, but for slots of slices.
void expect_close(const RankRun& cut, const RankRun& local, double most) {
  ASSERT_EQ(cut.losses.size(), local.losses.size());
  for (std::size_t i = 0; i < local.losses.size(); ++i)
    EXPECT_NEAR(cut.losses[i], local.losses[i], most * std::max(1.0F, local.losses[i])) << "step " << i;
  std::size_t compared = 0;
  for (const auto& [name, values] : local.values) {
    const auto other = cut.values.find(name);
    if (other == cut.values.end()) continue;
    ++compared;
    ASSERT_EQ(values.size(), other->second.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(other->second[i], values[i], 10 * most) << name;
  }
  EXPECT_GE(3 * compared, local.values.size()) << "variables and their slots";
}

class ShardedVariablesTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedVariablesTest, TwoWorkersHaveTheBitsOfAllReduce) {
  const Case& of = GetParam();
  const auto rows = of.rows();
  const RankRun plain = run_leader(job_with(job_text(of, 12), all_reduced()), 2, rows);
  for (const int bytes : {1, 400, 1 << 20}) {
    SCOPED_TRACE(bytes);
    expect_close(run_sharded(job_with(job_text(of, 12), sharded(8, bytes)), 2, rows), plain, 0);
  }
}

TEST_P(ShardedVariablesTest, MoreAreNearOneProcess) {
  const Case& of = GetParam();
  const auto rows = of.rows();
  const RankRun local = run_leader(job_with(job_text(of, 20), {}), 1, rows);
  for (const int world : {3, 4}) {
    SCOPED_TRACE(world);
    expect_close(run_sharded(job_with(job_text(of, 20), sharded()), world, rows), local, 1e-6);
  }
}

TEST_P(ShardedVariablesTest, OneWorkerHasTheBitsOfOneProcess) {
  const Case& of = GetParam();
  expect_equal(run_sharded(job_with(job_text(of, 6), sharded()), 1, of.rows()),
               run_leader(job_with(job_text(of, 6), {}), 1, of.rows()));
}

TEST_P(ShardedVariablesTest, ThePlanNamesWhatIsSpread) {
  const Case& of = GetParam();
  EXPECT_THAT(plan_text(job_with(job_text(of, 1), sharded()), 2, *of.rows()),
              AllOf(HasSubstr(" variables over 2 workers: "), HasSubstr(of.spread)));
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedVariablesTest,
                         ::testing::Values(kMlp, kCnn, kTransformer, kDinSparse, kWideDeep),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedVariablesMethodsTest, WhatElseAJobHasIsAsWithout) {
  const auto rows = kMlp.rows();
  for (const Settings& how :
       {Settings{"optimizer.accumulate_steps=3"}, Settings{"runtime.recompute.scope=mlp/(layer[0-9])/.*"},
        Settings{"streams.count=3", "streams.policy=FULL"}, Settings{"runtime.steps_in_flight=1"},
        Settings{"input.global_batch_size=17"},
        Settings{"optimizer.kind=ADAM", "optimizer.learning_rate=0.01"},
        Settings{"optimizer.kind=RMSPROP", "optimizer.learning_rate=0.01"},
        Settings{"optimizer.group=match: '.*bias' kind: SGD"}, Settings{"optimizer.weight_decay=0.01"},
        Settings{"strategy.reduction=SUM"}, Settings{"strategy.reduction=WORKER_MEAN"},
        Settings{"model.dropout=0.3"}, Settings{"optimizer.clip_worker_norm=0.1"}}) {
    SCOPED_TRACE(how[0]);
    const RankRun plain = run_leader(job_with(job_text(kMlp, 10), all_reduced() + how), 2, rows);
    expect_close(run_sharded(job_with(job_text(kMlp, 10), sharded() + how), 2, rows), plain, 0);
  }
}

TEST(ShardedVariablesMethodsTest, ClippingSeesAllRuns) {
  const auto rows = kMlp.rows();
  const Settings clip{"optimizer.clip_norm=0.1"};
  const RankRun plain = run_leader(job_with(job_text(kMlp, 10), all_reduced() + clip), 3, rows);
  EXPECT_NE(plain.losses, run_leader(job_with(job_text(kMlp, 10), all_reduced()), 3, rows).losses);
  expect_close(run_sharded(job_with(job_text(kMlp, 10), sharded() + clip), 3, rows), plain, 1e-6);
}

TEST(ShardedVariablesMethodsTest, ReplicasOfAProcessHaveTheSameBits) {
  const auto rows = kMlp.rows();
  const RankRun workers = run_sharded(job_with(job_text(kMlp, 10), sharded()), 2, rows);
  const RankRun replicas =
      run_sharded(job_with(job_text(kMlp, 10), sharded() + Settings{"strategy.kind=MIRRORED"}), 2, rows);
  EXPECT_EQ(replicas.losses, workers.losses);
}

TEST(ShardedVariablesCheckpointTest, AnyNumberOfWorkersAndOtherWaysGoOn) {
  const auto rows = kTransformer.rows();
  RankRun whole = run_leader(job_with(job_text(kTransformer, 20), {}), 1, rows);
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 10);
  const std::vector<std::pair<Settings, int>> ways{
      {Settings{}, 1}, {all_reduced(), 2}, {sharded(), 2}, {sharded(), 3}, {in_mesh(1, 2), 2}};
  for (std::size_t first = 0; first < ways.size(); ++first)
    for (std::size_t second = 0; second < ways.size(); ++second) {
      if (first < 2 && second < 2) continue;
      SCOPED_TRACE(std::to_string(first) + ", then " + std::to_string(second));
      TempDir directory;
      const Settings saved{"checkpoint.every_steps=10", "checkpoint.directory=" + directory.path().string()};
      run_sharded(job_with(job_text(kTransformer, 10), ways[first].first + saved), ways[first].second, rows);
      expect_close(run_sharded(job_with(job_text(kTransformer, 20), ways[second].first + saved),
                               ways[second].second, rows, RunStart::Resume),
                   whole, 1e-6);
    }
}

// ------------------------------------------------------------ memory

/// A number of KiB behind these words of a plan.
double kib_behind(const std::string& text, const std::string& words) {
  const auto at = text.find(words);
  EXPECT_NE(at, std::string::npos) << words << " in " << text;
  if (at == std::string::npos) return -1;
  const std::string rest = text.substr(at + words.size(), 20);
  return std::atof(rest.c_str()) * (rest.find("MiB") != std::string::npos ? 1024 : 1);
}

/// Eight layers of 128 x 128, 64 KiB each, of which two are there at once.
TEST(ShardedVariablesPlanTest, AWorkerHasItsRunsAndTwoLayers) {
  const Case deep{"",
                  "name: 'mlp' hidden: 128 hidden: 128 hidden: 128 hidden: 128 hidden: 128 hidden: 128 "
                  "hidden: 128 hidden: 128 hidden: 128 classes: 4",
                  kMlp.rows, ""};
  const auto rows = made_images(48, 6);
  const auto of = [&](const Settings& settings, int world) {
    return plan_text(job_with(job_text(deep, 1), settings), world, *rows);
  };
  const std::string layers = of(sharded(1000, 1), 4), at_once = of(sharded(1000, 1 << 30), 4);
  EXPECT_NEAR(kib_behind(layers, "at most "), 128, 1);
  EXPECT_THAT(layers, HasSubstr("forward: 9 gathers of "));
  EXPECT_THAT(layers, HasSubstr("backward: 7 of "))
      << "the last layer's is there, and the first one's is not read";
  EXPECT_THAT(at_once, HasSubstr("forward: 1 gathers of "));
  EXPECT_THAT(at_once, HasSubstr("backward: 0 of "));
  const double arena = kib_behind(layers, "arena "), whole = kib_behind(at_once, "arena ");
  EXPECT_LT(arena, whole - 4 * 64) << "of eight layers and the first one";
  // Weights and one slot, a quarter of them; what is small is whole.
  EXPECT_NEAR(kib_behind(layers, "with slots "), 2 * (8 * 64 + 18) / 4.0, 16);
}

TEST(ShardedVariablesPlanTest, SmallVariablesStayWhole) {
  const std::string text = plan_text(job_with(job_text(kMlp, 1), sharded(100)), 2, *kMlp.rows());
  EXPECT_THAT(text, AllOf(HasSubstr("shard: 2 variables over 2 workers"), HasSubstr("layer1/kernel [15, 12]"),
                          ::testing::Not(HasSubstr("bias")), ::testing::Not(HasSubstr("layer2"))));
}

/// A training graph's gathers, of two ranks.
std::vector<VariableGather> gathers_of(const std::string& text, const Table& rows,
                                       const SpreadOptions& options) {
  register_strategy_ops();
  const proto::Job job = job_with(text, {});
  const JobData data{.train = std::shared_ptr<const Table>(&rows, [](const Table*) {})};
  const ModelGraph model = job_model(job, rows);
  const auto batcher = make_batcher(job, data, model.columns, training_batches(job, 0, 1));
  TrainingGraph training = make_training_graph(*model.graph, model.loss);
  for (std::size_t c = 0; c < model.columns.size(); ++c)
    training.feeds.push_back(
        {training.graph.parse_value(model.columns[c]), batcher->dtype(c), batcher->shape(c, 24)});
  Graph& graph = training.graph;
  const auto exchange = [&](const char* op, std::vector<ValueRef> values, const std::string& name) {
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.name = graph.unique_name(name);
    node.inputs = std::move(values);
    node.attrs = {{kMembers, std::vector<std::int64_t>{0, 1}}};
    return graph.add(std::move(node));
  };
  const auto gather = [&](std::vector<ValueRef> values, const std::string& name, const auto&) {
    const NodeId id = exchange("braid.GroupGather", values, name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = {id, static_cast<int>(i)};
    return values;
  };
  const auto sum_of_run = [&](ValueRef value, const std::string& name) {
    return ValueRef{exchange("braid.GroupReduceScatter", {value}, name), 0};
  };
  return spread_variables(training, spread_slices(training, 2, 8), options, {gather, sum_of_run});
}

TEST(SpreadVariablesTest, EachPassGathersWhatItReadsInItsOrder) {
  const auto rows = kMlp.rows();
  std::vector<std::string> forward, backward;
  for (const VariableGather& gather : gathers_of(job_text(kMlp, 1), *rows, {.bucket_bytes = 1})) {
    std::vector<std::string>& of_pass = gather.pass == 0 ? forward : backward;
    of_pass.insert(of_pass.end(), gather.variables.begin(), gather.variables.end());
  }
  EXPECT_EQ(forward, (std::vector<std::string>{"mlp/layer0/kernel", "mlp/layer0/bias", "mlp/layer1/kernel",
                                               "mlp/layer1/bias", "mlp/layer2/kernel", "mlp/layer2/bias",
                                               "logits/kernel"}));
  // Biases are not read again, nor is the first layer's kernel, and the last one's is there.
  EXPECT_EQ(backward, (std::vector<std::string>{"mlp/layer2/kernel", "mlp/layer1/kernel"}));
}

TEST(SpreadVariablesTest, WhatIsKeptIsGatheredOnce) {
  const auto rows = kMlp.rows();
  std::multiset<std::string> gathered;
  for (const VariableGather& gather :
       gathers_of(job_text(kMlp, 1), *rows, {.bucket_bytes = 1, .keeps = true}))
    gathered.insert(gather.variables.begin(), gather.variables.end());
  EXPECT_EQ(gathered.size(), 7U);
  EXPECT_EQ(gathered.count("mlp/layer1/kernel"), 1U);
}

// ------------------------------------------------------------ graphs

void expect_as_local(const std::string& text, int bucket_bytes = 1) {
  const auto rows = made_vectors(48);
  const RankRun local = run_leader(job_with(text, {}), 1, rows);
  for (const int world : {2, 3})
    expect_close(run_sharded(job_with(text, sharded(8, bucket_bytes)), world, rows), local, 1e-6);
}

TEST(ShardedVariablesGraphsTest, WeightsThatAreReadFirstAndLast) {
  GraphJob job;
  const Output tied =
      job.b.read(job.b.variable("tied", Shape{8, 8}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  Output x = job.b.matmul(job.x, tied);
  for (const char* name : {"a", "b", "c"}) x = job.b.dense(name, x, 8, 8, true);
  expect_as_local(job.text(job.b.op("MatMul", {x, tied}, {{"transpose_b", true}}, "last"), 10));
}

/// What follows from weights alone is made again in each pass.
TEST(ShardedVariablesGraphsTest, WeightsThatAreComputedFirst) {
  GraphJob job;
  const Output raw =
      job.b.read(job.b.variable("raw", Shape{8, 8}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  const Output weights = job.b.op("Tanh", {job.b.op("Square", {raw}, {}, "squared")}, {}, "bent");
  Output x = job.b.dense("a", job.x, 8, 8, true);
  x = job.b.matmul(x, weights);
  x = job.b.dense("b", x, 8, 8, true);
  expect_as_local(job.text(job.b.matmul(x, weights), 10));
}

TEST(ShardedVariablesGraphsTest, PenaltiesOnWeights) {
  GraphJob job;
  const Output weights =
      job.b.read(job.b.variable("w", Shape{8, 8}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  const Output out = job.b.dense("a", job.b.matmul(job.x, weights), 8, 8, true);
  const Output penalty = job.b.op("L2Loss", {weights}, {}, "penalty");
  expect_as_local(job.text(job.b.op("AddV2", {out, penalty}, {}, "with_penalty"), 10));
}

TEST(ShardedVariablesGraphsTest, WeightsThatOnlyGiveTheirShape) {
  GraphJob job;
  const Output weights =
      job.b.read(job.b.variable("w", Shape{8, 8}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  const Output other = job.b.dense("a", job.x, 8, 8, true);
  const Output ones = job.b.op("OnesLike", {weights}, {}, "ones");
  const Output mixed = job.b.matmul(job.b.matmul(other, weights), ones);
  expect_as_local(job.text(mixed, 10));
}

// ------------------------------------------------------------ refusals

TEST(ShardedVariablesTest, WhatDoesNotGoWithItIsRefusedByName) {
  const auto refusal = [](const Settings& settings) {
    return message_of(
        [&] { error_of_mesh(job_with(job_text(kMlp, 1), sharded() + settings), 1, kMlp.rows()); });
  };
  EXPECT_THAT(refusal({"runtime.recompute.memory_bytes=1000"}),
              HasSubstr("strategy.shard PARAMETERS does not go with runtime.recompute.memory_bytes"));
  EXPECT_THAT(refusal({"staging.auto_stage=true"}), HasSubstr("does not go with staging.auto_stage"));
  EXPECT_THAT(refusal({"strategy.reduction=MEDIAN"}), HasSubstr("strategy.shard is for sums"));
  EXPECT_THAT(refusal({"strategy.compression.kind=INT8"}), HasSubstr("needs whole gradients"));
  const auto error = [](const Settings& settings) {
    return error_of_mesh(job_with(job_text(kMlp, 1), sharded() + settings), 2, kMlp.rows());
  };
  EXPECT_THAT(error({"strategy.wire=BF16"}), HasSubstr("does not go with strategy.wire"));
  EXPECT_THAT(error({"runtime.precision=FP16"}), HasSubstr("does not go with runtime.precision FP16"));
}

}  // namespace
}  // namespace braid::worker
