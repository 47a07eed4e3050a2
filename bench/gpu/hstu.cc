// A training step of MLPerf's HSTU on one GPU (models/hstu.cc): ids, actions and ages are copied to the
// device in each step; then lookups, MLPs, layers, loss, backward, row-wise Adagrad of the tables and Adam of
// the rest, as one captured graph. Sizes are the benchmark's, lengths and ids those of the peer: lengths are
// normal(2663, 450) in [1400, 4095], ids a power law, tables cut to --max-rows. Tables begin with zeros,
// which costs and changes nothing here. Gradients are not clipped.
//
//   gpu_hstu [--batches 64,256] [--precisions BF16,TF32] [--max-rows 4000000] [--lengths 2663] [--trunk]
//     [--length-list FILE] [--attention] [--streams 4] [--steps 6] [--rounds 5] [--profile] [--top 15]
//     [--plan] [--nodes]
//
// --trunk: the layers alone, forward and backward. --attention: the op alone. --plan: what the compiler makes
// of the steps; needs no GPU. --nodes: with --plan or --profile, the program's nodes. TFLOP/s count useful
// work as the peer does: 3 layers of 11.01e6 a token and 3584 a token squared, causal, whatever is computed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "base/error.h"
#include "bench/gpu/profile.h"
#include "bench/training_step.h"
#include "engine/builder/graph_builder.h"
#include "engine/ops/common/half.h"
#include "engine/program/program.h"
#include "models/hstu_layer.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

constexpr std::int64_t kDim = 512, kHeads = 4, kLayers = 3;
constexpr std::int64_t kBesideHistory = 9;  // tokens: context, and the candidate
constexpr std::int64_t kTokenRows[] = {9390624, 1293395, 3367692};
constexpr std::int64_t kContextRows[] = {1000001,  100000000, 40000000, 24000000,
                                         40000000, 32000000,  2000000,  40000000};
constexpr const char* kTokens[] = {"items", "artists", "albums"};

struct Options {
  std::string batches = "64,256", precisions = "BF16,TF32", length_list;
  std::int64_t max_rows = 4'000'000, lengths = 2663;
  int streams = 4, steps = 6, rounds = 5;
  std::size_t top = 15;
  bool profile = false, plan = false, trunk = false, attention = false, nodes = false;
};

/// Sequences of a batch: 8 tokens of context, history, a candidate.
struct Lengths {
  std::vector<std::int64_t> offsets{0};
  double squares = 0;

  Lengths(std::int64_t batch, std::int64_t middle) {
    std::mt19937_64 random(static_cast<std::uint64_t>(batch));
    std::normal_distribution<double> normal(static_cast<double>(middle), 450);
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto length = static_cast<std::int64_t>(std::clamp(normal(random), 1400.0, 4095.0));
      offsets.push_back(offsets.back() + length);
      squares += static_cast<double>(length) * static_cast<double>(length);
    }
  }
  /// The first ones of a file's histories, a length a line.
  Lengths(std::int64_t batch, const std::string& list) {
    std::ifstream file(list);
    for (std::int64_t b = 0, length = 0; b < batch; ++b) {
      if (!(file >> length)) throw InvalidArgument(fmt::format("{} has no {} lengths", list, batch));
      length += kBesideHistory;
      offsets.push_back(offsets.back() + length);
      squares += static_cast<double>(length) * static_cast<double>(length);
    }
  }
  std::int64_t batch() const { return std::ssize(offsets) - 1; }
  std::int64_t tokens() const { return offsets.back(); }
  double trunk_flops() const { return kLayers * (11.01e6 * static_cast<double>(tokens()) + 3584 * squares); }
};

std::int64_t cut(std::int64_t rows, const Options& options) { return std::min(rows, options.max_rows); }

ModelConfig config_of(const Options& options) {
  ModelConfig config;
  config.sparse_tables = true;
  config.dropout = 0.2;
  config.columns = {{"candidate", Shape{3}}, {"sparse", Shape{8}}, {"dense", Shape{4}}, {"label", Shape{}}};
  const auto field = [](const std::string& name, std::int64_t rows, const std::string& table,
                        const std::string& ragged) {
    IdField of{.name = name, .ids = rows, .filled = false, .input = ragged};
    of.table.shared = table;
    return of;
  };
  for (int t = 0; t < 3; ++t) {
    const std::string name = kTokens[t];
    config.fields["history"].push_back(
        field("history_" + name, cut(kTokenRows[t], options), name, "history/" + name));
    config.fields["candidate"].push_back(field(name, cut(kTokenRows[t], options), name, ""));
  }
  config.fields["action"] = {field("action", 8, "", "action/action")};
  config.fields["action"][0].weighted = true;
  for (const std::int64_t rows : kContextRows)
    config.fields["sparse"].push_back(
        field("c" + std::to_string(config.fields["sparse"].size()), cut(rows, options), "", ""));
  return config;
}

/// A batch of random values for the model's columns.
class BatchMaker {
 public:
  BatchMaker(const Options& options, const Lengths& lengths, std::uint64_t seed)
      : options_(options), lengths_(lengths), random_(seed) {}

  Tensor column(const std::string& name) {
    const std::int64_t batch = lengths_.batch(), history = lengths_.tokens() - kBesideHistory * batch;
    if (name.ends_with("/offsets")) return offsets();
    if (name.ends_with("/weights")) return numbers(Shape{history}, 0, 3e6F);
    if (name.starts_with("action/")) return ids(Shape{history}, {8});
    for (int t = 0; t < 3; ++t)
      if (name == std::string("history/") + kTokens[t])
        return ids(Shape{history}, {cut(kTokenRows[t], options_)});
    if (name == "candidate") return ids(Shape{batch, 3}, {std::begin(kTokenRows), std::end(kTokenRows)});
    if (name == "sparse") return ids(Shape{batch, 8}, {std::begin(kContextRows), std::end(kContextRows)});
    if (name == "dense") return numbers(Shape{batch, 4}, -1, 1);
    if (name != "label") throw Internal("no values for column '" + name + "'");
    Tensor labels = numbers(Shape{batch}, 0, 1);
    for (float& x : labels.data<float>()) x = std::round(x);
    return labels;
  }

 private:
  Tensor offsets() const {
    std::vector<std::int32_t> of_history;
    for (std::size_t b = 0; b < lengths_.offsets.size(); ++b)
      of_history.push_back(
          static_cast<std::int32_t>(lengths_.offsets[b] - kBesideHistory * static_cast<std::int64_t>(b)));
    return Tensor::from<std::int32_t>(Shape{std::ssize(of_history)}, of_history);
  }
  Tensor numbers(const Shape& shape, float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    Tensor made(DType::Float32, shape);
    for (float& x : made.data<float>()) x = uniform(random_);
    return made;
  }
  /// Of columns that have so many rows.
  Tensor ids(const Shape& shape, std::vector<std::int64_t> rows) {
    std::uniform_real_distribution<double> uniform;
    Tensor made(DType::Int64, shape);
    std::size_t i = 0;
    for (std::int64_t& id : made.data<std::int64_t>()) {
      const std::int64_t most = cut(rows[i++ % rows.size()], options_);
      const double r = std::pow(static_cast<double>(most), -0.05);
      id = std::clamp(static_cast<std::int64_t>(std::pow((r - 1) * uniform(random_) + 1, -20)) - 1,
                      std::int64_t{0}, most - 1);
    }
    return made;
  }

  const Options& options_;
  const Lengths& lengths_;
  std::mt19937_64 random_;
};

CompileOptions compiling(const Options& options, const std::string& precision) {
  CompileOptions made;
  made.domain = Domain::Device;
  made.streams.policy = options.streams > 1 ? StreamPolicy::Cost : StreamPolicy::None;
  made.streams.count = options.streams;
  made.fusion = true;
  made.batch_siblings = BatchSiblings::WithinScopes;
  if (precision == "BF16") made.precision.half = DType::BFloat16;
  return made;
}

void print_plan(const Program& program, bool nodes) {
  fmt::print("{} nodes, {:.2f} GiB beside variables\n", program.ops.size(),
             static_cast<double>(program.stats.device_arena_bytes) / (1 << 30));
  for (const ProgramOp& op : program.ops)
    if (op.domain == Domain::Host)
      fmt::print("  on the host: {} '{}'\n", program.graph.node(op.node).op->name,
                 program.graph.node(op.node).name);
  for (const Note& note : program.notes) fmt::print("  {}: {}\n", note.pass, note.text.substr(0, 300));
  if (nodes) print_program(program);
}

void measure(const Options& options, const Lengths& lengths, const std::string& precision,
             const Training& training, const std::vector<std::vector<Tensor>>& batches) {
  const CompileOptions compile_options = compiling(options, precision);
  if (options.plan)
    return print_plan(*compile(training.graph, training.request, compile_options), options.nodes);
  const auto device = open_cuda({.tf32 = precision != "FP32"});
  const auto is_table = [](const VariableInfo& variable) {
    return variable.name.ends_with("/table") || variable.name.ends_with("/accumulator");
  };
  TimedSteps steps(training, compile_options, device, {.learning_rate = 1e-6F, .stays_zero = is_table});
  steps.run(batches, 6);
  const double us = steps.median_us(batches, options.steps, options.rounds);
  const auto batch = static_cast<double>(lengths.batch());
  fmt::print("{} {} batch {} tokens {}: {:.2f} ms/step, {:.0f} samples/s, ", options.trunk ? "trunk" : "step",
             precision, lengths.batch(), lengths.tokens(), us / 1e3, batch / us * 1e6);
  fmt::print("{:.0f} TFLOP/s of the trunk{}, loss {:.5f}, {:.1f} GiB\n", lengths.trunk_flops() / us / 1e6,
             options.trunk ? "" : " in the whole step's time", steps.losses().back(),
             static_cast<double>(device->bytes_in_use()) / (1 << 30));
  if (!options.profile) return;
  profile(steps, batches, *device, us, options.top);
  for (const Note& note : steps.program().notes)
    fmt::print("  note {}: {}\n", note.pass, note.text.substr(0, 200));
  if (options.nodes) print_program(steps.program());
}

void measure_step(const Options& options, const Lengths& lengths, const std::string& precision) {
  const ModelGraph model = build_model("hstu", config_of(options));
  const OptimizerSpec adam{.kind = OptimizerKind::Adam, .beta1 = 0.95F, .epsilon = 1e-8F};
  const OptimizerSpec rows{
      .kind = OptimizerKind::Adagrad, .initial_accumulator = 0, .adagrad_epsilon = 1e-8F, .row_wise = true};
  Training training = make_training(model, adam, rows);
  std::vector<std::vector<Tensor>> batches(2);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    BatchMaker maker(options, lengths, b);
    for (const std::string& column : model.columns) {
      batches[b].push_back(maker.column(column));
      if (b == 0)
        training.request.feeds.push_back({column, batches[b].back().dtype(), batches[b].back().shape()});
    }
  }
  measure(options, lengths, precision, training, batches);
}

/// x is a variable, so that its gradient is made.
void measure_trunk(const Options& options, const Lengths& lengths, const std::string& precision) {
  GraphBuilder b;
  const Output offsets = b.placeholder("offsets", DType::Int64, Shape{std::ssize(lengths.offsets)});
  Output x = b.read(b.variable("x", Shape{lengths.tokens(), kDim}, {.init = {InitKind::Normal, 0.0F, 1.0F}}));
  for (std::int64_t l = 0; l < kLayers; ++l) {
    const NameScope scope(b, "layer" + std::to_string(l));
    x = hstu_layer(b, x, offsets, {kDim, kHeads, 0.1});
  }
  ModelGraph model;
  model.columns = {"offsets"};
  model.loss = b.reduce_mean(x).name();
  model.graph = std::make_unique<GraphDef>(b.graph());
  Training training = make_training(model, {});
  const Shape shape{std::ssize(lengths.offsets)};
  training.request.feeds = {{"offsets", DType::Int64, shape}};
  measure(options, lengths, precision, training, {{Tensor::from<std::int64_t>(shape, lengths.offsets)}});
}

/// A program of one op, and its inputs on the device.
struct OneOp {
  std::shared_ptr<const Program> program;
  std::vector<Tensor> feeds;
};

OneOp one_op(const char* op, const Lengths& lengths, const std::string& precision, bool backward,
             const std::shared_ptr<Accelerator>& device) {
  Graph graph;
  CompileRequest request;
  Node node;
  node.op = &OpRegistry::global().require(op);
  node.name = "attention";
  std::vector<Tensor> feeds;
  const auto add = [&](const std::string& name, Tensor value) {
    Node input;
    input.op = &OpRegistry::global().require("Placeholder");
    input.name = name;
    input.attrs = {{"dtype", value.dtype()}, {"shape", value.shape()}};
    request.feeds.push_back({name, value.dtype(), value.shape()});
    node.inputs.push_back({graph.add(std::move(input)), 0});
    feeds.push_back(std::move(value));
  };
  const bool half = precision == "BF16";
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int i = 0; i < (backward ? 4 : 3); ++i) {
    Tensor values(half ? DType::BFloat16 : DType::Float32, Shape{lengths.tokens(), kHeads, kDim / kHeads});
    for (std::int64_t e = 0; e < values.elements(); ++e) {
      const float x = uniform(random);
      if (half)
        reinterpret_cast<BFloat16*>(values.raw())[e] = BFloat16(x);
      else
        values.data<float>()[static_cast<std::size_t>(e)] = x;
    }
    add("input" + std::to_string(i), std::move(values));
  }
  add("offsets", Tensor::from<std::int64_t>(Shape{std::ssize(lengths.offsets)}, lengths.offsets));
  node.attrs = {{"activation", "silu"}};
  if (half) {
    node.attrs.set("_half_outputs",
                   backward ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{0});
    node.attrs.set("_half_type", DType::BFloat16);
  }
  graph.add(std::move(node));
  request.targets = {"attention"};
  CompileOptions options;
  options.domain = Domain::Device;
  return {compile(graph, request, options), on_device(feeds, device)};
}

void measure_attention(const Options& options, const Lengths& lengths, const std::string& precision) {
  const auto device = options.plan ? nullptr : open_cuda({.tf32 = precision != "FP32"});
  for (const bool backward : {false, true}) {
    const OneOp op = one_op(backward ? "braid.RaggedAttentionGrad" : "braid.RaggedAttention", lengths,
                            precision, backward, device);
    if (options.plan) {
      print_plan(*op.program, options.nodes);
      continue;
    }
    Runtime runtime({.device = device});
    Instance instance(op.program, runtime);
    const auto run = [&](int count) {
      const auto begin = std::chrono::steady_clock::now();
      const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(300));
      for (int s = 0; s < count; ++s) {
        StepRequest request;
        request.feeds = op.feeds;
        if (instance.in_flight() == op.program->steps_in_flight) instance.finish(wait);
        instance.start(std::move(request), wait);
      }
      while (instance.in_flight() > 0) instance.finish(wait);
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
             count;
    };
    run(6);
    std::vector<double> times;
    for (int r = 0; r < options.rounds; ++r) times.push_back(run(options.steps * 4));
    std::ranges::sort(times);
    const double us = times[times.size() / 2];
    // Two products forward and five backward, of the pairs that see each other: half of all.
    const double flops = (backward ? 5.0 : 2.0) * lengths.squares * kDim;
    fmt::print("attention {} {} batch {} tokens {}: {:.0f} us, {:.0f} TFLOP/s\n",
               backward ? "backward" : "forward", precision, lengths.batch(), lengths.tokens(), us,
               flops / us / 1e6);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Training steps of HSTU on one GPU");
  app.add_option("--batches", options.batches);
  app.add_option("--precisions", options.precisions);
  app.add_option("--max-rows", options.max_rows)->check(CLI::PositiveNumber);
  app.add_option("--lengths", options.lengths);
  app.add_option("--length-list", options.length_list)->check(CLI::ExistingFile);
  app.add_option("--streams", options.streams);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--top", options.top);
  app.add_flag("--nodes", options.nodes);
  app.add_flag("--trunk", options.trunk);
  app.add_flag("--attention", options.attention);
  app.add_flag("--profile", options.profile);
  app.add_flag("--plan", options.plan);
  CLI11_PARSE(app, argc, argv);
  const auto split = [](const std::string& text) { return CLI::detail::split(text, ','); };
  if (!options.plan) fmt::print("{}\n", open_cuda({})->description());
  int failed = 0;
  for (const std::string& precision : split(options.precisions))
    for (const std::string& batch : split(options.batches)) try {
        if (precision != "FP32" && precision != "TF32" && precision != "BF16")
          throw InvalidArgument("no such precision here");
        const Lengths lengths = options.length_list.empty() ? Lengths(std::stoll(batch), options.lengths)
                                                            : Lengths(std::stoll(batch), options.length_list);
        if (options.attention)
          measure_attention(options, lengths, precision);
        else if (options.trunk)
          measure_trunk(options, lengths, precision);
        else
          measure_step(options, lengths, precision);
        std::fflush(stdout);
      } catch (const std::exception& error) {
        fmt::print("{} batch {}: {}\n", precision, batch, error.what());
        ++failed;
      }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) { return braid::bench::run(argc, argv); }
