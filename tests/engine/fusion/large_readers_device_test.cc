// Nodes that read one large value are one region on a device, where neither depends on the other; its kernel
// computes what the host's nodes do.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kRows = 60000, kColumns = 256;  // 61 MB

struct Model {
  GraphBuilder b;
  Output x, gain, scaled, of_squares, of_gained;

  Model()
      : x(b.placeholder("x", DType::Float32, {kRows, kColumns})),
        gain(b.placeholder("gain", DType::Float32, {kColumns})) {
    const Output rows = b.constant(Tensor::scalar<std::int32_t>(0), "rows");
    scaled = b.op("Tanh", {b.mul(x, gain)}, {}, "scaled");
    of_squares = b.op("Sum", {b.mul(x, x), rows}, {}, "of_squares");
    of_gained = b.op("Sum", {b.mul(x, b.op("Neg", {gain})), rows}, {}, "of_gained");
  }
  std::shared_ptr<const Program> compiled(Domain domain, bool fusion) const {
    CompileRequest request;
    request.feeds = {{"x", DType::Float32, {kRows, kColumns}}, {"gain", DType::Float32, {kColumns}}};
    for (const Output& fetch : {scaled, of_squares, of_gained}) request.fetches.push_back(fetch.name());
    CompileOptions options;
    options.domain = domain;
    options.fusion = fusion;
    return compile(import_graph(b.graph()), request, options);
  }
};

std::vector<Tensor> run(const std::shared_ptr<const Program>& program, Runtime& runtime,
                        const std::vector<Tensor>& feeds) {
  Instance instance(program, runtime);
  StepRequest request;
  request.feeds = feeds;
  return instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches;
}

TEST(LargeReadersDeviceTest, AreOneRegion) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  const Model model;
  RuntimeOptions options;
  options.device = open_cuda({});
  Runtime device(options), host(RuntimeOptions{});
  const auto program = model.compiled(Domain::Device, true);
  int regions = 0;
  for (const ProgramOp& op : program->ops) regions += op.op == "braid.Fused";
  EXPECT_EQ(regions, 1);
  Tensor x(DType::Float32, {kRows, kColumns}), gain(DType::Float32, {kColumns});
  std::uint64_t state = 1;
  for (Tensor* tensor : {&x, &gain})
    for (float& value : tensor->data<float>()) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      value = static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
    }
  const std::vector<Tensor> expected = run(model.compiled(Domain::Host, false), host, {x, gain});
  const std::vector<Tensor> got = run(program, device, {x, gain}), again = run(program, device, {x, gain});
  for (std::size_t f = 0; f < expected.size(); ++f) {
    const auto want = expected[f].data<float>(), is = got[f].data<float>(), was = again[f].data<float>();
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(want[i], is[i], 1e-2 * std::max(1.0F, std::abs(want[i]))) << f << ", element " << i;
      ASSERT_EQ(is[i], was[i]) << f << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace braid::testing
