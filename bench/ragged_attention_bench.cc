// Question: what does attention within ragged rows cost on the CPU, forward and backward, beside a model with
// padded rows and a matrix of all scores?
//
//   ragged_attention_bench [--batch 8] [--longest 1024] [--heads 4] [--dim 32] [--activation silu]
//
// Lengths are uniform from a quarter of the longest on, threads one, the loss is the mean of the output.
// bench/peers/torch_ragged_attention.py runs it beside PyTorch and prints the ratio. A JSON line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <random>

#include "base/cpu.h"
#include "bench/training_step.h"
#include "engine/builder/graph_builder.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

struct Options {
  std::int64_t batch = 8, longest = 1024, heads = 4, dim = 32;
  std::string activation = "silu";
  int steps = 5, rounds = 5;
};

/// q, k and v are parts of a variable [room, 3 heads dim], so that all gradients are made.
ModelGraph model_of(const Options& options, std::int64_t room) {
  GraphBuilder b;
  const Output offsets = b.placeholder("offsets", DType::Int64, {-1});
  const std::int64_t width = options.heads * options.dim;
  const Output qkv = b.read(b.variable("qkv", Shape{room, 3 * width}, {.init = {InitKind::Uniform, -1, 1}}));
  const Output parts =
      b.op("Split", {b.constant(Tensor::scalar<std::int32_t>(1), "axis"), qkv}, {{"num_split", 3}});
  const auto heads = [&](int part) {
    return b.reshape({parts.node, part}, {-1, options.heads, options.dim});
  };
  const Output out = b.op("braid.RaggedAttention", {heads(0), heads(1), heads(2), offsets},
                          {{"activation", options.activation}});
  ModelGraph model;
  model.columns = {"offsets"};
  model.loss = b.reduce_mean(out).name();
  model.graph = std::make_unique<GraphDef>(b.graph());
  return model;
}

void run(const Options& options) {
  std::mt19937_64 random(3);
  std::uniform_int_distribution<std::int64_t> length(options.longest / 4, options.longest);
  std::vector<std::int64_t> offsets{0};
  double pairs = 0;
  for (std::int64_t b = 0; b < options.batch; ++b) {
    const std::int64_t n = length(random);
    offsets.push_back(offsets.back() + n);
    pairs += 0.5 * static_cast<double>(n) * static_cast<double>(n);
  }
  const Shape shape{std::ssize(offsets)};
  Training training = make_training(model_of(options, offsets.back()), {});
  training.request.feeds = {{"offsets", DType::Int64, shape}};
  TimedSteps steps(training, {}, nullptr);
  const std::vector<std::vector<Tensor>> batches{{Tensor::from<std::int64_t>(shape, offsets)}};
  steps.run(batches, 1);
  const double cpu_us = steps.median_us(batches, options.steps, options.rounds, true);
  // Two products forward, five backward, of the pairs that see each other.
  const double flops = 7 * 2 * pairs * static_cast<double>(options.heads * options.dim);
  fmt::print(
      "{{\"bench\":\"ragged_attention\",\"activation\":\"{}\",\"batch\":{},\"longest\":{},\"heads\":{},"
      "\"dim\":{},\"offsets\":{},\"cpu_us\":{:.0f},\"gflops\":{:.1f},\"cpu\":\"{}\"}}\n",
      options.activation, options.batch, options.longest, options.heads, options.dim,
      fmt::format("[{}]", fmt::join(offsets, ",")), cpu_us, flops / cpu_us / 1e3, cpu_name());
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) {
  braid::bench::Options options;
  CLI::App app("What attention within ragged rows costs");
  app.add_option("--batch", options.batch);
  app.add_option("--longest", options.longest);
  app.add_option("--heads", options.heads);
  app.add_option("--dim", options.dim);
  app.add_option("--activation", options.activation);
  app.add_option("--steps", options.steps);
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    braid::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
