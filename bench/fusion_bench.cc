// What fused regions make of a training step: models of the zoo, and two that no pass was written for, with
// and without `fusion`, forward, backward and update, inputs that stay where the program computes. On a GPU
// the whole step is a captured graph; on the host it is the process's CPU time. Losses of the first steps are
// compared.
//
// "gates": four branches of GELU, Swish, Mish and tanh layers with layer norms, mixed by a softmax gate.
// "glu": four residual blocks of layer norm and gated linear units.
// "branches": two blocks of convolutions of 1 x 1, 3 x 3 and 5 x 5 side by side, with GELU, Swish and tanh,
//     max pooling of overlapping windows between them, and the mean of the image.
// "two_towers": a transformer of sequences for each of two sides, of different widths, lengths and
//     activations, a cross network over both, one logit.
// bench/peers/torch_fusion.py has them too.
//
// With --attention the variants are without and with attention as one node, fusion in both; models for it are
// in attention_models.h.
//
// usage: fusion_bench [--device cpu|cuda] [--models mlp,...] [--batches 0,4096] [--steps 50] [--rounds 5]
//     [--attention [--always]]   (batch 0: the job's)
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/attention_models.h"
#include "bench/training_step.h"
#include "bench/zoo_cases.h"
#include "engine/builder/graph_builder.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string device = "cpu", models = "mlp,cnn,resnet18,transformer,din,mmoe,wide_deep,dlrm,gates,glu",
              batches = "0";
  int steps = 50, rounds = 5, streams = 8;
  bool notes = false, programs = false, attention = false, always = false;
  std::string variants = "0,1,2,3";  // on one stream without and with fusion, on many without and with
};

// ---------------------------------------------------------------------------------------- models of this
// file

class Builder {
 public:
  Output scalar(float value) { return b.constant(Tensor::scalar(value)); }
  Output dense(const std::string& name, const Output& x, std::int64_t in, std::int64_t out) {
    return b.dense(name, x, in, out, false);
  }
  Output gelu(const Output& x) {
    const Output half = b.mul(x, scalar(0.5F));
    return b.mul(half, b.add(b.op("Erf", {b.mul(x, scalar(0.70710678F))}), scalar(1)));
  }
  Output swish(const Output& x) { return b.mul(x, b.op("Sigmoid", {x})); }
  Output mish(const Output& x) { return b.mul(x, b.op("Tanh", {b.op("Softplus", {x})})); }
  Output layer_norm(const std::string& name, const Output& x, std::int64_t width) {
    const Output centred = b.op("Sub", {x, b.reduce_mean(x, {1}, true)});
    const Output variance = b.reduce_mean(b.op("Square", {centred}), {1}, true);
    const Output scaled = b.mul(centred, b.op("Rsqrt", {b.add(variance, scalar(1e-5F))}));
    const Output gain =
        b.read(b.variable(name + "/gain", Shape{width}, {.init = {InitKind::Constant, 1.0F, 0.0F}}));
    return b.add(b.mul(scaled, gain), b.read(b.variable(name + "/bias", Shape{width}, {})));
  }

  GraphBuilder b;
};

ModelGraph finish(Builder& m, const Output& loss, std::vector<std::string> columns) {
  ModelGraph model;
  model.graph = std::make_unique<GraphDef>(m.b.graph());
  model.loss = loss.name();
  model.columns = std::move(columns);
  return model;
}

ModelGraph build_gates() {
  Builder m;
  const Output x = m.b.placeholder("x", DType::Float32, {-1, 256});
  const Output y = m.b.placeholder("label", DType::Float32, {-1});
  const Output gate = m.b.op("Softmax", {m.dense("gate", x, 256, 4)});
  const std::int64_t widths[] = {512, 384, 320, 256};
  Output mixed;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "branch" + std::to_string(i);
    const auto act = [&](const Output& h) {
      return i == 0 ? m.gelu(h) : i == 1 ? m.swish(h) : i == 2 ? m.mish(h) : m.b.op("Tanh", {h});
    };
    Output h = act(m.layer_norm(name + "/norm", m.dense(name + "/a", x, 256, widths[i]), widths[i]));
    h = act(m.dense(name + "/b", h, widths[i], 128));
    const std::vector<std::int32_t> begin{0, i}, size{-1, 1};
    const Output share = m.b.op("Slice", {gate, m.b.constant(Tensor::from<std::int32_t>({2}, begin)),
                                          m.b.constant(Tensor::from<std::int32_t>({2}, size))});
    const Output part = m.b.mul(h, share);
    mixed = i == 0 ? part : m.b.add(mixed, part);
  }
  const Output logits = m.b.reshape(m.dense("head", m.layer_norm("norm", mixed, 128), 128, 1), {-1});
  return finish(m, m.b.reduce_mean(m.b.op("braid.SigmoidCrossEntropy", {logits, y})), {"x", "label"});
}

ModelGraph build_glu() {
  Builder m;
  Output h = m.b.placeholder("x", DType::Float32, {-1, 512});
  const Output y = m.b.placeholder("label", DType::Int64, {-1});
  for (int i = 0; i < 4; ++i) {
    const std::string name = "block" + std::to_string(i);
    const Output normed = m.layer_norm(name + "/norm", h, 512);
    const Output gate = m.swish(m.dense(name + "/gate", normed, 512, 768));
    const Output inner = m.b.mul(m.dense(name + "/up", normed, 512, 768), gate);
    h = m.b.add(h, m.dense(name + "/down", inner, 768, 512));
  }
  const Output logits = m.dense("head", m.layer_norm("norm", h, 512), 512, 10);
  return finish(m, m.b.reduce_mean(m.b.op("SparseSoftmaxCrossEntropyWithLogits", {logits, y})),
                {"x", "label"});
}

ModelGraph build_branches() {
  Builder m;
  using Ints = std::vector<std::int64_t>;
  Output h = m.b.placeholder("x", DType::Float32, {-1, 32, 32, 3});
  const Output y = m.b.placeholder("label", DType::Int64, {-1});
  const auto conv = [&](const std::string& name, const Output& x, std::int64_t size, std::int64_t in,
                        std::int64_t out) {
    const float range = std::sqrt(6.0F / static_cast<float>(size * size * (in + out)));
    const Output kernel = m.b.read(m.b.variable(name + "/kernel", Shape{size, size, in, out},
                                                {.init = {InitKind::Uniform, -range, range}}));
    const Output bias = m.b.read(m.b.variable(name + "/bias", Shape{out}, {}));
    return m.b.bias_add(m.b.op("Conv2D", {x, kernel}, {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}}),
                        bias);
  };
  std::int64_t in = 3;
  const std::int64_t widths[2][3] = {{32, 48, 24}, {64, 96, 48}};
  for (int block = 0; block < 2; ++block) {
    const std::string name = "block" + std::to_string(block);
    const auto& w = widths[block];
    h = m.b.concat(
        {m.gelu(conv(name + "/one", h, 1, in, w[0])), m.swish(conv(name + "/three", h, 3, in, w[1])),
         m.b.op("Tanh", {conv(name + "/five", h, 5, in, w[2])})},
        3);
    in = w[0] + w[1] + w[2];
    h = m.b.op("MaxPool", {h},
               {{"ksize", Ints{1, 3, 3, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}});
  }
  const Output logits = m.dense("head", m.b.reduce_mean(h, {1, 2}), in, 10);
  return finish(m, m.b.reduce_mean(m.b.op("SparseSoftmaxCrossEntropyWithLogits", {logits, y})),
                {"x", "label"});
}

/// A tower's mean over the sequence of a transformer of `layers` layers, pre-norm, of four heads.
Output build_tower(Builder& m, const std::string& tower, const std::string& column, std::int64_t length,
                   std::int64_t dim, int layers, bool gelu) {
  const std::int64_t heads = 4, head = dim / heads;
  const std::vector<std::int32_t> swap{0, 2, 1, 3};
  const auto moved = [&](const Output& x) {
    return m.b.op("Transpose", {x, m.b.constant(Tensor::from<std::int32_t>(Shape{4}, swap))});
  };
  Output x = m.b.reshape(m.b.placeholder(column, DType::Float32, {-1, length, dim}), {-1, dim});
  for (int l = 0; l < layers; ++l) {
    const std::string name = tower + "/layer" + std::to_string(l);
    const Output normed = m.layer_norm(name + "/norm0", x, dim);
    const auto part = [&](const char* what) {
      return moved(m.b.reshape(m.dense(name + what, normed, dim, dim), {-1, length, heads, head}));
    };
    const Output query = part("/query"), key = part("/key"), value = part("/value");
    const Output dots = m.b.op("BatchMatMulV2", {query, key}, {{"adj_x", false}, {"adj_y", true}});
    const Output weights =
        m.b.op("Softmax", {m.b.mul(dots, m.scalar(1.0F / std::sqrt(static_cast<float>(head))))});
    const Output mixed = moved(m.b.op("BatchMatMulV2", {weights, value}));
    x = m.b.add(x, m.dense(name + "/output", m.b.reshape(mixed, {-1, dim}), dim, dim));
    const Output inner = m.dense(name + "/inner", m.layer_norm(name + "/norm1", x, dim), dim, 4 * dim);
    x = m.b.add(x, m.dense(name + "/outer", gelu ? m.gelu(inner) : m.swish(inner), 4 * dim, dim));
  }
  return m.b.reduce_mean(m.b.reshape(m.layer_norm(tower + "/norm", x, dim), {-1, length, dim}), {1});
}

ModelGraph build_two_towers() {
  Builder m;
  const Output user = build_tower(m, "user", "user", 16, 64, 2, true);
  const Output item = build_tower(m, "item", "item", 8, 48, 1, false);
  const Output y = m.b.placeholder("label", DType::Float32, {-1});
  const Output x0 = m.b.concat({user, item}, 1);
  Output x = x0;
  for (int l = 0; l < 3; ++l) x = m.b.add(m.b.mul(x0, m.dense("cross" + std::to_string(l), x, 112, 112)), x);
  const Output logits = m.b.reshape(m.dense("head", x, 112, 1), {-1});
  return finish(m, m.b.reduce_mean(m.b.op("braid.SigmoidCrossEntropy", {logits, y})),
                {"user", "item", "label"});
}

// ------------------------------------------------------------------------------------------------- steps

ModelGraph model_of(const std::string& name, const ZooCase& zoo) {
  if (auto attention = attention_model(name)) return std::move(*attention);
  return name == "gates"        ? build_gates()
         : name == "glu"        ? build_glu()
         : name == "branches"   ? build_branches()
         : name == "two_towers" ? build_two_towers()
                                : build_model(name, zoo.config);
}

/// The median; on the host, which others use too, the least.
double typical(std::vector<double> times, bool host) {
  std::sort(times.begin(), times.end());
  return times[host ? 0 : times.size() / 2];
}

void measure(const std::string& name, std::int64_t wanted, const Options& options,
             const std::shared_ptr<Accelerator>& device) {
  const ZooCase c = zoo_case(name);
  const std::int64_t batch = wanted == 0 ? c.batch : wanted;
  const ModelGraph model = model_of(name, c);
  Training training = make_training(model, {.kind = c.optimizer});
  const std::vector<std::vector<Tensor>> feeds{on_device(
      made_up_feeds(training, model.columns, batch, c.config.classes, c.config.hash_buckets), device)};
  CompileOptions compiling;
  compiling.domain = device ? Domain::Device : Domain::Host;
  if (device) compiling.batch_siblings = BatchSiblings::AcrossScopes;
  std::vector<std::unique_ptr<TimedSteps>>
      variants;  // on one stream and on many, each without and with fusion
  std::string asked;
  double compile_s = 0;
  for (const bool many : {false, true}) {
    if (many && !device) break;
    compiling.streams.policy = many ? StreamPolicy::Cost : StreamPolicy::None;
    compiling.streams.count = many ? options.streams : 1;
    for (const bool fusion : {false, true}) {
      const char variant = static_cast<char>('0' + 2 * (many ? 1 : 0) + (fusion ? 1 : 0));
      if (device && options.variants.find(variant) == std::string::npos) continue;
      asked.push_back(variant);
      compiling.fusion = options.attention ? device != nullptr : fusion;
      if (options.attention)
        compiling.attention = !fusion          ? AttentionNodes::Never
                              : options.always ? AttentionNodes::Always
                                               : AttentionNodes::WhereFaster;
      const auto begin = Clock::now();
      variants.push_back(std::make_unique<TimedSteps>(training, compiling, device));
      if (fusion && !many) compile_s = std::chrono::duration<double>(Clock::now() - begin).count();
      variants.back()->run(feeds, 10);
    }
  }
  std::vector<std::vector<double>> times(variants.size());
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t v = 0; v < variants.size(); ++v)
      times[v].push_back(variants[v]->time_us(feeds, options.steps, device == nullptr));
  if (variants.size() != 4 && device) {  // of those that were asked for
    for (std::size_t v = 0; v < variants.size(); ++v)
      fmt::print("{:<12} {:>6} | variant {} {:>9.1f} us, ops {}\n", name, batch, asked[v],
                 typical(times[v], false), variants[v]->program().ops.size());
    std::fflush(stdout);
    return;
  }
  const auto best = [&](std::size_t fusion) {
    double us = typical(times[fusion], !device);
    for (std::size_t v = fusion; v < variants.size(); v += 2) us = std::min(us, typical(times[v], !device));
    return us;
  };
  const double apart = losses_apart(variants[0]->losses(), variants[1]->losses(), 10);
  fmt::print(
      "{:<12} {:>6} | without {:>9.1f} us, with {:>9.1f} us, {:.3f} x | ops {} -> {} | losses apart {:.1e} | "
      "made in "
      "{:.2f} s\n",
      name, batch, best(0), best(1), best(0) / best(1), variants[0]->program().ops.size(),
      variants[1]->program().ops.size(), apart, compile_s);
  if (options.notes && device)
    fmt::print("    on 1 stream {:.1f} and {:.1f} us, on {} streams {:.1f} and {:.1f} us\n",
               typical(times[0], false), typical(times[1], false), options.streams, typical(times[2], false),
               typical(times[3], false));
  if (options.notes)
    for (const Note& note : variants[1]->program().notes)
      if (note.pass == "regions") fmt::print("    {}\n", note.text);
  if (options.programs)
    for (const ProgramOp& op : variants[1]->program().ops)
      if (op.op == "braid.Fused") {
        const Node& node = variants[1]->program().graph.node(op.node);
        fmt::print("{}\n{}", node.name, node.attrs.require<std::string>("program"));
      }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Training steps with and without fused regions");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--models", options.models);
  app.add_option("--batches", options.batches);
  app.add_option("--steps", options.steps);
  app.add_option("--rounds", options.rounds);
  app.add_option("--streams", options.streams);
  app.add_flag("--notes", options.notes, "What the passes say");
  app.add_option("--variants", options.variants,
                 "On a device: 0 and 1 on one stream without and with fusion, "
                 "2 and 3 on many");
  app.add_flag("--attention", options.attention, "Without and with attention as one node");
  app.add_flag("--always", options.always, "With --attention: also where that is slower");
  app.add_flag("--programs", options.programs, "The regions");
  CLI11_PARSE(app, argc, argv);
  const std::shared_ptr<Accelerator> device = options.device == "cuda" ? open_cuda({}) : nullptr;
  const auto split = [](const std::string& text) { return CLI::detail::split(text, ','); };
  for (const std::string& batch : split(options.batches))
    for (const std::string& model : split(options.models)) {
      try {
        measure(model, std::stoll(batch), options, device);
      } catch (const std::exception& error) {
        fmt::print("{:<12} {}: {}\n", model, batch, error.what());
      }
    }
  return 0;
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) { return braid::bench::run(argc, argv); }
