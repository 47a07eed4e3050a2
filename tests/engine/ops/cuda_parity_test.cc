// CUDA kernels against CPU kernels: every case of every op that has both, compiled into a program of the
// device and one of the host. float64 cases also as float32. What `supports` leaves to the CPU is counted and
// named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "base/error.h"
#include "tests/engine/ops/cuda_runner.h"
#include "tests/engine/ops/half_cases.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

void expect_close(const Tensor& expected, const Tensor& actual, double tolerance) {
  ASSERT_EQ(expected.dtype(), actual.dtype());
  if (is_half(expected.dtype()))
    return expect_close(cast(expected, DType::Float32), cast(actual, DType::Float32), tolerance);
  ASSERT_EQ(expected.shape(), actual.shape());
  if (expected.dtype() != DType::Float32 && expected.dtype() != DType::Float64) {
    EXPECT_EQ(std::memcmp(expected.raw(), actual.raw(), expected.bytes()), 0);
    return;
  }
  const std::vector<double> a = to_doubles(expected), b = to_doubles(actual);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    ASSERT_LE(std::abs(a[i] - b[i]), tolerance * (1 + std::abs(a[i])))
        << "element " << i << ": " << a[i] << ", CUDA " << b[i];
  }
}

enum class Outcome { Compared, OnCpu, Folded };

Outcome compare(const OpDef& def, const OpCase& op_case, double tolerance,
                Products products = Products::Exact) {
  constexpr int kSteps = 6;
  const Results cuda = run_program(def, op_case, Domain::Device, kSteps, 1, products);
  if (!cuda.runs) return Outcome::Folded;
  if (!cuda.on_device) return Outcome::OnCpu;
  const Results cpu = run_program(def, op_case, Domain::Host, kSteps);
  EXPECT_EQ(cpu.outputs.size(), cuda.outputs.size());
  for (std::size_t o = 0; o < cpu.outputs.size(); ++o) {
    SCOPED_TRACE(fmt::format("output {}", o));
    expect_close(cpu.outputs[o], cuda.outputs[o], tolerance);
  }
  for (std::size_t v = 0; v < cpu.variables.size(); ++v) {
    SCOPED_TRACE(fmt::format("variable {}", v));
    expect_close(cpu.variables[v], cuda.variables[v], tolerance);
  }
  return Outcome::Compared;
}

OpCase narrowed(OpCase op_case) {
  for (Tensor& t : op_case.inputs)
    if (t.dtype() == DType::Float64) t = converted(t, DType::Float32);
  return op_case;
}

bool has_doubles(const OpCase& op_case) {
  return std::any_of(op_case.inputs.begin(), op_case.inputs.end(),
                     [](const Tensor& t) { return t.dtype() == DType::Float64; });
}

std::vector<std::string> ops_with_cuda() {
  std::vector<std::string> names;
  for (const OpDef* def : OpRegistry::global().all())
    if (def->cuda && !all_op_cases().of(def->name).empty()) names.push_back(def->name);
  if (names.empty()) names.push_back("none");  // a build without CUDA
  return names;
}

class CudaParity : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaParity, AgreesWithTheCpu) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const OpDef& def = OpRegistry::global().require(GetParam());
  int compared = 0, folded = 0;
  std::vector<std::string> on_cpu;
  const auto check = [&](const OpCase& c, const std::string& label, double tolerance) {
    SCOPED_TRACE(fmt::format("[{}] case '{}'", def.name, label));
    try {
      switch (compare(def, c, tolerance)) {
        case Outcome::Compared:
          ++compared;
          break;
        case Outcome::Folded:
          ++folded;
          break;
        case Outcome::OnCpu:
          on_cpu.push_back(label);
          break;
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  };
  for (const OpCase& c : all_op_cases().of(def.name)) {
    check(c, c.label, has_doubles(c) ? 1e-9 : std::max(2e-5, c.float32_tolerance));
    if (has_doubles(c) && c.float32_tolerance != 0)
      check(narrowed(c), c.label + ", float32", 2 * c.float32_tolerance);
  }
  RecordProperty("compared", compared);
  if (!on_cpu.empty())
    fmt::print("{}: {} cases compared, {} on the CPU: {}\n", def.name, compared, on_cpu.size(),
               fmt::join(on_cpu, "; "));
  EXPECT_GT(compared + folded, 0) << "no case reached the CUDA kernel";
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaParity, ::testing::ValuesIn(ops_with_cuda()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(CudaTf32, ProductsAgreeWithTheCpuToTheRoundingOfTheirInputs) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  constexpr double kTolerance = 1e-2;  // sums of hundreds of products, each within 2^-10
  for (const char* op :
       {"MatMul", "BatchMatMulV2", "braid.FusedMatMul", "braid.PairDots", "braid.PairDotsGrad"}) {
    int compared = 0;
    for (const OpCase& c : all_op_cases().of(op)) {
      if (!has_doubles(c)) continue;
      SCOPED_TRACE(fmt::format("[{}] case '{}'", op, c.label));
      if (compare(OpRegistry::global().require(op), narrowed(c), kTolerance, Products::Tf32) ==
          Outcome::Compared)
        ++compared;
    }
    EXPECT_GT(compared, 0) << op;
  }
}

TEST(CudaHalves, OpsThatTakeThemAgreeWithTheCpu) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const OpDef* def : half_ops_of_registry()) {
    if (!def->cuda || !has_half_kernel_on_cuda(*def)) continue;
    int compared = 0;
    for (const DType half : {DType::Float16, DType::BFloat16})
      for (const OpCase& c : all_op_cases().of(def->name)) {
        if (!c.attrs.get<std::string>("columns", "").empty()) continue;  // of float32 only
        if (def->name == "Einsum" && c.inputs.size() < 2) continue;
        for (const bool narrow : {false, true}) {
          const auto made = half_case(*def, c, half, narrow);
          if (!made) continue;
          SCOPED_TRACE(fmt::format("[{}] case '{}' of {}", def->name, c.label, dtype_name(half)));
          const double step = half == DType::Float16 ? 1e-3 : 8e-3;  // a rounding, and sums in another order
          try {
            const double sums = std::max(5e-5, 2 * c.float32_tolerance);
            if (compare(*def, made->halves, made->rounded.empty() ? sums : step) == Outcome::Compared)
              ++compared;
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
          }
        }
      }
    EXPECT_GT(compared, 0) << def->name;
  }
}

TEST(CudaMeasuredProducts, AgreeWithTheCpuAndStayTheSameInAProcess) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const char* op : {"MatMul", "BatchMatMulV2", "braid.FusedMatMul", "braid.ProductUpdate"}) {
    const OpDef& def = OpRegistry::global().require(op);
    for (const OpCase& c : all_op_cases().of(op)) {
      SCOPED_TRACE(fmt::format("[{}] case '{}'", op, c.label));
      compare(def, narrowed(c), std::max(1e-3, 2 * c.float32_tolerance), Products::Measured);
      const auto run = [&] {
        return run_program(def, narrowed(c), Domain::Device, 2, 1, Products::Measured);
      };
      const Results once = run(), again = run();
      for (std::size_t o = 0; o < once.outputs.size(); ++o)
        EXPECT_EQ(std::memcmp(once.outputs[o].raw(), again.outputs[o].raw(), once.outputs[o].bytes()), 0);
      for (std::size_t v = 0; v < once.variables.size(); ++v)
        EXPECT_EQ(std::memcmp(once.variables[v].raw(), again.variables[v].raw(), once.variables[v].bytes()),
                  0);
    }
  }
}

/// The text of the error that the op's kernel on the device finds.
std::string device_error(const char* op, const OpCase& op_case) {
  try {
    run_program(OpRegistry::global().require(op), op_case, Domain::Device, 1);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

TEST(CudaErrors, CheckNumericsNamesTheElement) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  OpCase bad{.label = "infinite", .inputs = {random_f64({70}, 1)}, .attrs = {{"message", "loss"}}};
  bad.inputs[0].data<double>()[37] = std::numeric_limits<double>::infinity();
  const std::string error = device_error("CheckNumerics", bad);
  EXPECT_NE(error.find("loss : element 37 is not a finite number"), std::string::npos) << error;
}

TEST(CudaErrors, IntegersAreNotDividedByZero) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const OpCase bad{.label = "zero", .inputs = {i64({2, 2}, {1, 2, 3, 4}), i64({2}, {1, 0})}};
  for (const char* op : {"Div", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod"}) {
    const std::string error = device_error(op, bad);  // elements 1 and 3
    EXPECT_NE(error.find(" is not a finite number"), std::string::npos) << op << ": " << error;
  }
}

TEST(CudaErrors, IndicesOutOfRangeAreReported) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const OpCase gather{.label = "gather",
                      .inputs = {random_f64({2, 3}, 1), axes({2, 3}), i32({}, {1})},
                      .attrs = {{"batch_dims", 1}}};
  const OpCase product{
      .label = "product",
      .inputs = {i64({2, 2}, {0, 0, 1, 5}), random_f64({2}, 1), i64({2}, {2, 4}), random_f64({4, 3}, 2)}};
  EXPECT_NE(device_error("braid.BatchGather", gather).find("index 3 is not in [0, 3)"), std::string::npos);
  EXPECT_NE(device_error("SparseTensorDenseMatMul", product).find("index 5 is not in [0, 4)"),
            std::string::npos);
}

TEST(CudaErrors, IndicesOfNoRowAreReportedHoweverTheyAreSorted) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const std::int64_t n : {3, 2048, 8193, 16'384, 16'385})
    for (const std::int64_t rows : {40LL, 1LL << 30})  // keys of either size
      for (const std::int64_t bad : std::vector<std::int64_t>{-1, rows, -(1LL << 40)}) {
        OpCase c{.label = "bad",
                 .inputs = {axes({2, 0}), random_i64({n}, 1, 0, 40)},
                 .attrs = {{"rows", std::vector<std::int64_t>{3, rows}}}};
        c.inputs[1].data<std::int64_t>()[static_cast<std::size_t>(n - 1)] = bad;
        EXPECT_NE(
            device_error("braid.GroupRows", c).find(fmt::format("index {} is not in [0, {})", bad, rows)),
            std::string::npos)
            << n << " indices of " << rows << " rows";
      }
  OpCase update{.label = "update",
                .inputs = {converted(random_f64({4, 3}, 1), DType::Float32), axes({3, 4}),
                           converted(random_f64({2, 3}, 2), DType::Float32)},
                .attrs = {{"kind", "SGD"}},
                .variables = {0}};
  EXPECT_NE(device_error("braid.SparseApplyOptimizer", update).find("index 4 is not in [0, 4)"),
            std::string::npos);
}

TEST(CudaUpdates, GroupingRowsAheadChangesNoBit) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const char* op : {"braid.SparseApplyOptimizer", "braid.SparseApplyOptimizerMany"})
    for (const OpCase& c : all_op_cases().of(op)) {
      SCOPED_TRACE(fmt::format("[{}] case '{}'", op, c.label));
      const OpDef& def = OpRegistry::global().require(op);
      const Results together = run_program(def, c, Domain::Device, 4, 1);
      const Results apart = run_program(def, c, Domain::Device, 4, 3);
      ASSERT_TRUE(together.on_device && apart.on_device);
      ASSERT_EQ(together.variables.size(), apart.variables.size());
      for (std::size_t v = 0; v < together.variables.size(); ++v)
        EXPECT_EQ(
            std::memcmp(together.variables[v].raw(), apart.variables[v].raw(), together.variables[v].bytes()),
            0)
            << "variable " << v;
    }
}

TEST(CudaErrors, SegmentsThatFallAreReported) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const Tensor rows = random_f64({4, 3}, 1), indices = axes({3, 0, 1}), ids = axes({1, 2, 0});
  for (const std::string op : {"SparseSegmentSum", "SparseSegmentMean"}) {
    const OpCase forward{.label = "forward", .inputs = {rows, indices, ids, i32({}, {3})}};
    const OpCase backward{.label = "backward", .inputs = {rows, indices, ids, i32({}, {4})}};
    const std::string falls = "index 2 is not in [0, 1)";  // after it comes 0
    EXPECT_NE(device_error((op + "WithNumSegments").c_str(), forward).find(falls), std::string::npos) << op;
    EXPECT_NE(device_error((op + "Grad").c_str(), backward).find(falls), std::string::npos) << op;
  }
}

TEST(CudaErrors, AnIndexIntoNothingIsReported) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const OpCase dense{.label = "dense", .inputs = {i32({1}, {0}), i32({1}, {0}), f64({}, {1}), f64({}, {2})}};
  EXPECT_NE(device_error("SparseToDense", dense).find("index 0 is not in [0, 0)"), std::string::npos);
}

/// The names in backticks in the list of ops without CUDA kernels.
std::set<std::string> documented_host_ops() {
  std::ifstream file(BRAID_SOURCE_DIR "/docs/design/adding_an_op.md");
  std::set<std::string> names;
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) in_section = line == "### Ops without a CUDA kernel";
    const bool in_list = line.starts_with("* ") || line.starts_with("  ");
    if (!in_section || !in_list) continue;
    for (std::size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const std::size_t end = line.find('`', at + 1);
      names.insert(line.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  return names;
}

TEST(CudaCoverage, OpsWithoutCudaKernelAreThoseOfTheList) {
  const std::set<std::string> documented = documented_host_ops();
  std::set<std::string> undocumented, with_kernel = documented;
  for (const OpDef* def : OpRegistry::global().all()) {
    if (!def->cpu || def->cuda) continue;
    if (!documented.contains(def->name)) undocumented.insert(def->name);
    with_kernel.erase(def->name);
  }
  EXPECT_TRUE(undocumented.empty()) << ::testing::PrintToString(undocumented);
  EXPECT_TRUE(with_kernel.empty()) << ::testing::PrintToString(with_kernel);
}

}  // namespace
}  // namespace braid::testing
