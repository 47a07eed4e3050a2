// The promises about streams that random graphs show, on a device: captured graphs, copies between the sides,
// and host ops between segments. BRAID_RANDOM_GRAPHS says how many graphs are tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "engine/compile/compile.h"
#include "tests/engine/testing/random_graph.h"
#include "tests/engine/testing/stream_properties.h"
#include "tests/gpu/test_kernels.h"
#include "tests/support/message_of.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

class StreamPropertyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    register_test_kernels();
    device_ = open_cuda({});
  }

  RuntimeOptions on_device(bool graphs) const { return {.device = device_, .device_graphs = graphs}; }

  static CompileOptions two_streams() {
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.count = 2;
    options.streams.policy = StreamPolicy::User;
    return options;
  }

  std::shared_ptr<Accelerator> device_;
};

TEST_F(StreamPropertyTest, S7_RandomGraphsOnRandomStreamsGiveTheInterpretersBits) {
  const int graphs = tries("BRAID_RANDOM_GRAPHS", 10000, 10000);
  expect_random_graphs_keep_the_interpreters_bits(graphs, 12, on_device(true));
  expect_random_graphs_keep_the_interpreters_bits(graphs / 4, 12, on_device(false));
}

TEST_F(StreamPropertyTest, S1_EveryNumberOfStreamsGivesTheBitsOfOneOverAThousandSteps) {
  for (const bool graphs : {true, false})
    expect_any_streams_keep_the_bits_of_one(1000, 20, on_device(graphs));
}

/// What one stream is done with is the other's: each takes nearly all the memory there is, in its turn.
TEST_F(StreamPropertyTest, S7_OneStreamMayUseTheWholeMemory) {
  constexpr std::uint64_t kLimit = 1 << 28;
  constexpr auto kMost = static_cast<std::int64_t>(kLimit / 10 * 9 / sizeof(float));
  TestGraph g;
  ValueRef v = g.add("Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{}}}, "x");
  for (int stream = 0; stream < 2; ++stream) {
    const ValueRef large = g.add("Fill", {g.constant({kMost}), v});
    v = g.add("Max", {large, g.constant({0})});
    g.node(large).stream = g.node(v).stream = stream;
  }
  const auto program = compile(g.graph, {{{"x", DType::Float32, Shape{}}}, {g.name(v)}, {}}, two_streams());
  EXPECT_GE(program->stats.device_arena_bytes, kLimit / 10 * 9);
  Runtime runtime({.device = open_cuda({.memory_limit = kLimit})});
  Instance instance(program, runtime);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto x = static_cast<float>(step);
    const StepResult result = instance.run(request(step, {Tensor::scalar(x)}), soon());
    ASSERT_EQ(result.fetches[0].data<float>()[0], x);
  }
  const HostActivity activity = runtime.activity();
  for (const char* stream : {"compute0", "compute1"})
    EXPECT_TRUE(
        std::any_of(activity.device_streams.begin(), activity.device_streams.end(),
                    [&](const DeviceStreamWork& work) { return work.name == stream && work.launches == 40; }))
        << stream;
}

TEST_F(StreamPropertyTest, S10_AnErrorThatAKernelFindsHasOpNodeStreamAndStep) {
  TestGraph g;
  const ValueRef rows = on(g, 0, {g.feed("x", 4)}, "rows", 5);
  const ValueRef taken = g.add("GatherV2", {rows, g.constant({1, 7}), g.constant({0})}, {}, "taken");
  g.node(taken).stream = 1;
  on(g, 0, {taken}, "end");
  Runtime runtime(on_device(true));
  Instance instance(compile(g.graph, {kX, {"end"}, {}}, two_streams()), runtime);
  for (const std::uint64_t step : {0, 1, 2})
    EXPECT_EQ(message_of([&] { instance.run(request(step, {test_tensor(4, step)}), soon()); }),
              "[GatherV2] node 'taken' on stream compute1, step " + std::to_string(step) +
                  ": index 7 is not in [0, 5)");
}

/// In a process of its own, whose device is lost.
TEST_F(StreamPropertyTest, S10_AKernelThatFaultsIsNamedWhenKernelsAreChecked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        TestGraph g;
        const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a", 4);
        const ValueRef bad = g.add("test.Fail", {a}, {{"at_step", std::int64_t{2}}}, "bad");
        g.node(bad).stream = 1;
        on(g, 0, {bad}, "end");
        RuntimeOptions checked = on_device(false);
        checked.device_check = true;
        Runtime runtime(checked);
        Instance instance(compile(g.graph, {kX, {"end"}, {}}, two_streams()), runtime);
        for (std::uint64_t step = 0; step < 4; ++step)
          std::cerr << message_of<Error>([&] { instance.run(request(step, {test_tensor(4, step)}), soon()); })
                    << std::endl;
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      ::testing::AllOf(::testing::HasSubstr("nothing was thrown\nnothing was thrown\n"),
                       ::testing::HasSubstr("\n[test.Fail] node 'bad' on stream compute1, step 2: ")));
}

}  // namespace
}  // namespace braid::testing
