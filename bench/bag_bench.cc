// Question: what does a training step on one ragged column cost: bags of a table forward, the rows' gradients
// backward, and the update of the rows by SGD? CPU time; on a GPU time, of a captured graph, its batches on
// the device.
//
//   bag_bench [--device cpu|cuda] [--rows 1000000] [--dim 16] [--batch 4096] [--mean 10] [--pooling sum]
//             [--weighted]
//
// Lengths are geometric of that mean (0 too), ids uniform, batches eight in turn, threads one. Losses are the
// mean of the sums. bench/peers/torch_bags.py runs it beside PyTorch's EmbeddingBag, whose gradients are
// sparse, and prints the ratio. A JSON line.
#include <fmt/format.h>

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
  std::int64_t rows = 1'000'000, dim = 16, batch = 4096;
  double mean = 10;
  std::string device = "cpu", pooling = "sum";
  bool weighted = false;
  int steps = 100, rounds = 5;
};

ModelGraph model_of(const Options& options) {
  GraphBuilder b;
  const Output ids = b.placeholder("ids", DType::Int64, {-1});
  const Output offsets = b.placeholder("offsets", DType::Int32, {-1});
  std::vector<Output> inputs{b.variable("table", Shape{options.rows, options.dim},
                                        {.init = {InitKind::Uniform, -0.05F, 0.05F}, .sparse = true}),
                             ids, offsets};
  ModelGraph model;
  model.columns = {"ids", "offsets"};
  if (options.weighted) {
    inputs.push_back(b.placeholder("weights", DType::Float32, {-1}));
    model.columns.emplace_back("weights");
  }
  const Output sums = b.op("braid.Bag", inputs,
                           {{"dtype", DType::Float32},
                            {"pooling", options.pooling},
                            {"ragged", true},
                            {"weighted", options.weighted}});
  model.loss = b.reduce_mean(sums).name();
  model.graph = std::make_unique<GraphDef>(b.graph());
  return model;
}

std::vector<std::vector<Tensor>> batches_of(const Options& options, std::int64_t room) {
  std::mt19937_64 random(3);
  std::geometric_distribution<std::int64_t> length(1 / (1 + options.mean));
  std::uniform_int_distribution<std::int64_t> id(0, options.rows - 1);
  std::uniform_real_distribution<float> weight(0.5F, 1.5F);
  std::vector<std::vector<Tensor>> batches(8);
  for (std::vector<Tensor>& batch : batches) {
    batch.push_back(Tensor::zeros(DType::Int64, Shape{room}));
    batch.push_back(Tensor::zeros(DType::Int32, Shape{options.batch + 1}));
    const auto ids = batch[0].data<std::int64_t>();
    const auto offsets = batch[1].data<std::int32_t>();
    std::int64_t at = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(options.batch); ++r) {
      for (const std::int64_t end = std::min(at + length(random), room); at < end; ++at)
        ids[static_cast<std::size_t>(at)] = id(random);
      offsets[r + 1] = static_cast<std::int32_t>(at);
    }
    if (!options.weighted) continue;
    batch.push_back(Tensor::zeros(DType::Float32, Shape{room}));
    for (float& w : batch[2].data<float>()) w = weight(random);
  }
  return batches;
}

void run(const Options& options) {
  const auto room = static_cast<std::int64_t>(1.25 * options.mean * static_cast<double>(options.batch)) + 64;
  const ModelGraph model = model_of(options);
  Training training = make_training(model, {});
  training.request.feeds = {{"ids", DType::Int64, Shape{room}},
                            {"offsets", DType::Int32, Shape{options.batch + 1}}};
  if (options.weighted) training.request.feeds.push_back({"weights", DType::Float32, Shape{room}});
  auto batches = batches_of(options, room);
  const std::shared_ptr<Accelerator> device = options.device == "cuda" ? open_cuda({}) : nullptr;
  CompileOptions compiling;
  if (device) {
    compiling.domain = Domain::Device;
    compiling.fusion = true;
  }
  TimedSteps steps(training, compiling, device);
  for (std::vector<Tensor>& batch : batches) batch = on_device(batch, device);
  steps.run(batches, options.steps / 4 + 8);
  const double us = steps.median_us(batches, options.steps, options.rounds, !device);
  fmt::print(
      "{{\"bench\":\"bags\",\"pooling\":\"{}\",\"weighted\":{},\"rows\":{},\"dim\":{},\"batch\":{},\"mean\":{"
      "},"
      "\"{}\":{:.1f},\"on\":\"{}\"}}\n",
      options.pooling, options.weighted, options.rows, options.dim, options.batch, options.mean,
      device ? "us" : "cpu_us", us, device ? device->description() : cpu_name());
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) {
  braid::bench::Options options;
  CLI::App app("What a ragged column costs");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--rows", options.rows);
  app.add_option("--dim", options.dim);
  app.add_option("--batch", options.batch);
  app.add_option("--mean", options.mean);
  app.add_option("--pooling", options.pooling);
  app.add_option("--steps", options.steps);
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_flag("--weighted", options.weighted);
  CLI11_PARSE(app, argc, argv);
  try {
    braid::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
