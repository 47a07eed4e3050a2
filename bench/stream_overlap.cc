// Question: how much faster are two independent branches of equal host work on two streams than on one?
//
//   stream_overlap [--rounds N] [--nodes N] [--node-us N]
//
// Each branch is a chain of `nodes` kernels of pure computation of about `node-us` each (a fixed number of
// dependent multiplications, calibrated once), intra-op width 1. The two programs differ in their number of
// streams only; their steps are run in turn, so what the machine does besides hits both. The results of both
// are compared. One JSON line: median milliseconds of a step and their ratio. The limit of the ratio is 2.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "engine/exec/instance.h"
#include "engine/exec/program.h"
#include "engine/exec/runtime.h"
#include "engine/ops/op.h"
#include "engine/passes/compile.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t compute(std::uint64_t x, std::int64_t turns) {
  for (std::int64_t i = 0; i < turns; ++i) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
  return x;
}

std::int64_t turns_for(double us) {
  constexpr std::int64_t kTurns = 20'000'000;
  const auto begin = Clock::now();
  volatile std::uint64_t sink = compute(1, kTurns);
  static_cast<void>(sink);
  const double took = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  return static_cast<std::int64_t>(us * static_cast<double>(kTurns) / took);
}

void register_op() {
  OpDef def;
  def.name = "bench.Compute";
  def.max_inputs = 2;
  def.infer = [](InferContext& c) { c.output(DType::UInt64, Shape{}); };
  def.no_gradient_reason = "a benchmark's op";
  def.stateful = true;
  def.cpu = [](const PrepareContext& c) {
    PreparedKernel kernel;
    kernel.run = [turns = c.attr<std::int64_t>("turns", 0), inputs = c.inputs.size()](const KernelArgs& a) {
      std::uint64_t x = 1;
      for (std::size_t i = 0; i < inputs; ++i) x += *a.in<std::uint64_t>(static_cast<int>(i));
      *a.out<std::uint64_t>(0) = compute(x, turns);
    };
    return kernel;
  };
  OpRegistry::global().add(std::move(def));
}

Graph two_branches(int nodes, std::int64_t turns) {
  Graph graph;
  const auto add = [&](const std::string& name, std::vector<ValueRef> inputs, std::int64_t node_turns,
                       int stream) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require("bench.Compute");
    node.attrs.set("turns", node_turns);
    node.inputs = std::move(inputs);
    node.stream = stream;
    return ValueRef{graph.add(std::move(node)), 0};
  };
  std::vector<ValueRef> ends;
  for (int branch = 0; branch < 2; ++branch) {
    std::vector<ValueRef> inputs;
    for (int i = 0; i < nodes; ++i) inputs = {add(fmt::format("b{}_{}", branch, i), inputs, turns, branch)};
    ends.push_back(inputs[0]);
  }
  add("end", ends, 0, 0);
  return graph;
}

std::shared_ptr<const Program> compile_for(const Graph& graph, StreamPolicy policy) {
  CompileOptions options;
  options.streams.count = policy == StreamPolicy::None ? 1 : 2;
  options.streams.policy = policy;
  return compile(graph, {{}, {"end"}, {}}, options);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

int run(int rounds, int nodes, double node_us) {
  register_op();
  const Graph graph = two_branches(nodes, turns_for(node_us));
  RuntimeOptions options;
  options.intra_op_threads = 1;
  Runtime runtime(options);
  Instance one(compile_for(graph, StreamPolicy::None), runtime),
      two(compile_for(graph, StreamPolicy::User), runtime);
  const auto step = [&](Instance& instance, std::vector<double>& ms) {
    const auto begin = Clock::now();
    const StepResult result = instance.run({}, WaitContext::with_timeout(std::chrono::seconds(60)));
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    return result.fetches[0].data<std::uint64_t>()[0];
  };
  std::vector<double> one_ms, two_ms;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = step(one, one_ms), b = step(two, two_ms);
    if (a == b) continue;
    fmt::print(stderr, "the results differ: {} and {}\n", a, b);
    return 1;
  }
  fmt::print(
      R"({{"bench":"stream_overlap","one_stream_ms":{:.3f},"two_streams_ms":{:.3f},"ratio":{:.3f},"limit":2,"rounds":{},)"
      R"("nodes_per_branch":{},"node_us":{},"cpu":"{}","cores":{}}})"
      "\n",
      median(one_ms), median(two_ms), median(one_ms) / median(two_ms), rounds, nodes, node_us, cpu_name(),
      usable_cores());
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  int rounds = 101, nodes = 40;
  double node_us = 50;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--nodes") == 0) nodes = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--node-us") == 0) node_us = std::atof(argv[i + 1]);
  }
  return braid::run(rounds, nodes, node_us);
}
