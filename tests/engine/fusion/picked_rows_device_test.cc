// Regions read the rows that a gather would pick: of a norm behind lookups of positions, as in sequences, and
// where nothing is reduced. The values are the host's, and a row that is not there ends the step.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
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

constexpr std::int64_t kPicked = 3000, kPlaces = 70, kAges = 40;

/// x + places[p] + ages[a], and where it is asked for its norm.
struct PickedModel {
  GraphBuilder b;
  CompileRequest request;
  std::vector<Tensor> feeds;

  explicit PickedModel(std::int64_t columns, bool norm, DType indices) {
    const Output x = feed("x", DType::Float32, {kPicked, columns});
    const Output places = feed("places", DType::Float32, {kPlaces, columns});
    const Output ages = feed("ages", DType::Float32, {kAges, columns});
    const Output axis = b.constant(Tensor::scalar<std::int32_t>(0), "axis");
    const Output p = b.op("GatherV2", {places, feed("p", indices, {kPicked}), axis}, {}, "gather_p");
    const Output a = b.op("GatherV2", {ages, feed("a", indices, {kPicked}), axis}, {}, "gather_a");
    Output y = b.add(b.add(x, b.op("Tanh", {p})), a);
    if (norm) {
      const Output last = b.constant(Tensor::scalar<std::int32_t>(1), "last");
      y = b.op("Sub", {y, b.op("Mean", {y, last}, {{"keep_dims", true}})});
    }
    request.fetches = {y.name()};
  }

  Output feed(const std::string& name, DType dtype, const Shape& shape) {
    request.feeds.push_back({name, dtype, shape});
    Tensor value(dtype, shape);
    const std::int64_t of = name == "p" ? kPlaces : kAges;
    std::uint64_t state = name[0];
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto at = static_cast<std::size_t>(i), bits = static_cast<std::size_t>(state >> 40);
      if (dtype == DType::Float32)
        value.data<float>()[at] = static_cast<float>(bits) / (1 << 23) - 1;
      else if (dtype == DType::Int32)
        value.data<std::int32_t>()[at] = static_cast<std::int32_t>(bits) % static_cast<std::int32_t>(of);
      else
        value.data<std::int64_t>()[at] = static_cast<std::int64_t>(bits) % of;
    }
    feeds.push_back(value);
    return b.placeholder(name, dtype, shape);
  }

  std::shared_ptr<const Program> compiled(Domain domain, bool fusion) const {
    CompileOptions options;
    options.domain = domain;
    options.fusion = fusion;
    return compile(import_graph(b.graph()), request, options);
  }
};

Tensor run_picked(const std::shared_ptr<const Program>& program, Runtime& runtime,
                  const std::vector<Tensor>& feeds) {
  Instance instance(program, runtime);
  StepRequest request;
  request.feeds = feeds;
  return instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches[0];
}

int count(const Program& program, const std::string& name) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                        [&](const ProgramOp& op) { return op.op == name; }));
}

TEST(PickedRowsDeviceTest, AreReadByTheRegion) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions options;
  options.device = open_cuda({});
  Runtime device(options), host(RuntimeOptions{});
  for (const std::int64_t columns : {64, 100, 513})
    for (const bool norm : {false, true})
      for (const DType indices : {DType::Int32, DType::Int64}) {
        SCOPED_TRACE(std::to_string(columns) + (norm ? " norm " : " ") + std::string(dtype_name(indices)));
        const PickedModel model(columns, norm, indices);
        const auto program = model.compiled(Domain::Device, true);
        EXPECT_EQ(count(*program, "braid.Fused"), 1);
        EXPECT_EQ(count(*program, "GatherV2"), 0);
        const Tensor expected = run_picked(model.compiled(Domain::Host, false), host, model.feeds);
        const Tensor got = run_picked(program, device, model.feeds);
        const auto want = expected.data<float>(), is = got.data<float>();
        for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], is[i], 1e-5) << i;
      }
}

TEST(PickedRowsDeviceTest, ARowThatIsNotThereEndsTheStep) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions options;
  options.device = open_cuda({});
  Runtime device(options);
  for (const bool norm : {false, true})
    for (const std::int64_t bad : {std::int64_t{-1}, kAges}) {
      PickedModel model(64, norm, DType::Int64);
      model.feeds.back().data<std::int64_t>()[kPicked - 7] = bad;
      const auto program = model.compiled(Domain::Device, true);
      EXPECT_EQ(count(*program, "GatherV2"), 0);
      try {
        run_picked(program, device, model.feeds);
        FAIL() << "index " << bad << " was taken";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(error.message().find(std::to_string(bad)), std::string::npos) << error.message();
      }
    }
}

}  // namespace
}  // namespace braid::testing
