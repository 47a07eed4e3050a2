#include "tests/engine/testing/stream_properties.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

constexpr std::uint64_t kSteps = 4;
/// Graphs that are checked at the same time, each in a runtime of its own. Streams of one graph mostly wait
/// for each other, on a busy machine for each other's turn on a core.
constexpr int kAtOnce = 8;

class RandomDelays {
 public:
  explicit RandomDelays(int us) { set_random_delay_us(us); }
  ~RandomDelays() { set_random_delay_us(0); }
  RandomDelays(const RandomDelays&) = delete;
  RandomDelays& operator=(const RandomDelays&) = delete;
};

std::vector<Tensor> feeds_of(const RandomGraph& r, std::uint64_t step) {
  std::vector<Tensor> feeds;
  for (const FeedSpec& feed : r.feeds)
    feeds.push_back(test_tensor(feed.shape.elements(), step * 100 + feeds.size()));
  return feeds;
}

/// False for a graph whose reads and writes have no order.
bool check(std::uint64_t seed, Runtime& runtime) {
  RandomGraphOptions options;
  if (runtime.device()) {
    options.domain = Domain::Device;
    options.on_host = seed % 3 == 0 ? 20 : 0;
  }
  RandomGraph r = make_random_graph(seed, options);
  std::shared_ptr<const Program> program;
  try {
    program = compile(r.g.graph, {r.feeds, r.fetches, r.targets}, r.options);
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("have no order"), std::string::npos)
        << "seed " << seed << ": " << error.message();
    return false;
  }
  Interpreter oracle(r.g.graph);
  std::vector<std::vector<Tensor>> expected;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Interpreter::Feeds feeds;
    const auto tensors = feeds_of(r, step);
    for (std::size_t f = 0; f < tensors.size(); ++f) feeds[r.feeds[f].name] = tensors[f];
    expected.push_back(oracle.run(feeds, r.fetches, r.targets));
  }

  Instance instance(program, runtime);
  std::uint64_t finished = 0;
  const auto finish = [&] {
    const StepResult result = instance.finish(soon());
    EXPECT_EQ(result.step, finished);
    for (std::size_t f = 0; f < r.fetches.size(); ++f)
      EXPECT_TRUE(same_bytes(result.fetches[f], expected[finished][f]))
          << "seed " << seed << ", step " << finished << ", fetch " << r.fetches[f];
    ++finished;
  };
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (instance.in_flight() == program->steps_in_flight) finish();
    instance.start(request(step, feeds_of(r, step)), soon());
  }
  while (finished < kSteps) finish();
  for (const ProgramVariable& variable : program->variables)
    EXPECT_TRUE(
        same_bytes(runtime.variables().read(variable.name).value(), oracle.variables().at(variable.name)))
        << "seed " << seed << ", variable " << variable.name;
  return true;
}

/// Towers that meet, with backward-like branches and variables that are updated: what a training step looks
/// like.
TestGraph four_towers() {
  TestGraph g;
  const ValueRef x = g.feed("x", 16);
  std::vector<ValueRef> tops, handles, inputs;
  for (int tower = 0; tower < 4; ++tower) {
    handles.push_back(g.variable("w" + std::to_string(tower), 8));
    inputs.push_back(g.mix({x, g.read(handles.back())}, 16));
    ValueRef h = inputs.back();
    for (int layer = 0; layer < 3; ++layer) h = g.add("test.Change", {h}, {{"elements", std::int64_t{16}}});
    tops.push_back(h);
  }
  const ValueRef loss = g.mix(tops, 1, "loss");
  for (std::size_t tower = 0; tower < 4; ++tower)
    g.add("test.Update", {handles[tower], g.mix({loss, inputs[tower]}, 8)}, {},
          "update" + std::to_string(tower));
  return g;
}

}  // namespace

void expect_random_graphs_keep_the_interpreters_bits(int graphs, int delay_us,
                                                     const RuntimeOptions& options) {
  const RandomDelays delays(delay_us);
  std::atomic<std::uint64_t> next{0};
  std::atomic<int> checked{0};
  const auto check_some = [&] {
    std::unique_ptr<Runtime> runtime;
    for (int own = 0; checked < graphs && !::testing::Test::HasFailure(); ++own) {
      if (own % 200 == 0) runtime = std::make_unique<Runtime>(options);
      const std::uint64_t seed = next++;
      if (seed >= 2U * static_cast<unsigned>(graphs) + kAtOnce) {
        ADD_FAILURE() << "too many graphs without an order";
        return;
      }
      checked += check(seed, *runtime);
    }
  };
  if (options.device) {
    check_some();
    return;
  }
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kAtOnce; ++thread) threads.emplace_back(check_some);
}

void expect_any_streams_keep_the_bits_of_one(std::uint64_t steps, int delay_us,
                                             const RuntimeOptions& runtime_options) {
  const TestGraph g = four_towers();
  CompileOptions options;
  options.domain = runtime_options.device ? Domain::Device : Domain::Host;
  std::vector<std::int64_t> reference;
  for (int streams = 1; streams <= 8; ++streams) {
    options.streams.count = streams;
    options.streams.policy = streams % 2 ? StreamPolicy::Cost : StreamPolicy::Full;
    const auto program = compile(
        g.graph, {{{"x", DType::Int64, Shape{16}}}, {"loss"}, {"update0", "update1", "update2", "update3"}},
        options);
    EXPECT_EQ(program->stats.waits_issued > 0, streams > 1) << "streams that need each other";
    Runtime runtime(runtime_options);
    Instance instance(program, runtime);
    const RandomDelays delays(delay_us);
    std::vector<std::int64_t> losses;
    const auto finish = [&] { losses.push_back(instance.finish(soon()).fetches[0].data<std::int64_t>()[0]); };
    for (std::uint64_t step = 0; step < steps; ++step) {
      instance.start(request(step, {test_tensor(16, step)}), soon());
      if (instance.in_flight() == program->steps_in_flight) finish();
    }
    while (instance.in_flight() > 0) finish();
    if (streams == 1)
      reference = losses;
    else
      ASSERT_EQ(losses, reference) << streams << " streams";
  }
}

}  // namespace braid::testing
