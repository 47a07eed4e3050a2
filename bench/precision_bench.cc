// What 16-bit floats make of a training step: forward, backward and update of models whose products are
// large, in FP32, TF32, BF16 and FP16 (without loss scaling, which adds a look at the gradients), inputs that
// stay where the program computes. On a GPU the whole step is a captured graph. Losses of the first steps are
// compared with those of float32. bench/peers/torch_precision.py has the same models under autocast.
//
// "dlrm_v2": the dense network of MLPerf's DLRM-v2: layers 13-512-256-128 beside 26 pooled vectors of 128,
// three low-rank cross layers x0 * (W (V x) + b) + x of 3456 x 512, layers 3456-1024-1024-512-256-1; Adagrad.
// "layers": six layers of 4096 on 1024 inputs; Adam.
//
// usage: precision_bench [--device cpu|cuda] [--models dlrm_v2,...] [--batches job,4096] [--precisions ...]
//                        [--criteo FILE [--turns N]]
//
// Feeds are made up: one batch, whose ids are uniform. With --criteo they are rows of a file in the Criteo
// layout, for models of its columns: --turns shuffled batches in turn, so that each step names the rows that
// it would from the file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "bench/training_step.h"
#include "bench/zoo_cases.h"
#include "engine/builder/graph_builder.h"
#include "engine/input/formats/readers.h"
#include "engine/input/schema/table.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

struct Options {
  std::string device = "cpu", models = "layers,dlrm_v2", batches = "64", precisions = "FP32,TF32,BF16,FP16";
  std::string criteo;
  int steps = 20, rounds = 5, streams = 1, turns = 8;
  bool notes = false, ops = false;
};

struct Model {
  ModelGraph graph;
  OptimizerKind optimizer = OptimizerKind::Adagrad;
  std::int64_t classes = 2, ids = 20;
  std::int64_t rows = 64;  // of the job's batch
  double flops_a_row = 0;  // of products, forward and backward; 0: not said
};

// ------------------------------------------------------------------------------------------------- models

double layer_flops(std::int64_t in, std::int64_t out, bool first = false) {
  return (first ? 4.0 : 6.0) * static_cast<double>(in * out);
}

Model finish(GraphBuilder& b, const Output& loss, std::vector<std::string> columns, double flops,
             OptimizerKind optimizer, std::int64_t classes = 2) {
  Model model;
  model.graph.graph = std::make_unique<GraphDef>(b.graph());
  model.graph.loss = loss.name();
  model.graph.columns = std::move(columns);
  model.flops_a_row = flops;
  model.optimizer = optimizer;
  model.classes = classes;
  return model;
}

Model build_layers() {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, 1024});
  const Output y = b.placeholder("label", DType::Int64, {-1});
  double flops = 0;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t in = i == 0 ? 1024 : 4096;
    x = b.dense("layer" + std::to_string(i), x, in, 4096, true);
    flops += layer_flops(in, 4096, i == 0);
  }
  const Output logits = b.dense("head", x, 4096, 16, false);
  return finish(b, b.reduce_mean(b.op("SparseSoftmaxCrossEntropyWithLogits", {logits, y})), {"x", "label"},
                flops + layer_flops(4096, 16), OptimizerKind::Adam, 16);
}

Model build_dlrm_v2() {
  constexpr std::int64_t kDim = 128, kTables = 26, kWidth = (kTables + 1) * kDim, kRank = 512;
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, 13});
  const Output pooled = b.placeholder("pooled", DType::Float32, {-1, kTables * kDim});
  const Output y = b.placeholder("label", DType::Float32, {-1});
  double flops = 0;
  const auto layers = [&](const std::string& name, std::vector<std::int64_t> widths, bool first) {
    for (std::size_t i = 1; i < widths.size(); ++i) {
      flops += layer_flops(widths[i - 1], widths[i], first && i == 1);
      x = b.dense(name + std::to_string(i), x, widths[i - 1], widths[i], widths[i] != 1);
    }
  };
  layers("bottom", {13, 512, 256, kDim}, true);
  const Output x0 = b.concat({x, pooled}, 1);
  x = x0;
  for (int l = 0; l < 3; ++l) {
    const std::string name = "cross" + std::to_string(l);
    const VariableOptions start{.init = {InitKind::Uniform, -0.02F, 0.02F}};
    const Output v = b.read(b.variable(name + "/v", Shape{kWidth, kRank}, start));
    const Output w = b.read(b.variable(name + "/w", Shape{kRank, kWidth}, start));
    const Output bias = b.read(b.variable(name + "/bias", Shape{kWidth}, {}));
    const Output product = b.op("MatMul", {b.op("MatMul", {x, v}), w});
    x = b.add(b.mul(x0, b.op("BiasAdd", {product, bias})), x);
    flops += 2 * layer_flops(kWidth, kRank);
  }
  layers("top", {kWidth, 1024, 1024, 512, 256, 1}, false);
  const Output logits = b.reshape(x, {-1});
  return finish(b, b.reduce_mean(b.op("braid.SigmoidCrossEntropy", {logits, y})), {"x", "pooled", "label"},
                flops, OptimizerKind::Adagrad);
}

Model build_zoo(const std::string& name) {
  const ZooCase zoo = zoo_case(name);
  Model model;
  model.graph = build_model(name, zoo.config);
  model.optimizer = zoo.optimizer;
  model.classes = zoo.config.classes;
  model.ids = zoo.config.hash_buckets;
  model.rows = zoo.batch;
  return model;
}

// -------------------------------------------------------------------------------------------------- steps

void print_notes(const Program& program, const Options& options) {
  for (const Note& note : program.notes)
    if (options.notes && (note.pass == "mixed_precision" || note.pass == "regions"))
      fmt::print("    {}: {}\n", note.pass, note.text);
  if (!options.ops) return;
  for (const ProgramOp& op : program.ops) {
    const Node& node = program.graph.node(op.node);
    std::string text = op.op + " " + op.name;
    for (const ValueRef input : node.inputs)
      text += fmt::format(" {}{}", dtype_name(program.graph.info(input).dtype),
                          program.graph.info(input).shape.to_string());
    text += " ->";
    for (const OutputInfo& output : node.outputs)
      text += fmt::format(" {}{}", dtype_name(output.dtype), output.shape.to_string());
    fmt::print("    {}\n", text);
  }
}

/// A batch's own memory goes back to the batcher.
std::vector<Tensor> copies_of(const std::vector<Tensor>& columns) {
  std::vector<Tensor> copies;
  for (const Tensor& column : columns) {
    copies.emplace_back(column.dtype(), column.shape());
    std::memcpy(copies.back().raw(), column.raw(), column.bytes());
  }
  return copies;
}

std::vector<std::vector<Tensor>> batches_of(Training& training, const Model& model, std::int64_t rows,
                                            const Options& options) {
  const std::vector<std::string>& columns = model.graph.columns;
  if (options.criteo.empty()) return {made_up_feeds(training, columns, rows, model.classes, model.ids)};
  Batcher batcher(read_criteo({options.criteo}, {.buckets = model.ids}), columns,
                  {.global_batch = rows, .seed = 1});
  for (std::size_t c = 0; c < columns.size(); ++c)
    training.request.feeds.push_back({columns[c], batcher.dtype(c), batcher.shape(c, rows)});
  std::vector<std::vector<Tensor>> batches;
  for (int turn = 0; turn < options.turns; ++turn)
    batches.push_back(copies_of(batcher.make(static_cast<std::uint64_t>(turn)).tensors));
  return batches;
}

void measure(const std::string& name, const std::string& rows, const Options& options) {
  const Model model = name == "layers"    ? build_layers()
                      : name == "dlrm_v2" ? build_dlrm_v2()
                                          : build_zoo(name);
  const std::int64_t batch = rows == "job" ? model.rows : std::stoll(rows);
  Training training = make_training(model.graph, {.kind = model.optimizer});
  const std::vector<std::vector<Tensor>> batches = batches_of(training, model, batch, options);
  std::vector<float> wide;
  for (const std::string& precision : CLI::detail::split(options.precisions, ',')) {
    std::shared_ptr<Accelerator> device;
    if (options.device == "cuda") {
      AcceleratorOptions opening;
      opening.tf32 = precision != "FP32";
      device = open_cuda(opening);
    }
    CompileOptions compiling;
    compiling.domain = device ? Domain::Device : Domain::Host;
    compiling.fusion = device != nullptr;
    compiling.batch_siblings = device ? BatchSiblings::AcrossScopes : BatchSiblings::Off;
    compiling.streams.policy = options.streams > 1 ? StreamPolicy::Cost : StreamPolicy::None;
    compiling.streams.count = options.streams;
    if (precision == "BF16") compiling.precision.half = DType::BFloat16;
    if (precision == "FP16") compiling.precision.half = DType::Float16;
    try {
      TimedSteps steps(training, compiling, device);
      std::vector<std::vector<Tensor>> feeds;
      for (const std::vector<Tensor>& values : batches) feeds.push_back(on_device(values, device));
      steps.run(feeds, 6);
      std::vector<double> times;
      for (int round = 0; round < options.rounds; ++round)
        times.push_back(steps.time_us(feeds, options.steps, device == nullptr));
      std::sort(times.begin(), times.end());
      const double us = device ? times[times.size() / 2] : times[0];
      if (wide.empty()) wide = steps.losses();
      const double apart = losses_apart(wide, steps.losses(), 6);
      double variables = 0;
      for (const ProgramVariable& variable : steps.program().variables)
        variables += static_cast<double>(variable.shape.elements() *
                                         static_cast<std::int64_t>(dtype_size(variable.dtype)));
      fmt::print(
          "{:<12} {:>6} {} | {:>10.1f} us | {:>7.1f} TFLOP/s | arena {:>8.2f} MB, variables {:>8.2f} MB | {} "
          "ops | losses apart {:.1e}\n",
          name, batch, precision, us, model.flops_a_row * static_cast<double>(batch) / us / 1e6,
          static_cast<double>(device ? steps.program().stats.device_arena_bytes
                                     : steps.program().stats.arena_bytes) /
              1e6,
          variables / 1e6, steps.program().ops.size(), apart);
      print_notes(steps.program(), options);
    } catch (const std::exception& error) {
      fmt::print("{:<12} {:>6} {}: {}\n", name, batch, precision, error.what());
    }
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Training steps in FP32, TF32, BF16 and FP16");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--models", options.models);
  app.add_option("--batches", options.batches);
  app.add_option("--precisions", options.precisions);
  app.add_option("--steps", options.steps);
  app.add_option("--rounds", options.rounds);
  app.add_option("--streams", options.streams);
  app.add_option("--criteo", options.criteo)->check(CLI::ExistingFile);
  app.add_option("--turns", options.turns)->check(CLI::PositiveNumber);
  app.add_flag("--notes", options.notes, "What the passes say");
  app.add_flag("--ops", options.ops, "The ops of the programs");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& model : CLI::detail::split(options.models, ','))
    for (const std::string& batch : CLI::detail::split(options.batches, ',')) measure(model, batch, options);
  return 0;
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) { return braid::bench::run(argc, argv); }
