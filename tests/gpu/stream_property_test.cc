#include "engine/compile/compile.h"
// The promises about streams that random graphs show, on a device: captured graphs, copies between the sides,
#include "engine/compile/compile.h"
// and host ops between segments. BRAID_RANDOM_GRAPHS says how many graphs are tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "engine/compile/compile.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
#include "tests/base/message_of.h"
#include "tests/engine/testing/random_graph.h"
#include "tests/engine/testing/stream_properties.h"
#include "tests/gpu/test_kernels.h"

#include "engine/compile/compile.h"
namespace braid::testing {
#include "engine/compile/compile.h"
namespace {
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
class StreamPropertyTest : public ::testing::Test {
#include "engine/compile/compile.h"
 protected:
#include "engine/compile/compile.h"
  void SetUp() override {
#include "engine/compile/compile.h"
    if (cuda_device_count() == 0) GTEST_SKIP() << "SKIPPED: there is no CUDA device";
#include "engine/compile/compile.h"
    register_test_kernels();
#include "engine/compile/compile.h"
    device_ = open_cuda({});
#include "engine/compile/compile.h"
  }
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
  RuntimeOptions on_device(bool graphs) const { return {.device = device_, .device_graphs = graphs}; }
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
  static CompileOptions two_streams() {
#include "engine/compile/compile.h"
    CompileOptions options;
#include "engine/compile/compile.h"
    options.domain = Domain::Device;
#include "engine/compile/compile.h"
    options.streams.count = 2;
#include "engine/compile/compile.h"
    options.streams.policy = StreamPolicy::User;
#include "engine/compile/compile.h"
    return options;
#include "engine/compile/compile.h"
  }
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
  std::shared_ptr<Accelerator> device_;
#include "engine/compile/compile.h"
};
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
TEST_F(StreamPropertyTest, S7_RandomGraphsOnRandomStreamsGiveTheInterpretersBits) {
#include "engine/compile/compile.h"
  const int graphs = tries("BRAID_RANDOM_GRAPHS", 10000, 10000);
#include "engine/compile/compile.h"
  expect_random_graphs_keep_the_interpreters_bits(graphs, 12, on_device(true));
#include "engine/compile/compile.h"
  expect_random_graphs_keep_the_interpreters_bits(graphs / 4, 12, on_device(false));
#include "engine/compile/compile.h"
}
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
TEST_F(StreamPropertyTest, S1_EveryNumberOfStreamsGivesTheBitsOfOneOverAThousandSteps) {
#include "engine/compile/compile.h"
  for (const bool graphs : {true, false})
#include "engine/compile/compile.h"
    expect_any_streams_keep_the_bits_of_one(1000, 20, on_device(graphs));
#include "engine/compile/compile.h"
}
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
/// What one stream is done with is the other's: each takes nearly all the memory there is, in its turn.
#include "engine/compile/compile.h"
TEST_F(StreamPropertyTest, S7_OneStreamMayUseTheWholeMemory) {
#include "engine/compile/compile.h"
  constexpr std::uint64_t kLimit = 1 << 28;
#include "engine/compile/compile.h"
  constexpr auto kMost = static_cast<std::int64_t>(kLimit / 10 * 9 / sizeof(float));
#include "engine/compile/compile.h"
  TestGraph g;
#include "engine/compile/compile.h"
  ValueRef v = g.add("Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{}}}, "x");
#include "engine/compile/compile.h"
  for (int stream = 0; stream < 2; ++stream) {
#include "engine/compile/compile.h"
    const ValueRef large = g.add("Fill", {g.constant({kMost}), v});
#include "engine/compile/compile.h"
    v = g.add("Max", {large, g.constant({0})});
#include "engine/compile/compile.h"
    g.node(large).stream = g.node(v).stream = stream;
#include "engine/compile/compile.h"
  }
#include "engine/compile/compile.h"
  const auto program = compile(g.graph, {{{"x", DType::Float32, Shape{}}}, {g.name(v)}, {}}, two_streams());
#include "engine/compile/compile.h"
  EXPECT_GE(program->stats.device_arena_bytes, kLimit / 10 * 9);
#include "engine/compile/compile.h"
  Runtime runtime({.device = open_cuda({.memory_limit = kLimit})});
#include "engine/compile/compile.h"
  Instance instance(program, runtime);
#include "engine/compile/compile.h"
  for (std::uint64_t step = 0; step < 20; ++step) {
#include "engine/compile/compile.h"
    const auto x = static_cast<float>(step);
#include "engine/compile/compile.h"
    const StepResult result = instance.run(request(step, {Tensor::scalar(x)}), soon());
#include "engine/compile/compile.h"
    ASSERT_EQ(result.fetches[0].data<float>()[0], x);
#include "engine/compile/compile.h"
  }
#include "engine/compile/compile.h"
  const HostActivity activity = runtime.activity();
#include "engine/compile/compile.h"
  for (const char* stream : {"compute0", "compute1"})
#include "engine/compile/compile.h"
    EXPECT_TRUE(
#include "engine/compile/compile.h"
        std::any_of(activity.device_streams.begin(), activity.device_streams.end(),
#include "engine/compile/compile.h"
                    [&](const DeviceStreamWork& work) { return work.name == stream && work.launches == 40; }))
#include "engine/compile/compile.h"
        << stream;
#include "engine/compile/compile.h"
}
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
TEST_F(StreamPropertyTest, S10_AnErrorThatAKernelFindsHasOpNodeStreamAndStep) {
#include "engine/compile/compile.h"
  TestGraph g;
#include "engine/compile/compile.h"
  const ValueRef rows = on(g, 0, {g.feed("x", 4)}, "rows", 5);
#include "engine/compile/compile.h"
  const ValueRef taken = g.add("GatherV2", {rows, g.constant({1, 7}), g.constant({0})}, {}, "taken");
#include "engine/compile/compile.h"
  g.node(taken).stream = 1;
#include "engine/compile/compile.h"
  on(g, 0, {taken}, "end");
#include "engine/compile/compile.h"
  Runtime runtime(on_device(true));
#include "engine/compile/compile.h"
  Instance instance(compile(g.graph, {kX, {"end"}, {}}, two_streams()), runtime);
#include "engine/compile/compile.h"
  for (const std::uint64_t step : {0, 1, 2})
#include "engine/compile/compile.h"
    EXPECT_EQ(message_of([&] { instance.run(request(step, {test_tensor(4, step)}), soon()); }),
#include "engine/compile/compile.h"
              "[GatherV2] node 'taken' on stream compute1, step " + std::to_string(step) +
#include "engine/compile/compile.h"
                  ": index 7 is not in [0, 5)");
#include "engine/compile/compile.h"
}
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
/// In a process of its own, whose device is lost.
#include "engine/compile/compile.h"
TEST_F(StreamPropertyTest, S10_AKernelThatFaultsIsNamedWhenKernelsAreChecked) {
#include "engine/compile/compile.h"
  GTEST_FLAG_SET(death_test_style, "threadsafe");
#include "engine/compile/compile.h"
  EXPECT_EXIT(
#include "engine/compile/compile.h"
      {
#include "engine/compile/compile.h"
        TestGraph g;
#include "engine/compile/compile.h"
        const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a", 4);
#include "engine/compile/compile.h"
        const ValueRef bad = g.add("test.Fail", {a}, {{"at_step", std::int64_t{2}}}, "bad");
#include "engine/compile/compile.h"
        g.node(bad).stream = 1;
#include "engine/compile/compile.h"
        on(g, 0, {bad}, "end");
#include "engine/compile/compile.h"
        RuntimeOptions checked = on_device(false);
#include "engine/compile/compile.h"
        checked.device_check = true;
#include "engine/compile/compile.h"
        Runtime runtime(checked);
#include "engine/compile/compile.h"
        Instance instance(compile(g.graph, {kX, {"end"}, {}}, two_streams()), runtime);
#include "engine/compile/compile.h"
        for (std::uint64_t step = 0; step < 4; ++step)
#include "engine/compile/compile.h"
          std::cerr << message_of<Error>([&] { instance.run(request(step, {test_tensor(4, step)}), soon()); })
#include "engine/compile/compile.h"
                    << std::endl;
#include "engine/compile/compile.h"
        std::_Exit(0);
#include "engine/compile/compile.h"
      },
#include "engine/compile/compile.h"
      ::testing::ExitedWithCode(0),
#include "engine/compile/compile.h"
      ::testing::AllOf(::testing::HasSubstr("nothing was thrown\nnothing was thrown\n"),
#include "engine/compile/compile.h"
                       ::testing::HasSubstr("\n[test.Fail] node 'bad' on stream compute1, step 2: ")));
#include "engine/compile/compile.h"
}
#include "engine/compile/compile.h"

#include "engine/compile/compile.h"
}  // namespace
#include "engine/compile/compile.h"
}  // namespace braid::testing
