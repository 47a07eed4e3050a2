// Rows joined by indices that repeat (common/cuda/row_groups.h), of so many columns that a thread takes
// several at once: the host's results, of runs within a chunk, over some and over all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

}  // namespace
}  // namespace braid::testing
