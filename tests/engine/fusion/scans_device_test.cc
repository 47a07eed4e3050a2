// Regions with running sums and products: a thread goes down each line. The values are the host's, whatever
// the length, the direction and what lies between two sums.
#include <gtest/gtest.h>

#include <fmt/format.h>

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

struct Scans {
  std::int64_t outer, length, inner;
  bool reverse, exclusive;
  DType dtype = DType::Float32;
};

/// The second running sum reads the first, a bias of the last axis and a number for each row; a product runs
/// beside them.
struct ScanModel {
  GraphBuilder b;
  CompileRequest request;
  std::vector<Tensor> feeds;

  ScanModel() = default;
  explicit ScanModel(const Scans& s) {
    const AttrMap attrs{{"reverse", s.reverse}, {"exclusive", s.exclusive}};
    const Output x = feed("x", s.dtype, {s.outer, s.length, s.inner}), bias = feed("b", s.dtype, {s.inner}),
                 row = feed("r", s.dtype, {s.outer, s.length, 1});
    const Output axis = b.constant(Tensor::scalar<std::int32_t>(1), "axis");
    const Output first = b.op("Cumsum", {b.op("Mul", {b.add(x, bias), row}), axis}, attrs);
    const Output second = b.op("Cumsum", {b.op("Sub", {b.op("Tanh", {first}), x}), axis}, attrs);
    const Output product = b.op("Cumprod", {b.op("Sigmoid", {first}), axis}, attrs);
    const Output y = b.add(b.op("Mul", {second, first}), product);
    request.fetches = {y.name(), first.name()};
  }

  Output feed(const std::string& name, DType dtype, const Shape& shape) {
    request.feeds.push_back({name, dtype, shape});
    Tensor value(dtype, shape);
    std::uint64_t state = static_cast<std::uint64_t>(name[0]);
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const double number = static_cast<double>(state >> 40) / (1 << 23) - 1;
      if (dtype == DType::Float32)
        value.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(number);
      else
        value.data<double>()[static_cast<std::size_t>(i)] = number;
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

std::vector<Tensor> fetches_of(const std::shared_ptr<const Program>& program, Runtime& runtime,
                               const std::vector<Tensor>& feeds) {
  Instance instance(program, runtime);
  StepRequest request;
  request.feeds = feeds;
  return instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches;
}

int ops_named(const Program& program, const std::string& name) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                        [&](const ProgramOp& op) { return op.op == name; }));
}

template <class T>
void expect_near(const Tensor& want, const Tensor& is, double error) {
  const auto a = want.data<T>(), b = is.data<T>();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], error * std::max(1.0, std::abs(static_cast<double>(a[i])))) << i;
}

TEST(ScansDeviceTest, AreTheHosts) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions options;
  options.device = open_cuda({});
  Runtime device(options), host(RuntimeOptions{});
  for (const std::int64_t length : {2, 7, 13, 48, 50, 257})
    for (const std::int64_t inner : {32, 48, 64})
      for (const bool reverse : {false, true})
        for (const bool exclusive : {false, true})
          for (const DType dtype : {DType::Float32, DType::Float64}) {
            if (dtype == DType::Float64 && length != 13) continue;
            SCOPED_TRACE(fmt::format("{} x {}{}{} {}", length, inner, reverse ? " reverse" : "",
                                     exclusive ? " exclusive" : "", dtype_name(dtype)));
            const ScanModel model({16384 / inner + 3, length, inner, reverse, exclusive, dtype});
            const auto program = model.compiled(Domain::Device, true);
            EXPECT_EQ(ops_named(*program, "braid.Fused"), 1);
            EXPECT_EQ(ops_named(*program, "Cumsum") + ops_named(*program, "Cumprod"), 0);
            const auto want = fetches_of(model.compiled(Domain::Host, false), host, model.feeds);
            const auto is = fetches_of(program, device, model.feeds);
            for (std::size_t f = 0; f < want.size(); ++f)
              dtype == DType::Float32 ? expect_near<float>(want[f], is[f], length > 100 ? 1e-3 : 1e-4)
                                      : expect_near<double>(want[f], is[f], 1e-9);
          }
}

/// What a sequence comes to: a weighted sum, a maximum, a mean and a gradient of what is repeated along it.
struct PoolModel : ScanModel {
  explicit PoolModel(std::int64_t outer, std::int64_t length, std::int64_t inner, DType dtype) {
    const Output x = feed("x", dtype, {outer, length, inner}), weight = feed("w", dtype, {outer, length, 1}),
                 bias = feed("b", dtype, {outer, 1, inner});
    const Output axis = b.constant(Tensor::scalar<std::int32_t>(1), "axis");
    const Output weighted = b.op("Mul", {b.op("Tanh", {b.add(x, bias)}), b.op("Sigmoid", {weight})});
    request.fetches = {b.op("Sum", {weighted, axis}).name(), b.op("Max", {weighted, axis}).name(),
                       b.op("Mean", {b.op("Square", {x}), axis}, {{"keep_dims", true}}).name(),
                       b.op("braid.ReduceToShapeOf", {b.op("Mul", {weighted, x}), bias}).name(),
                       weighted.name()};
  }
};

TEST(ScansDeviceTest, WhatSequencesComeToIsTheHosts) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  RuntimeOptions options;
  options.device = open_cuda({});
  Runtime device(options), host(RuntimeOptions{});
  for (const std::int64_t length : {2, 20, 127})
    for (const std::int64_t inner : {16, 33})
      for (const DType dtype : {DType::Float32, DType::Float64}) {
        if (dtype == DType::Float64 && (length != 20 || inner != 33)) continue;
        SCOPED_TRACE(fmt::format("{} x {} {}", length, inner, dtype_name(dtype)));
        const PoolModel model(16384 / inner + 3, length, inner, dtype);
        const auto program = model.compiled(Domain::Device, true);
        EXPECT_LE(ops_named(*program, "braid.Fused"), 2);
        for (const char* op : {"Sum", "Max", "Mean", "braid.ReduceToShapeOf"})
          EXPECT_EQ(ops_named(*program, op), 0) << op;
        const auto want = fetches_of(model.compiled(Domain::Host, false), host, model.feeds);
        const auto is = fetches_of(program, device, model.feeds);
        for (std::size_t f = 0; f < want.size(); ++f)
          dtype == DType::Float32 ? expect_near<float>(want[f], is[f], 1e-4)
                                  : expect_near<double>(want[f], is[f], 1e-9);
      }
}

TEST(ScansDeviceTest, FewLinesAreLeftToTheOp) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  const ScanModel model({4, 100, 32, false, false});
  EXPECT_EQ(ops_named(*model.compiled(Domain::Device, true), "Cumsum"), 2);
}

}  // namespace
}  // namespace braid::testing
