// Question: how long does compile() take for a training step of 1,000 to 10,000 nodes, by policy?
//
//   compile_bench [--rounds N] [--streams N]
//
// The first graph is eight towers of layers with backward nodes and updates of a variable each; verification
// is timed apart. The second is a step of eight real towers of dense layers, with and without batching of
// siblings. One JSON line a case: median milliseconds. The aim is 1,000 ms at 10,000 nodes for every policy;
// FULL takes 5,000 and is COST above.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/program/program.h"
#include "engine/verify/verify.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

void register_ops() {
  OpDef layer;
  layer.name = "bench.Layer";
  layer.max_inputs = -1;
  layer.infer = [](InferContext& c) { c.output(DType::Float32, Shape{64, 64}); };
  layer.cost = [](const InferContext&, std::span<const OutputInfo>) { return Cost{524288, 49152}; };
  layer.no_gradient_reason = "a benchmark's op";
  layer.stateful = true;
  layer.cpu = [](const PrepareContext&) { return PreparedKernel{}; };
  OpDef update = layer;
  update.name = "bench.Update";
  update.infer = [](InferContext&) {};
  update.handles = {Access::ReadWrite};
  update.side_effect = true;
  OpRegistry::global().add(std::move(layer));
  OpRegistry::global().add(std::move(update));
}

class Maker {
 public:
  CompileRequest make(int nodes) {
    constexpr int kTowers = 8;
    const int depth = std::max(1, nodes / (3 * kTowers));
    const ValueRef x = add("Placeholder", {}, "x", {{"dtype", DType::Float32}, {"shape", Shape{64, 64}}});
    std::vector<ValueRef> tops;
    std::vector<std::vector<ValueRef>> layers(kTowers), weights(kTowers);
    for (std::size_t t = 0; t < kTowers; ++t) {
      ValueRef h = x;
      for (int d = 0; d < depth; ++d) {
        const std::string place = fmt::format("{}_{}", t, d);
        weights[t].push_back(
            add("VarHandleOp", {}, "w" + place, {{"dtype", DType::Float32}, {"shape", Shape{64, 64}}}));
        const ValueRef read =
            add("ReadVariableOp", {weights[t].back()}, "read" + place, {{"dtype", DType::Float32}});
        h = add("bench.Layer", {h, read}, "layer" + place);
        layers[t].push_back(h);
      }
      tops.push_back(h);
    }
    CompileRequest request{{{"x", DType::Float32, Shape{64, 64}}}, {"loss"}, {}};
    const ValueRef loss = add("bench.Layer", tops, "loss");
    for (std::size_t t = 0; t < kTowers; ++t) {
      ValueRef back = loss;
      for (std::size_t d = layers[t].size(); d-- > 0;) {
        const std::string place = fmt::format("{}_{}", t, d);
        back = add("bench.Layer", {back, layers[t][d]}, "back" + place);
        add("bench.Update", {weights[t][d], back}, "update" + place);
        request.targets.push_back("update" + place);
      }
    }
    return request;
  }

  Graph graph;

 private:
  ValueRef add(const std::string& op, std::vector<ValueRef> inputs, const std::string& name,
               AttrMap attrs = {}) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    return {graph.add(std::move(node)), 0};
  }
};

double median_ms(int rounds, const std::function<void()>& work) {
  std::vector<double> ms;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    work();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::nth_element(ms.begin(), ms.begin() + rounds / 2, ms.end());
  return ms[static_cast<std::size_t>(rounds / 2)];
}

void run(int rounds, int streams) {
  register_ops();
  for (const int nodes : {1000, 5000, 10000}) {
    Maker maker;
    const CompileRequest request = maker.make(nodes);
    for (const auto policy : {StreamPolicy::None, StreamPolicy::Cost, StreamPolicy::Full,
                              StreamPolicy::Embedding, StreamPolicy::Auto}) {
      CompileOptions options;
      options.streams.count = streams;
      options.streams.policy = policy;
      std::shared_ptr<const Program> program;
      const double all = median_ms(rounds, [&] { program = compile(maker.graph, request, options); });
      const double verifying = median_ms(rounds, [&] { verify(*program); });
      fmt::print(
          R"({{"bench":"compile","policy":"{}","took":"{}","ops":{},"streams":{},"ms":{:.1f},"verify_ms":{:.1f},)"
          R"("aim_ms":1000,"rounds":{},"cpu":"{}"}})"
          "\n",
          stream_policy_name(policy), stream_policy_name(program->policy), program->ops.size(), streams, all,
          verifying, rounds, cpu_name());
    }
  }
}

/// Eight towers of dense layers with gradients, and updates by SGD.
void run_batching(int rounds) {
  for (const int layers : {10, 60}) {
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, Shape{64, 64});
    std::vector<Output> tops;
    for (int tower = 0; tower < 8; ++tower) {
      Output h = x;
      for (int layer = 0; layer < layers; ++layer)
        h = b.dense(fmt::format("tower{}/layer{}", tower, layer), h, 64, 64, true);
      tops.push_back(h);
    }
    b.op("Identity", {b.reduce_mean(b.concat(tops, 1))}, {}, "loss");
    Graph graph = import_graph(b.graph());
    CompileRequest request{{{"x", DType::Float32, Shape{64, 64}}}, {"loss"}, {}};
    for (const VariableGradient& gradient : add_gradients(graph, graph.parse_value("loss"))) {
      Node update;
      update.name = "update/" + gradient.variable.name;
      update.op = &OpRegistry::global().require("braid.ApplyOptimizer");
      update.attrs = optimizer_attrs({});
      update.inputs = {{gradient.variable.handle, 0}, gradient.dense};
      request.targets.push_back(update.name);
      graph.add(std::move(update));
    }
    for (const auto batching : {BatchSiblings::Off, BatchSiblings::WithinScopes}) {
      CompileOptions options;
      options.batch_siblings = batching;
      std::shared_ptr<const Program> program;
      const double ms = median_ms(rounds, [&] { program = compile(graph, request, options); });
      fmt::print(R"({{"bench":"compile","graph":"towers","batching":{},"nodes":{},"ops":{},"ms":{:.1f},)"
                 R"("aim_ms":1000,"rounds":{},"cpu":"{}"}})"
                 "\n",
                 batching != BatchSiblings::Off, graph.size(), program->ops.size(), ms, rounds, cpu_name());
    }
  }
}

}  // namespace

void run_all(int rounds, int streams) {
  run(rounds, streams);
  run_batching(rounds);
}

}  // namespace braid

int main(int argc, char** argv) {
  int rounds = 3, streams = 8;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--streams") == 0) streams = std::max(1, std::atoi(argv[i + 1]));
  }
  braid::run_all(rounds, streams);
}
