// Question: how much faster are two independent branches of equal host work on two streams than on one, what
// does AUTO make of them by itself, and what do streams cost a chain that cannot use them?
//
//   stream_overlap [--rounds N] [--nodes N] [--node-us N]
//
// Each branch is a chain of `nodes` kernels of pure computation of about `node-us` each (a fixed number of
// dependent multiplications, calibrated once), intra-op width 1. Programs differ in their streams only; their
// steps are run in turn, so what the machine does besides hits all. Results are compared. A JSON line a case:
// median milliseconds of a step, and the median of the ratios of a turn. The limit for two branches is 2; the
// aims are 1.8 by hand, 1.6 by AUTO, and 0.98 for the chain.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/exec/tune.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"

namespace braid {

struct Settings {
  int rounds = 101, nodes = 40;
  double node_us = 50;
};

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

/// `by_hand`: the branches have ids.
Graph make_branches(int branches, int nodes, std::int64_t turns, bool by_hand) {
  Graph graph;
  const auto add = [&](const std::string& name, std::vector<ValueRef> inputs, std::int64_t node_turns,
                       int stream) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require("bench.Compute");
    node.attrs.set("turns", node_turns);
    node.inputs = std::move(inputs);
    node.stream = by_hand ? stream : kNoStream;
    return ValueRef{graph.add(std::move(node)), 0};
  };
  std::vector<ValueRef> ends;
  for (int branch = 0; branch < branches; ++branch) {
    std::vector<ValueRef> inputs;
    for (int i = 0; i < nodes; ++i) inputs = {add(fmt::format("b{}_{}", branch, i), inputs, turns, branch)};
    ends.push_back(inputs[0]);
  }
  add("end", ends, 0, 0);
  return graph;
}

const CompileRequest kRequest{{}, {"end"}, {}};

CompileOptions options_for(StreamPolicy policy) {
  CompileOptions options;
  options.streams.count = policy == StreamPolicy::None ? 1 : 2;
  options.streams.policy = policy;
  return options;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Times `other` against one stream. False when results differ.
bool compare(const char* name, const Graph& graph, CompileOptions other, Runtime& runtime,
             const Settings& settings) {
  std::string why;
  if (other.streams.policy == StreamPolicy::Auto) {
    const StreamPlan plan = tune_streams(graph, kRequest, other, {}, runtime);
    other.streams = plan.apply(other.streams);
    why = plan.why;
  }
  Instance one(compile(graph, kRequest, options_for(StreamPolicy::None)), runtime),
      two(compile(graph, kRequest, other), runtime);
  const auto step = [&](Instance& instance, std::vector<double>& ms) {
    const auto begin = Clock::now();
    const StepResult result = instance.run({}, WaitContext::with_timeout(std::chrono::seconds(60)));
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    return result.fetches[0].data<std::uint64_t>()[0];
  };
  std::vector<double> one_ms, two_ms, ratios;
  for (int round = 0; round < settings.rounds; ++round) {
    const std::uint64_t a = step(one, one_ms), b = step(two, two_ms);
    ratios.push_back(one_ms.back() / two_ms.back());
    if (a == b) continue;
    fmt::print(stderr, "the results differ: {} and {}\n", a, b);
    return false;
  }
  fmt::print(
      R"({{"bench":"stream_overlap","case":"{}","one_stream_ms":{:.3f},"ms":{:.3f},"ratio":{:.3f},"policy":"{}",)"
      R"("streams":{},"rounds":{},"nodes_per_branch":{},"node_us":{},"cpu":"{}","cores":{},"why":"{}"}})"
      "\n",
      name, median(one_ms), median(two_ms), median(ratios), stream_policy_name(two.program().policy),
      two.program().compute_streams, settings.rounds, settings.nodes, settings.node_us, cpu_name(),
      usable_cores(), why);
  return true;
}

}  // namespace

int run(const Settings& settings) {
  register_op();
  const std::int64_t turns = turns_for(settings.node_us);
  RuntimeOptions options;
  options.intra_op_threads = 1;
  Runtime runtime(options);
  const bool good = compare("two branches by hand", make_branches(2, settings.nodes, turns, true),
                            options_for(StreamPolicy::User), runtime, settings) &&
                    compare("two branches, AUTO", make_branches(2, settings.nodes, turns, false),
                            options_for(StreamPolicy::Auto), runtime, settings) &&
                    compare("a chain, AUTO", make_branches(1, 2 * settings.nodes, turns, false),
                            options_for(StreamPolicy::Auto), runtime, settings) &&
                    compare("a chain, COST", make_branches(1, 2 * settings.nodes, turns, false),
                            options_for(StreamPolicy::Cost), runtime, settings);
  return good ? 0 : 1;
}

}  // namespace braid

int main(int argc, char** argv) {
  braid::Settings settings;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) settings.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--nodes") == 0) settings.nodes = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--node-us") == 0) settings.node_us = std::atof(argv[i + 1]);
  }
  return braid::run(settings);
}
