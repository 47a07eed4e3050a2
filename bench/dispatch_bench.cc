// Question: what does the executor itself cost for a node, for an event that has already been signalled, and
// for one that must wake a thread?
//
//   dispatch_bench [--rounds N]
//
// node, inline     a chain of kernels that do nothing on one stream, run on the calling thread: time of the
//                  step over the number of nodes. node, stream: the same through the stream's thread, with
//                  steps in flight.
// signalled edge   a stream passes waits whose events have all been signalled; its time for a node with a
//                  wait less that for one without.
// wake-up          a node on another stream waits for one that takes 200 us, so the waiter sleeps: from the
//                  end of the one kernel to the begin of the other. spinning: the same with a kernel of 5
//                  us, so it still spins.
// Each line is JSON; times in nanoseconds: median and 99th percentile over rounds (wake-ups: over edges).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

/// bench.Nop does nothing; bench.Stamp writes when it began and ended, after computing for `us`.
void register_ops() {
  OpDef def;
  def.max_inputs = -1;
  def.infer = [](InferContext& c) { c.output(DType::Int64, Shape{2}); };
  def.no_gradient_reason = "a benchmark's op";
  def.stateful = true;
  OpDef nop = def;
  nop.name = "bench.Nop";
  nop.cpu = [](const PrepareContext&) {
    PreparedKernel kernel;
    kernel.run = [](const KernelArgs&) {};
    return kernel;
  };
  OpDef stamp = def;
  stamp.name = "bench.Stamp";
  stamp.cpu = [](const PrepareContext& c) {
    PreparedKernel kernel;
    kernel.run = [us = c.attr<std::int64_t>("us", 0)](const KernelArgs& a) {
      const std::int64_t begin = now_ns();
      std::int64_t end = begin;
      while (end - begin < us * 1000) end = now_ns();
      a.out<std::int64_t>(0)[0] = begin;
      a.out<std::int64_t>(0)[1] = end;
    };
    return kernel;
  };
  OpRegistry::global().add(std::move(nop));
  OpRegistry::global().add(std::move(stamp));
}

class Builder {
 public:
  std::string add(const std::string& op, const std::vector<std::string>& after, int stream,
                  std::int64_t us = 0) {
    Node node;
    node.name = graph.unique_name(op);
    node.op = &OpRegistry::global().require(op);
    node.attrs.set("us", us);
    for (const std::string& name : after) node.control_inputs.push_back(graph.find(name));
    node.stream = stream;
    const std::string name = node.name;
    graph.add(std::move(node));
    return name;
  }
  Graph graph;
};

std::shared_ptr<const Program> compile_all(const Builder& b, const std::vector<std::string>& fetches,
                                           const std::string& target, int streams,
                                           bool keep_all_events = false) {
  CompileOptions options;
  options.streams.count = streams;
  options.streams.policy = StreamPolicy::User;
  options.streams.keep_all_events = keep_all_events;
  return compile(b.graph, {{}, fetches, {target}}, options);
}

WaitContext in_time() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

void print(const std::string& name, std::vector<double> ns, int nodes) {
  std::sort(ns.begin(), ns.end());
  const auto at = [&](double q) {
    return ns[std::min(ns.size() - 1, static_cast<std::size_t>(q * static_cast<double>(ns.size())))];
  };
  fmt::print(
      R"({{"bench":"dispatch","case":"{}","median_ns":{:.1f},"p99_ns":{:.1f},"samples":{},"nodes":{},"cpu":"{}","cores":{}}})"
      "\n",
      name, at(0.5), at(0.99), ns.size(), nodes, cpu_name(), usable_cores());
}

void nodes_on_one_stream(int rounds) {
  constexpr int kNodes = 10000;
  Builder b;
  std::string last = b.add("bench.Nop", {}, 0);
  for (int i = 1; i < kNodes; ++i) last = b.add("bench.Nop", {last}, 0);
  const auto program = compile_all(b, {}, last, 1);
  Runtime runtime({});
  Instance instance(program, runtime);
  std::vector<double> inline_ns, stream_ns;
  for (int round = 0; round < rounds; ++round)
    inline_ns.push_back(instance.run({}, in_time()).seconds * 1e9 / kNodes);
  for (int round = 0; round < rounds; ++round) {
    instance.start({}, in_time());
    if (instance.in_flight() == 2) stream_ns.push_back(instance.finish(in_time()).seconds * 1e9 / kNodes);
  }
  instance.finish(in_time());
  const std::uint64_t launches = runtime.activity().streams.front().launches;
  if (launches != 2U * static_cast<unsigned>(rounds) * kNodes)
    throw Internal(fmt::format("{} kernels ran instead of {}", launches, 2 * rounds * kNodes));
  print("node, inline", inline_ns, kNodes);
  print("node, stream", stream_ns, kNodes);
}

/// Time on stream 1 from its first node, which follows the last of stream 0, to its last.
double consumer_ns(Instance& instance) {
  const StepResult result = instance.run({}, in_time());
  return static_cast<double>(result.fetches[1].data<std::int64_t>()[0] -
                             result.fetches[0].data<std::int64_t>()[1]);
}

std::shared_ptr<const Program> consumers(int nodes, bool with_waits) {
  Builder b;
  std::vector<std::string> producers{b.add("bench.Nop", {}, 0)};
  for (int i = 1; i < nodes; ++i) producers.push_back(b.add("bench.Nop", {producers.back()}, 0));
  const std::string first = b.add("bench.Stamp", {producers.back()}, 1);
  std::string last = first;
  for (int i = 0; i < nodes; ++i) {
    std::vector<std::string> after{last};
    if (with_waits) after.push_back(producers[static_cast<std::size_t>(i)]);
    last = b.add("bench.Nop", after, 1);
  }
  const std::string end = b.add("bench.Stamp", {last}, 1);
  return compile_all(b, {first, end}, end, 2, true);
}

void signalled_edges(int rounds) {
  constexpr int kNodes = 2000;
  Runtime runtime({});
  Instance with(consumers(kNodes, true), runtime), without(consumers(kNodes, false), runtime);
  std::vector<double> edge_ns;
  for (int round = 0; round < rounds; ++round) {
    const double a = consumer_ns(with), b = consumer_ns(without);
    edge_ns.push_back((a - b) / kNodes);
  }
  print("edge, signalled", edge_ns, kNodes);
}

void wake_ups(const std::string& name, std::int64_t producer_us, int rounds) {
  constexpr int kEdges = 20;
  Builder b;
  std::vector<std::string> names{b.add("bench.Stamp", {}, 0, producer_us)};
  for (int i = 1; i <= kEdges; ++i) names.push_back(b.add("bench.Stamp", {names.back()}, i % 2, producer_us));
  const auto program = compile_all(b, names, names.back(), 2);
  Runtime runtime({});
  Instance instance(program, runtime);
  std::vector<double> ns;
  for (int round = 0; round < rounds; ++round) {
    const StepResult result = instance.run({}, in_time());
    if (round == 0) continue;
    for (std::size_t i = 1; i <= kEdges; ++i)
      ns.push_back(static_cast<double>(result.fetches[i].data<std::int64_t>()[0] -
                                       result.fetches[i - 1].data<std::int64_t>()[1]));
  }
  print(name, ns, kEdges);
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  int rounds = 60;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(4, std::atoi(argv[i + 1]));
  braid::register_ops();
  braid::nodes_on_one_stream(rounds);
  braid::signalled_edges(rounds);
  braid::wake_ups("edge, wakes a sleeping thread", 200, rounds);
  braid::wake_ups("edge, thread still spins", 5, rounds);
}
