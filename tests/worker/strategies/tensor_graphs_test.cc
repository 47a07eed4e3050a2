// Layers of graphs that nobody has made for being cut, over ranks that are threads; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "models/common.h"
#include "tests/support/message_of.h"
#include "tests/worker/strategies/tensor_runs.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Output dense(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t in, std::int64_t out) {
  return dense_layer(b, name, x, in, out, false, LayerInit::GlorotUniform);
}

/// x (1 + erf(x / sqrt(2))) / 2
Output gelu(GraphBuilder& b, const Output& x) {
  const auto times = [&](const Output& value, float factor) {
    return b.mul(value, b.constant(Tensor::scalar(factor)));
  };
  const Output erf = b.op("Erf", {times(x, 1 / std::sqrt(2.0F))});
  return times(b.mul(x, b.add(erf, b.constant(Tensor::scalar(1.0F)))), 0.5F);
}

/// x + W_2 gelu(W_1 LN(x))
Output block(GraphBuilder& b, const std::string& name, const Output& x, std::int64_t dim,
             std::int64_t inner) {
  const NameScope scope(b, name);
  const Output h = gelu(b, dense(b, "up", layer_norm(b, "norm", x, dim), dim, inner));
  return b.add(x, dense(b, "down", h, inner, dim));
}

std::string plan(const std::string& job, int data, int tensor, const Settings& settings = {}) {
  return plan_text(job_with(job, in_mesh(data, tensor) + settings), data * tensor, *made_vectors(48));
}

void expect_same(const std::string& job, const Settings& settings = {}) {
  for (const auto& [data, tensor] : {std::pair(1, 2), {1, 4}, {2, 2}})
    expect_as_one_process(job, made_vectors(48), data, tensor, settings);
}

TEST(TensorGraphsTest, ThreeTowersWithResidualsNormsAndGelus) {
  GraphJob job;
  std::vector<Output> towers;
  for (const char* name : {"one", "two", "three"}) {
    const NameScope scope(job.b, name);
    towers.push_back(block(job.b, "b", block(job.b, "a", job.x, 8, 16), 8, 24));
  }
  const Output all = job.b.concat(towers, 1);
  const std::string text =
      job.text(dense(job.b, "out", gelu(job.b, dense(job.b, "join", all, 24, 12)), 12, 4), 20);
  EXPECT_THAT(plan(text, 1, 2),
              AllOf(HasSubstr("21 variables cut"), HasSubstr("COLUMN   one/a/up/kernel [8, 16] -> [8, 8]"),
                    HasSubstr("ROW      one/a/down/kernel [16, 8] -> [8, 8]"),
                    HasSubstr("with it  one/a/up/bias [16] -> [8]"), HasSubstr("forward: 7 sums"),
                    HasSubstr("backward: 8 sums of 7.3 KiB"), Not(HasSubstr(" 1 gathers"))));
  expect_same(text);
}

/// Between pairs each worker has its rows: of a sum it gets those, and the next layer gathers them.
TEST(TensorGraphsTest, NormsAndResidualsBetweenPairsAreCutByRows) {
  GraphJob job;
  const Output x = block(job.b, "b", block(job.b, "a", job.x, 8, 16), 8, 24);
  const std::string text = job.text(dense(job.b, "out", layer_norm(job.b, "norm", x, 8), 8, 4), 20);
  const Settings rows{"strategy.tensor.sequence=true"};
  EXPECT_THAT(plan(text, 1, 2), HasSubstr("forward: 2 sums of 1.5 KiB, 0 gathers"));
  EXPECT_THAT(
      plan(text, 1, 2, rows),
      AllOf(HasSubstr("6 variables cut"),
            HasSubstr("forward: 0 sums of 0.0 KiB, 2 gathers of 1.1 KiB, 2 sums of slices of 1.5 KiB"),
            HasSubstr("backward: 1 sums of 0.4 KiB, 2 gathers of 1.5 KiB, 2 sums of slices of 1.5 KiB")));
  expect_same(text, rows);
  expect_same(text, {"strategy.tensor.sequence=true", "optimizer.clip_norm=0.05"});
}

/// The gate is cut with the layer whose outputs it multiplies, and the gradients of both inputs are one sum.
TEST(TensorGraphsTest, AGatedLayerIsCutWithItsGate) {
  GraphJob job;
  const Output x = dense(job.b, "in", job.x, 8, 6);
  const Output gate = job.b.op("Sigmoid", {dense(job.b, "gate", x, 6, 16)});
  const std::string text =
      job.text(dense(job.b, "out", job.b.mul(dense(job.b, "up", x, 6, 16), gate), 16, 4), 20);
  const Settings only_wide{"strategy.tensor.min_width=16"};
  EXPECT_THAT(
      plan(text, 1, 2, only_wide),
      AllOf(HasSubstr("5 variables cut"), HasSubstr("COLUMN   gate/kernel"), HasSubstr("COLUMN   up/kernel"),
            HasSubstr("forward: 1 sums"), HasSubstr("backward: 2 sums"), HasSubstr(" 0 gathers")));
  expect_same(text, {});
}

/// Attention as Keras and PyTorch write it: products of more axes.
TEST(TensorGraphsTest, HeadsThatEinsumsMake) {
  GraphJob job;
  GraphBuilder& b = job.b;
  const Output x = b.reshape(dense(b, "in", job.x, 8, 24), {-1, 4, 6});
  const auto weights = [&](const char* name, Shape shape) {
    return b.read(b.variable(name, std::move(shape), {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  };
  const auto heads = [&](const char* name) {
    const Output made = b.op("Einsum", {x, weights(name, {6, 4, 3})}, {{"equation", "btd,dhk->bthk"}},
                             std::string(name) + "_heads");
    return b.add(made, weights((std::string(name) + "_bias").c_str(), {4, 3}));
  };
  const Output dots =
      b.op("Einsum", {heads("query"), heads("key")}, {{"equation", "bthk,bshk->bhts"}}, "dots");
  const Output mixed =
      b.op("Einsum", {b.op("Softmax", {dots}), heads("value")}, {{"equation", "bhts,bshk->bthk"}}, "mixed");
  const Output out =
      b.op("Einsum", {mixed, weights("output", {4, 3, 6})}, {{"equation", "bthk,hkd->btd"}}, "joined");
  const std::string text = job.text(dense(b, "out", b.reshape(out, {-1, 24}), 24, 4), 20);
  EXPECT_THAT(plan(text, 1, 2), AllOf(HasSubstr("ROW      output [4, 3, 6] -> [2, 3, 6]"),
                                      HasSubstr("COLUMN   key [6, 4, 3] -> [6, 2, 3]"),
                                      HasSubstr("COLUMN   key_bias [4, 3] -> [2, 3]")));
  expect_same(text);
}

/// What patterns ask for costs gathers, and is right.
TEST(TensorGraphsTest, LayersAreCutAsPatternsSay) {
  GraphJob job;
  const Output h = job.b.op("Tanh", {dense(job.b, "in", job.x, 8, 16)});
  const Output normed = job.b.op("Softmax", {dense(job.b, "middle", h, 16, 8)});
  const std::string text = job.text(dense(job.b, "out", normed, 8, 4), 20);
  const auto layer = [](const std::string& match, const std::string& split) {
    return "strategy.tensor.layer=match: '" + match + "' split: " + split;
  };
  const Settings only{"strategy.tensor.automatic=false"};
  EXPECT_THAT(plan(text, 1, 2, only), HasSubstr("0 variables cut"));
  const Settings column{layer("middle/.*", "COLUMN"), only[0]};
  EXPECT_THAT(plan(text, 1, 2, column),
              AllOf(HasSubstr("2 variables cut"), HasSubstr("forward: 0 sums of 0.0 KiB, 1 gathers"),
                    HasSubstr("backward: 2 sums")));
  expect_same(text, column);
  const Settings row{layer("(in|middle)/.*", "ROW"), only[0]};
  EXPECT_THAT(plan(text, 1, 2, row), HasSubstr("forward: 2 sums"));
  expect_same(text, row);
  const Settings whole{layer("middle/kernel", "WHOLE")};
  EXPECT_THAT(plan(text, 1, 2, whole), HasSubstr("0 variables cut"));
  expect_same(text, whole);
}

Output embedded(GraphJob& job, bool sparse) {
  const Output table =
      job.b.variable("table", Shape{4, 8}, {.init = {InitKind::Uniform, -1, 1}, .sparse = sparse});
  const Output ids = job.b.op("Cast", {job.b.placeholder("y", DType::Float32, {-1})},
                              {{"SrcT", DType::Float32}, {"DstT", DType::Int64}}, "ids");
  return sparse ? job.b.gather(table, ids)
                : job.b.op("GatherV2",
                           {job.b.read(table), ids, job.b.constant(Tensor::scalar<std::int32_t>(0))});
}

/// A wide table by columns, whose rows the next layer reads by rows.
TEST(TensorGraphsTest, ATableByColumns) {
  for (const bool sparse : {true, false}) {
    SCOPED_TRACE(sparse ? "by rows" : "dense");
    GraphJob job;
    const Output rows = job.b.mul(embedded(job, sparse), job.x);
    const std::string text = job.text(dense(job.b, "out", rows, 8, 4), 20);
    const Settings column{"strategy.tensor.layer=match: 'table' split: COLUMN",
                          "strategy.tensor.automatic=false"};
    EXPECT_THAT(plan(text, 1, 2, column),
                AllOf(HasSubstr("COLUMN   table [4, 8] -> [4, 4]"), HasSubstr("ROW      out/kernel"),
                      HasSubstr("forward: 1 sums of 0.4 KiB, 0 gathers")));
    expect_same(text, column);
  }
}

/// One that nobody cuts, whose gradient is of rows.
TEST(TensorGraphsTest, ATableThatIsWholeBesideLayersThatAreCut) {
  GraphJob job;
  const Output x = job.b.concat({job.x, embedded(job, true)}, 1);
  const Output h = job.b.relu(dense(job.b, "in", x, 16, 16));
  expect_same(job.text(dense(job.b, "out", h, 16, 4), 20));
}

/// Two layers with one matrix.
TEST(TensorGraphsTest, TiedWeights) {
  GraphJob job;
  const Output tied =
      job.b.read(job.b.variable("tied", Shape{8, 16}, {.init = {InitKind::Uniform, -0.4F, 0.4F}}));
  const Output h = job.b.op("Tanh", {job.b.matmul(job.x, tied)});
  const Output back = job.b.op("MatMul", {h, tied}, {{"transpose_b", true}}, "back");
  const std::string text = job.text(back, 20);
  EXPECT_THAT(plan(text, 1, 2), HasSubstr("COLUMN   tied [8, 16] -> [8, 8]"));
  expect_same(text);
}

TEST(TensorGraphsTest, WhatHasNoPartnerOrNoEqualSlicesStaysWhole) {
  GraphJob job;
  const Output odd = job.b.relu(dense(job.b, "odd", job.x, 8, 7));
  const Output softmax = job.b.op("Softmax", {dense(job.b, "next", odd, 7, 16)});
  const std::string text = job.text(dense(job.b, "out", softmax, 16, 4), 10);
  EXPECT_THAT(plan(text, 1, 2), HasSubstr("0 variables cut"));
  expect_same(text);
}

TEST(TensorGraphsTest, NarrowLayersStayWhole) {
  GraphJob job;
  const std::string text = job.text(dense(job.b, "b", job.b.relu(dense(job.b, "a", job.x, 8, 16)), 16, 4), 2);
  EXPECT_THAT(plan(text, 1, 2, {"strategy.tensor.min_width=16"}), HasSubstr("3 variables cut"));
  EXPECT_THAT(plan(text, 1, 2, {"strategy.tensor.min_width=17"}), HasSubstr("0 variables cut"));
}

/// Layers in a line, each of which reads the one before it and maybe an earlier one, cut in any way.
class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937& random) : random_(random) { made_.push_back({job_.x, 8}); }

  std::string text(int layers, bool draws) {
    for (int l = 0; l < layers; ++l) add("n" + std::to_string(l), draws);
    return job_.text(dense(job_.b, "last", made_.back().value, made_.back().width, 4), 2);
  }
  Settings patterns() const {
    Settings settings;
    for (const std::string& name : kernels_)
      if (random_() % 4 == 0)
        settings.push_back("strategy.tensor.layer=match: '" + name +
                           "' split: " + std::array{"WHOLE", "COLUMN", "ROW"}[random_() % 3]);
    if (random_() % 3 == 0) settings.emplace_back("strategy.tensor.automatic=false");
    if (random_() % 3 == 0) settings.emplace_back("strategy.tensor.sequence=true");
    return settings;
  }

 private:
  struct Made {
    Output value;
    std::int64_t width;
  };

  Output layer(const std::string& name, const Made& x, std::int64_t width) {
    kernels_.push_back(name + "/kernel");
    return dense(job_.b, name, x.value, x.width, width);
  }
  Made earlier(std::int64_t width) {
    std::vector<Made> fitting;
    for (const Made& made : made_)
      if (made.width == width) fitting.push_back(made);
    return fitting.empty()
               ? Made{layer("join" + std::to_string(made_.size()), made_[random_() % made_.size()], width),
                      width}
               : fitting[random_() % fitting.size()];
  }

  void add(const std::string& name, bool draws) {
    GraphBuilder& b = job_.b;
    const Made x = made_.back();
    const std::int64_t width = std::array{8, 16, 24, 12}[random_() % 4];
    Made next = x;
    switch (random_() % (draws ? 10 : 9)) {
      case 0:
        next = {b.op("Tanh", {layer(name, x, width)}), width};
        break;
      case 1:
        next = {gelu(b, layer(name, x, width)), width};
        break;
      case 2:
        next = {layer_norm(b, name, x.value, x.width), x.width};
        break;
      case 3:
        next = {b.add(x.value, earlier(x.width).value), x.width};
        break;
      case 4:
        next = {b.mul(layer(name, x, width), b.op("Sigmoid", {earlier(width).value})), width};
        break;
      case 5:
        next = {b.concat({x.value, layer(name, x, 8)}, 1), x.width + 8};
        break;
      case 6:
        next = {b.op("Softmax", {layer(name, x, width)}), width};
        break;
      case 7:
        next = {heads(name, x), x.width};
        break;
      case 8:
        next = {b.op("Sub", {b.relu(layer(name, x, width)), b.reduce_mean(x.value, {1}, true)}), width};
        break;
      default:
        next = {b.op("braid.Dropout", {layer(name, x, width)}, {{"rate", 0.3}}, name + "/dropout"), width};
    }
    made_.push_back(next);
  }

  /// Products of heads of one row with each other.
  Output heads(const std::string& name, const Made& x) {
    GraphBuilder& b = job_.b;
    const auto cut = [&](const char* part) {
      return b.reshape(layer(name + part, x, x.width), {-1, 4, 1, x.width / 4});
    };
    const Output dots =
        b.op("BatchMatMulV2", {cut("/query"), cut("/key")}, {{"adj_x", true}, {"adj_y", false}});
    return b.reshape(b.op("BatchMatMulV2", {cut("/value"), b.op("Softmax", {dots})}), {-1, x.width});
  }

  std::mt19937& random_;
  GraphJob job_;
  std::vector<Made> made_;
  std::vector<std::string> kernels_;
};

TEST(TensorGraphsTest, RandomGraphsCutInRandomWaysAreThoseOfOneProcess) {
  std::mt19937 random(11);
  int cut = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int data = random() % 3 == 0 ? 2 : 1, tensor = random() % 2 ? 2 : 4;
    RandomGraph graph(random);
    const std::string text = graph.text(2 + static_cast<int>(random() % 6), data == 1);
    const Settings settings = graph.patterns();
    cut += plan(text, data, tensor, settings).find(" 0 variables cut") == std::string::npos ? 1 : 0;
    expect_as_one_process(text, made_vectors(48), data, tensor, settings);
    if (HasFailure()) return;
  }
  EXPECT_GT(cut, 100);
}

std::string refused(const std::string& text, const Settings& settings, int world = 2) {
  return error_of_mesh(job_with(text, Settings{"strategy.kind=TENSOR"} + settings), world, made_vectors(48));
}

TEST(TensorGraphsTest, PatternsThatCutNothingAreRefusedByName) {
  GraphJob job;
  const Output h = job.b.relu(dense(job.b, "a", job.x, 8, 7));
  const std::string text = job.text(dense(job.b, "b", h, 7, 4), 2);
  const auto layer = [](const char* match, const char* split) {
    return Settings{std::string("strategy.tensor.layer=match: '") + match + "' split: " + split};
  };
  EXPECT_THAT(refused(text, layer("z/.*", "ROW")),
              HasSubstr("strategy.tensor.layer[0].match 'z/.*' fits no weights"));
  EXPECT_THAT(refused(text, layer("(", "ROW")), HasSubstr("strategy.tensor.layer[0].match '('"));
  EXPECT_THAT(
      refused(text, layer("a/kernel", "COLUMN") + Settings{"optimizer.group=match: 'a/kernel' frozen: true"}),
      HasSubstr("match 'a/kernel': variable 'a/kernel' stays whole: it is frozen"));
  EXPECT_THAT(refused(text, layer("a/kernel", "COLUMN")),
              HasSubstr("variable 'a/kernel' [8, 7]: axis 1 is not cut into 2 equal slices"));
}

TEST(TensorGraphsTest, MeshesOfOtherNumbersOfWorkersAreRefused) {
  GraphJob job;
  const std::string text = job.text(dense(job.b, "a", job.x, 8, 8), 2);
  EXPECT_THAT(refused(text, {"strategy.mesh.data=2"}, 3),
              HasSubstr("strategy.mesh { data: 2 } is not of 3 workers"));
  EXPECT_THAT(refused(text, {"strategy.mesh.data=2", "strategy.mesh.tensor=2"}, 2),
              HasSubstr("strategy.mesh { data: 2 tensor: 2 } is not of 2 workers"));
  EXPECT_THAT(refused(text, {"strategy.mesh.data=2", "input.global_batch_size=15"}),
              HasSubstr("a batch of 15 rows"));
}

std::string not_taken(const std::string& text, const Settings& settings) {
  return message_of([&] { job_with(text, in_mesh(1, 2) + settings); });
}

TEST(TensorGraphsTest, WhatDoesNotGoWithItIsSaid) {
  GraphJob job;
  const std::string text = job.text(dense(job.b, "a", job.x, 8, 8), 2);
  EXPECT_THAT(not_taken(text, {"optimizer.clip_worker_norm=1"}), HasSubstr("use optimizer.clip_norm"));
  EXPECT_THAT(not_taken(text, {"input.shard=ROWS"}), HasSubstr("read the same rows"));
  EXPECT_THAT(not_taken(text, {"runtime.precision=FP16"}), HasSubstr("use BF16"));
  EXPECT_THAT(not_taken(text, {"staging.auto_stage=true"}), HasSubstr("staging.auto_stage"));
  EXPECT_THAT(not_taken(text, {"runtime.recompute.memory_bytes=1000"}), HasSubstr("runtime.recompute.scope"));
  EXPECT_THAT(not_taken(text, {"checkpoint.directory=x", "checkpoint.every_seconds=3"}),
              HasSubstr("checkpoint.every_steps"));
  EXPECT_THAT(not_taken(text, {"strategy.tensor.layer=match: ''"}),
              HasSubstr("strategy.tensor.layer[0].match is missing"));
}

}  // namespace
}  // namespace braid::worker
