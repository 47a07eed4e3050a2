// Rows joined by indices that repeat (common/cuda/row_groups.h, optimizer/row_runs.cuh), of so many columns
// that a thread takes several at once: the host's results, of runs within a chunk, over some and over all.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/ops/common/index_groups.h"
#include "tests/engine/ops/cuda_runner.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

struct Rows {
  std::int64_t updates, rows, width;
};

/// Most indices are of a few rows, some of any, some are left out.
Tensor indices_of(const Rows& size) {
  std::mt19937_64 random(static_cast<std::uint64_t>(size.updates));
  Tensor made(DType::Int32, {size.updates});
  for (std::int32_t& index : made.data<std::int32_t>()) {
    const auto kind = random() % 8;
    const auto row = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(size.rows));
    index = kind < 4 ? row % 3 : kind == 7 ? -1 : row;
  }
  return made;
}

TEST(CudaRows, OfManyColumnsAreJoinedAsTheHostDoes) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const Rows& size :
       {Rows{40000, 700, 512}, Rows{9000, 5000, 1028}, Rows{70000, 3, 64}, Rows{20000, 90, 515}}) {
    const Tensor ids = indices_of(size);
    const Tensor whole = random_i64({size.updates, size.width}, 3, -9, 9);
    const Tensor sizes = Tensor::scalar(static_cast<std::int32_t>(size.rows));
    for (const char* op : {"UnsortedSegmentSum", "UnsortedSegmentMax"})
      for (const DType type : {DType::Int32, DType::Int64, DType::Float32, DType::Float64}) {
        SCOPED_TRACE(std::string(op) + " " + std::string(dtype_name(type)) + " of " +
                     std::to_string(size.width) + " columns");
        // Sums of whole numbers are exact in any order.
        const OpCase c{.label = "rows", .inputs = {converted(whole, type), ids, sizes}};
        const OpDef& def = OpRegistry::global().require(op);
        const Results host = run_program(def, c, Domain::Host, 1),
                      device = run_program(def, c, Domain::Device, 1);
        ASSERT_TRUE(device.on_device);
        EXPECT_EQ(to_doubles(host.outputs[0]), to_doubles(device.outputs[0]));
      }
  }
}

/// What a table's gradient adds to the norm of all: rows that are named once, a popular one, and one that all
/// positions name. Steps give the same bits, launched or replayed.
TEST(CudaRows, SquaresAreThoseOfTheHost) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const OpDef& def = OpRegistry::global().require("braid.RowsL2Loss");
  for (const Rows& size : {Rows{300000, 100000, 1}, Rows{40000, 700, 512}, Rows{9000, 5000, 1024},
                           Rows{70000, 1, 64}, Rows{20001, 90, 515}, Rows{31, 4, 3}, Rows{33, 1, 4}}) {
    SCOPED_TRACE(std::to_string(size.updates) + " rows of " + std::to_string(size.width) + " columns");
    const OpCase c{.label = "squares",
                   .inputs = {indices_of(size),
                              converted(random_f64({size.updates, size.width}, 3, -1, 1), DType::Float32)},
                   .attrs = {{"rows", size.rows}, {kSkipNegative, true}}};
    const double host = to_doubles(run_program(def, c, Domain::Host, 1).outputs[0])[0];
    const Results once = run_program(def, c, Domain::Device, 1),
                  often = run_program(def, c, Domain::Device, 4);
    ASSERT_TRUE(once.on_device);
    const double device = to_doubles(once.outputs[0])[0];
    EXPECT_NEAR(device, host, 1e-5 * host);
    EXPECT_EQ(to_doubles(often.outputs[0])[0], device);
  }
}

// Ops whose kernels ask for what they get: such a case on the host costs a step its tables' way.
TEST(CudaRows, UpdatesWithAFactorOrInWiderRowsRunOnTheDevice) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  int seen = 0;
  for (const char* op : {"braid.ApplyOptimizer", "braid.ApplyOptimizerMany", "braid.SparseApplyOptimizer",
                         "braid.SparseApplyOptimizerMany", "braid.SparseApplyGrouped"})
    for (const OpCase& c : all_op_cases().of(op)) {
      if (!c.attrs.get("has_factor", false) && !c.attrs.has("value_offsets")) continue;
      EXPECT_TRUE(run_program(OpRegistry::global().require(op), c, Domain::Device, 1).on_device)
          << op << " " << c.label;
      ++seen;
    }
  EXPECT_GT(seen, 20);
}

}  // namespace
}  // namespace braid::testing
