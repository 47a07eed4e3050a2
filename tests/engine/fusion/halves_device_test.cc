// Regions of halves take the device's own exponentials, quotients and roots: what they make is that of the
// exact ones but for float32's last bits, far below a half's, over all numbers that a half has. Dropout's
// bits are compared as integers there and drop what the node's own kernel drops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/ops/common/half.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

Tensor fetch_of(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                Runtime& runtime, const std::vector<Tensor>& feeds, int regions) {
  const auto program = compile(graph, request, options);
  int found = 0;
  for (const ProgramOp& op : program->ops) found += op.op == "braid.Fused";
  EXPECT_EQ(found, regions);
  Instance instance(program, runtime);
  StepRequest step;
  step.feeds = feeds;
  step.params.seed = 9;
  step.params.step = 3;
  return instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60))).fetches[0];
}

Output cast(GraphBuilder& b, const Output& x, DType from, DType to) {
  return b.op("Cast", {x}, {{"SrcT", from}, {"DstT", to}});
}

/// float32 of op(x), where x are all bfloat16 numbers; with and without regions.
TEST(HalvesDeviceTest, FunctionsAreNearTheExactOnesForAllHalves) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime device(runtime_options), host(RuntimeOptions{});
  constexpr std::int64_t kAll = 1 << 16;
  Tensor x(DType::BFloat16, Shape{kAll});
  for (std::int64_t i = 0; i < kAll; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(static_cast<std::byte*>(x.raw()) + 2 * i, &bits, sizeof bits);
  }
  for (const char* op : {"Sigmoid", "Exp", "Tanh", "Rsqrt", "Sqrt", "Reciprocal", "Erf", "Softplus"}) {
    SCOPED_TRACE(op);
    GraphBuilder b;
    const Output in =
        cast(b, b.placeholder("x", DType::BFloat16, Shape{kAll}), DType::BFloat16, DType::Float32);
    CompileRequest request;
    request.feeds = {{"x", DType::BFloat16, Shape{kAll}}};
    request.fetches = {b.op(op, {in}).name()};
    const Graph graph = import_graph(b.graph());
    CompileOptions options;
    options.domain = Domain::Device;
    options.fusion = true;
    const Tensor got = fetch_of(graph, request, options, device, {x}, 1);
    const Tensor expected = fetch_of(graph, request, {}, host, {x}, 0);
    for (std::size_t i = 0; i < kAll; ++i) {
      const float want = expected.data<float>()[i], is = got.data<float>()[i];
      if (std::isnan(want) || std::isinf(want)) {
        ASSERT_EQ(std::isnan(want), std::isnan(is)) << i << ": " << want << ", " << is;
        if (std::isinf(want)) ASSERT_EQ(want, is) << i;
        continue;
      }
      ASSERT_NEAR(want, is, 2e-5 * std::abs(want) + 2e-38) << i;
    }
  }
}

TEST(HalvesDeviceTest, DropoutDropsWhatItsOwnKernelDrops) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime device(runtime_options);
  for (const double rate : {0.0, 0.1, 0.5, 0.999}) {
    const Shape shape{700, 72};
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, shape);
    const Output y = b.op("braid.Dropout", {x}, {{"rate", rate}}, "dropped");
    CompileRequest request;
    request.feeds = {{"x", DType::Float32, shape}};
    request.fetches = {b.op("Neg", {y}).name()};
    const Graph graph = import_graph(b.graph());
    Tensor ones(DType::Float32, shape);
    for (float& value : ones.data<float>()) value = 1;
    CompileOptions options;
    options.domain = Domain::Device;
    const Tensor expected = fetch_of(graph, request, options, device, {ones}, 0);
    options.fusion = true;
    const Tensor got = fetch_of(graph, request, options, device, {ones}, 1);
    EXPECT_EQ(std::memcmp(expected.raw(), got.raw(), got.bytes()), 0) << rate;
  }
}

}  // namespace
}  // namespace braid::testing
