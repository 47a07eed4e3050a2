// The same on a device: generated kernels beside the interpreter. The arithmetic of float32 has the host's
// bits; functions and sums of rows differ in the last ones. Two runs
// have the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "engine/builder/graph_builder.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "tests/engine/fusion/random_regions.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

constexpr double kTolerance = 2e-4;

TEST(RegionsDeviceTest, RandomRegionsMeanWhatTheInterpreterComputes) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime runtime(runtime_options);
  int regions = 0, exact = 0, compared = 0;
  const int graphs = tries("BRAID_RANDOM_REGIONS", 60, 20);
  for (int seed = 0; seed < graphs && !HasFailure(); ++seed) {
    const RandomRegions random = make_random_regions(static_cast<std::uint64_t>(seed), Numbers::Smooth);
    CompileOptions options;
    options.fusion = true;
    options.domain = Domain::Device;
    options.steps_in_flight = 1;
    const auto program = compile(random.graph, random.request(), options);
    for (const ProgramOp& op : program->ops) regions += op.op == "braid.Fused";
    Instance instance(program, runtime);
    std::vector<Tensor> first;
    for (int run = 0; run < 3; ++run) {
      StepRequest request;
      request.params.step = run == 2 ? 1 : 0;  // random numbers are another step's
      request.params.seed = 5;
      const std::vector<Tensor> expected = random.interpreted(request.params);
      for (const auto& [name, tensor] : random.feeds) request.feeds.push_back(tensor);
      const StepResult got =
          instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60)));
      for (std::size_t f = 0; f < expected.size(); ++f) {
        EXPECT_EQ(difference(expected[f], got.fetches[f], kTolerance), "")
            << "seed " << seed << ", run " << run << ", fetch " << random.fetches[f];
        if (run == 0) {
          ++compared;
          exact += difference(expected[f], got.fetches[f]).empty();
          first.push_back(got.fetches[f].clone());
        } else if (run == 1) {
          EXPECT_EQ(difference(first[f], got.fetches[f]), "")
              << "seed " << seed << ": another run, other bits";
        }
      }
    }
  }
  EXPECT_GT(regions, graphs / 2);
  std::printf("%d regions; %d of %d fetches have the host's bits\n", regions, exact, compared);
}

/// y = -op(operands), so that it is a region, of numbers of all kinds.
Graph negated(const std::string& op, int operands, DType dtype, DType result, std::int64_t n) {
  GraphBuilder b;
  std::vector<Output> inputs;
  for (int i = 0; i < operands; ++i)
    inputs.push_back(b.placeholder("x" + std::to_string(i), dtype, Shape{n}));
  AttrMap attrs;
  if (op == "Cast") attrs = {{"SrcT", dtype}, {"DstT", result}};
  const Output y = b.op(op, inputs, attrs, "y");
  b.op(result == DType::Bool ? "LogicalNot" : "Neg", {y}, {}, "z");
  return import_graph(b.graph());
}

Tensor all_kinds(DType dtype, std::int64_t n, unsigned salt) {
  const float special[] = {0.0F,  -0.0F,  INFINITY, -INFINITY, NAN, 1e-42F, -1e-40F,
                           3e38F, -3e38F, 88.7F,    -104.5F,   1,   -1,     2147483648.0F};
  Tensor tensor(dtype, Shape{n});
  std::uint64_t state = salt;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto at = static_cast<std::size_t>(i);
    const auto random = static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) / (1 << 19);
    if (dtype == DType::Float32)
      tensor.data<float>()[at] = state % 5 == 0 ? special[state / 5 % std::size(special)] : random;
    else
      tensor.data<std::int32_t>()[at] = static_cast<std::int32_t>(state >> 32) >> (state % 31);
  }
  return tensor;
}

TEST(RegionsDeviceTest, ElementwiseStepsHaveTheHostsBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime runtime(runtime_options);
  struct Op {
    const char* name;
    int operands;
    DType dtype = DType::Float32, result = DType::Float32;
  };
  // Made of functions of the device's library.
  const std::set<std::string> near{"Exp",
                                   "Tanh",
                                   "Sigmoid",
                                   "Erf",
                                   "Softplus",
                                   "SoftplusGrad",
                                   "Elu",
                                   "Selu",
                                   "braid.SigmoidCrossEntropy",
                                   "braid.SigmoidCrossEntropyGrad"};
  constexpr double kNear = 1e-6;
  constexpr DType f32 = DType::Float32, i32 = DType::Int32;
  const Op ops[] = {{"Exp", 1},
                    {"Log", 1},
                    {"Expm1", 1},
                    {"Log1p", 1},
                    {"Tanh", 1},
                    {"Sigmoid", 1},
                    {"Erf", 1},
                    {"Softplus", 1},
                    {"Elu", 1},
                    {"Selu", 1},
                    {"Relu", 1},
                    {"Relu6", 1},
                    {"LeakyRelu", 1},
                    {"Abs", 1},
                    {"Sign", 1},
                    {"Sqrt", 1},
                    {"Rsqrt", 1},
                    {"Square", 1},
                    {"Reciprocal", 1},
                    {"Softsign", 1},
                    {"Floor", 1},
                    {"Round", 1},
                    {"AddV2", 2},
                    {"Sub", 2},
                    {"Mul", 2},
                    {"RealDiv", 2},
                    {"Maximum", 2},
                    {"Minimum", 2},
                    {"SquaredDifference", 2},
                    {"DivNoNan", 2},
                    {"Xlogy", 2},
                    {"SigmoidGrad", 2},
                    {"TanhGrad", 2},
                    {"EluGrad", 2},
                    {"SoftplusGrad", 2},
                    {"braid.SigmoidCrossEntropy", 2},
                    {"braid.SigmoidCrossEntropyGrad", 3},
                    {"ClipByValue", 3},
                    {"IsNan", 1, f32, DType::Bool},
                    {"Less", 2, f32, DType::Bool},
                    {"NotEqual", 2, f32, DType::Bool},
                    {"Cast", 1, f32, i32},
                    {"Cast", 1, i32, f32},
                    {"Cast", 1, f32, DType::Int64},
                    {"AddV2", 2, i32, i32},
                    {"Mul", 2, i32, i32},
                    {"Abs", 1, i32, i32},
                    {"Maximum", 2, i32, i32}};
  constexpr std::int64_t kElements = 4099;
  for (const Op& op : ops) {
    const Graph graph = negated(op.name, op.operands, op.dtype, op.result, kElements);
    CompileRequest request;
    Interpreter::Feeds named;
    StepRequest step;
    for (int i = 0; i < op.operands; ++i) {
      const std::string name = "x" + std::to_string(i);
      step.feeds.push_back(all_kinds(op.dtype, kElements, 7 + static_cast<unsigned>(i)));
      named[name] = step.feeds.back();
      request.feeds.push_back({name, op.dtype, Shape{kElements}});
    }
    request.fetches = {"z"};
    CompileOptions options;
    options.fusion = true;
    options.domain = Domain::Device;
    options.steps_in_flight = 1;
    const auto program = compile(graph, request, options);
    int regions = 0;
    for (const ProgramOp& p : program->ops) regions += p.op == "braid.Fused";
    EXPECT_EQ(regions, 1) << op.name;
    Instance instance(program, runtime);
    const StepResult got = instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60)));
    const Tensor expected = Interpreter(graph).run(named, {"z"})[0];
    if (near.contains(op.name))
      EXPECT_EQ(difference(expected, got.fetches[0], kNear), "") << op.name;
    else
      EXPECT_EQ(difference(expected, got.fetches[0]), "") << op.name;
  }
}

TEST(RegionsDeviceTest, QuotientsByConstantsHaveTheHostsBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime runtime(runtime_options);
  constexpr std::int64_t kElements = 20011;
  for (const float divisor : {1.41421354F, 3.0F, -0.1F, 7e-9F, 1.99999988F, 9e9F, 1e-20F, INFINITY}) {
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, Shape{kElements});
    b.op("Neg", {b.op("RealDiv", {x, b.constant(Tensor::scalar(divisor))})}, {}, "z");
    const Graph graph = import_graph(b.graph());
    CompileOptions options;
    options.fusion = true;
    options.domain = Domain::Device;
    options.steps_in_flight = 1;
    Instance instance(compile(graph, {{{"x", DType::Float32, Shape{kElements}}}, {"z"}, {}}, options),
                      runtime);
    StepRequest step;
    step.feeds.push_back(all_kinds(DType::Float32, kElements, 3));
    const Interpreter::Feeds named{{"x", step.feeds[0]}};
    const StepResult got = instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60)));
    EXPECT_EQ(difference(Interpreter(graph).run(named, {"z"})[0], got.fetches[0]), "") << divisor;
  }
}

/// Elements of a device's tensor that begins `skipped` elements behind an address of 256 bytes.
Tensor behind(const Tensor& values, std::int64_t skipped, Accelerator& device) {
  const std::size_t offset = static_cast<std::size_t>(skipped) * dtype_size(values.dtype());
  const auto memory = device.allocate(values.bytes() + offset, "inputs");
  device.copy_now(memory.get() + offset, values.raw(), values.bytes());
  return {values.dtype(), values.shape(), std::shared_ptr<std::byte[]>(memory, memory.get() + offset),
          Domain::Device};
}

TEST(RegionsDeviceTest, InputsMayLieAnywhere) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime runtime(runtime_options);
  for (const Shape& shape : {Shape{512, 256}, Shape{64, 1024}, Shape{1 << 20}}) {
    GraphBuilder b;
    const Output x = b.placeholder("x", DType::Float32, shape);
    const Output gates = b.op("Mul", {b.op("Sigmoid", {x}), x});
    b.op(shape.rank() == 2 ? "Softmax" : "Neg", {gates}, {}, "y");
    const Graph graph = import_graph(b.graph());
    CompileRequest request;
    request.feeds = {{"x", DType::Float32, shape}};
    request.fetches = {"y"};
    CompileOptions options;
    options.fusion = true;
    options.domain = Domain::Device;
    const auto program = compile(graph, request, options);
    ASSERT_EQ(program->ops.size(), 1U) << "one region";
    Instance instance(program, runtime);
    Tensor values(DType::Float32, shape);
    for (std::int64_t i = 0; i < values.elements(); ++i)
      values.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i * 37 % 1009) / 500 - 1;
    const Tensor expected = Interpreter(graph).run({{"x", values}}, {"y"})[0];
    for (const std::int64_t skipped : {0, 1, 2, 4}) {
      StepRequest step;
      step.feeds = {behind(values, skipped, *runtime_options.device)};
      const StepResult got =
          instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60)));
      EXPECT_EQ(difference(expected, got.fetches[0], kTolerance), "")
          << shape.to_string() << " behind " << skipped;
    }
  }
}

}  // namespace
}  // namespace braid::testing
