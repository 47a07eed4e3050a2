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
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/device/accelerator.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "models/model.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string device = "cpu", models = "layers,dlrm_v2", batches = "64", precisions = "FP32,TF32,BF16,FP16";
  int steps = 20, rounds = 5, streams = 1;
  bool notes = false, ops = false;
};

struct Model {
  ModelGraph graph;
  OptimizerKind optimizer = OptimizerKind::Adagrad;
  std::int64_t classes = 2, ids = 18;
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

/// As examples/jobs has them, of din without its list of fields.
Model build_zoo(const std::string& name) {
  ModelConfig config;
  Model model;
  const auto columns = [](std::int64_t dense, std::int64_t sparse) {
    return std::map<std::string, Shape>{
        {"dense", Shape{dense}}, {"sparse", Shape{sparse}}, {"label", Shape{}}};
  };
  config.sparse_tables = true;
  config.hidden = {64, 32};
  if (name == "mlp" || name == "cnn") {
    model.rows = 128;
    config.hidden =
        name == "mlp" ? std::vector<std::int64_t>{256, 128} : std::vector<std::int64_t>{16, 32, 128};
    config.classes = model.classes = 10;
    config.columns = {{"image", Shape{28, 28, 1}}, {"label", Shape{}}};
    model.optimizer = OptimizerKind::Adam;
  } else if (name == "transformer") {
    model.rows = 64;
    config.hidden = {64, 64};
    config.embedding_dim = 32;
    config.hash_buckets = 20;
    config.classes = model.classes = 4;
    config.columns = {{"tokens", Shape{16}}, {"label", Shape{}}};
    model.optimizer = OptimizerKind::Adam;
  } else if (name == "wide_deep") {
    model.rows = 256;
    config.embedding_dim = 8;
    config.hash_buckets = 1000;
    config.columns = columns(5, 8);
  } else if (name == "mmoe") {
    model.rows = 256;
    config.embedding_dim = 8;
    config.hash_buckets = 200;
    config.experts = 4;
    config.tasks = {"click", "purchase"};
    config.columns = columns(3, 3);
    config.columns["click"] = config.columns["purchase"] = Shape{};
  } else if (name == "din") {
    model.rows = 256;
    config.embedding_dim = 16;
    config.hash_buckets = 500;
    config.columns = columns(1, 1);
    config.columns["history"] = Shape{12};
    config.columns["item"] = Shape{1};
  } else {  // dcn_v2, dlrm, deepfm
    model.rows = 512;
    config.hidden = {128, 64};
    config.embedding_dim = name == "dlrm" ? 16 : 8;
    config.hash_buckets = 50000;
    config.columns = columns(13, 26);
  }
  model.ids = std::max<std::int64_t>(config.hash_buckets, 3) - 2;
  model.graph = build_model(name, config);
  return model;
}

// -------------------------------------------------------------------------------------------------- steps

struct Training {
  Graph graph;
  CompileRequest request;
  std::vector<Tensor> feeds;
};

void add_update(Graph& graph, const VariableGradient& gradient, OptimizerKind kind, CompileRequest& request) {
  OptimizerSpec optimizer;
  optimizer.kind = kind;
  Node update;
  update.inputs.push_back({gradient.variable.handle, 0});
  for (const SlotSpec& slot : optimizer_slots(optimizer)) {
    Node handle;
    handle.name = gradient.variable.name + "/" + std::string(slot.name);
    handle.op = &OpRegistry::global().require("VarHandleOp");
    handle.attrs = {{"dtype", gradient.variable.dtype},
                    {"shape", gradient.variable.shape},
                    {"_trainable", false},
                    {"_init_kind", static_cast<std::int64_t>(InitKind::Constant)},
                    {"_init_a", static_cast<double>(slot.initial_value)},
                    {"_init_b", 0.0}};
    update.inputs.push_back({graph.add(std::move(handle)), 0});
  }
  if (gradient.slices) update.inputs.push_back(gradient.slices->indices);
  update.inputs.push_back(gradient.slices ? gradient.slices->values : gradient.dense);
  update.op =
      &OpRegistry::global().require(gradient.slices ? "braid.SparseApplyOptimizer" : "braid.ApplyOptimizer");
  update.attrs = optimizer_attrs(optimizer);
  update.name = graph.unique_name("update/" + gradient.variable.name);
  update.colocate_with = update.inputs.back().node;
  request.targets.push_back(update.name);
  graph.add(std::move(update));
}

Tensor made_up(const std::string& column, const OutputInfo& info, std::int64_t batch, const Model& model,
               std::uint64_t seed) {
  const bool is_label = column == "label" || column == "click" || column == "purchase";
  const std::int64_t ids = is_label ? model.classes : model.ids;
  Shape shape = info.shape;
  shape.set_dim(0, batch);
  Tensor tensor(info.dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto bits = static_cast<std::int64_t>(seed >> 33);
    const auto at = static_cast<std::size_t>(i);
    if (info.dtype == DType::Float32)
      tensor.data<float>()[at] =
          is_label ? static_cast<float>(bits % 2) : static_cast<float>(bits % 2001 - 1000) / 2000.0F;
    else if (info.dtype == DType::Int32)
      tensor.data<std::int32_t>()[at] = static_cast<std::int32_t>(bits % ids);
    else
      tensor.data<std::int64_t>()[at] = bits % ids;
  }
  return tensor;
}

Training training_of(const Model& model, std::int64_t batch) {
  Training made{import_graph(*model.graph.graph), {}, {}};
  const ValueRef loss = made.graph.parse_value(model.graph.loss);
  for (const VariableGradient& gradient : add_gradients(made.graph, loss))
    add_update(made.graph, gradient, model.optimizer, made.request);
  made.request.fetches = {model.graph.loss};
  for (const std::string& target : model.graph.updates) made.request.targets.push_back(target);
  for (const std::string& column : model.graph.columns) {
    const OutputInfo& info = made.graph.info(made.graph.parse_value(column));
    made.feeds.push_back(made_up(column, info, batch, model, made.feeds.size() + 1));
    made.request.feeds.push_back({column, info.dtype, made.feeds.back().shape()});
  }
  return made;
}

WaitContext a_while() { return WaitContext::with_timeout(std::chrono::seconds(300)); }

class Steps {
 public:
  Steps(const Training& training, const CompileOptions& options, const std::shared_ptr<Accelerator>& device)
      : program_(compile(training.graph, training.request, options)), runtime_({.device = device}) {
    instance_ = std::make_unique<Instance>(program_, runtime_);
    for (const VariableInfo& variable : list_variables(training.graph)) {
      auto value = runtime_.variables().read(variable.name);
      if (!value) continue;
      initialize_variable(training.graph.node(variable.handle), 1, *value);
      runtime_.variables().write(variable.name, *value);
    }
    for (const Tensor& feed : training.feeds) {
      feeds_.push_back(feed);
      if (!device) continue;
      auto memory = device->allocate(feed.bytes(), "inputs");
      device->copy_now(memory.get(), feed.raw(), feed.bytes());
      feeds_.back() = Tensor(feed.dtype(), feed.shape(), memory, Domain::Device);
    }
  }

  void run(int count) {
    for (int i = 0; i < count; ++i) {
      if (instance_->in_flight() == program_->steps_in_flight) finish();
      StepRequest request;
      request.params.step = next_++;
      request.params.learning_rate = 1e-3F;
      request.feeds = feeds_;
      instance_->start(std::move(request), a_while());
    }
    while (instance_->in_flight() > 0) finish();
  }
  /// Microseconds a step: elapsed on a device, of CPU time on the host.
  double time(int count, bool cpu_time) {
    const auto begin = Clock::now();
    const std::clock_t cpu = std::clock();
    run(count);
    const double us = cpu_time ? 1e6 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC
                               : std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    return us / count;
  }
  const Program& program() const { return *program_; }
  const std::vector<float>& losses() const { return losses_; }

 private:
  void finish() { losses_.push_back(instance_->finish(a_while()).fetches[0].data<float>()[0]); }

  std::shared_ptr<const Program> program_;
  Runtime runtime_;
  std::unique_ptr<Instance> instance_;
  std::vector<Tensor> feeds_;
  std::uint64_t next_ = 0;
  std::vector<float> losses_;
};

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

void measure(const std::string& name, const std::string& rows, const Options& options) {
  const Model model = name == "layers"    ? build_layers()
                      : name == "dlrm_v2" ? build_dlrm_v2()
                                          : build_zoo(name);
  const std::int64_t batch = rows == "job" ? model.rows : std::stoll(rows);
  const Training training = training_of(model, batch);
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
      Steps steps(training, compiling, device);
      steps.run(6);
      std::vector<double> times;
      for (int round = 0; round < options.rounds; ++round)
        times.push_back(steps.time(options.steps, device == nullptr));
      std::sort(times.begin(), times.end());
      const double us = device ? times[times.size() / 2] : times[0];
      if (wide.empty()) wide = steps.losses();
      double apart = 0;
      for (std::size_t i = 0; i < 6; ++i)
        apart = std::max(apart, static_cast<double>(std::abs(steps.losses()[i] - wide[i])) /
                                    std::max<double>(std::abs(wide[i]), 1e-9));
      double variables = 0;
      for (const ProgramVariable& variable : steps.program().variables)
        variables += static_cast<double>(variable.shape.elements() *
                                         static_cast<std::int64_t>(dtype_size(variable.dtype)));
      fmt::print(
          "{:<12} {:>6} {} | {:>10.1f} us | {:>7.1f} TFLOP/s | arena {:>8.2f} MB, variables {:>8.2f} MB | {} "
          "ops | "
          "losses apart {:.1e}\n",
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
  app.add_flag("--notes", options.notes, "What the passes say");
  app.add_flag("--ops", options.ops, "The ops of the programs");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& model : CLI::detail::split(options.models, ','))
    for (const std::string& batch : CLI::detail::split(options.batches, ',')) measure(model, batch, options);
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::run(argc, argv); }
