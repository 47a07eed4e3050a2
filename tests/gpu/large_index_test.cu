// Positions in tensors that 32 bits do not count: kernels take positions apart by divisions of 32 bits where
// these do, and no test can afford the tensors where they do not. Skips aloud without a device.
#include <gtest/gtest.h>

#include <vector>

#include "engine/device/accelerator.h"
#include "engine/ops/common/cuda/axes.cuh"
#include "engine/ops/common/cuda/elementwise.cuh"
#include "tests/support/missing.h"

namespace braid {
namespace {

constexpr std::int64_t kFour = std::int64_t{1} << 32;
constexpr std::int64_t kInner = kFour + 6;  // in 32 bits 6

__global__ void locate(cuda::DeviceBroadcast plan, const std::int64_t* positions, std::int64_t* found) {
  std::int64_t at[2];
  plan.locate(positions[threadIdx.x], at);
  found[2 * threadIdx.x] = at[0];
  found[2 * threadIdx.x + 1] = at[1];
}

__global__ void offset(cuda::DeviceAxes axes, const std::int64_t* indices, std::int64_t* found) {
  found[threadIdx.x] = axes.offset(indices[threadIdx.x]);
}

class LargeIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    device_ = open_cuda({});
  }

  /// What kernel(argument, ...) finds for each of the positions, `each` numbers a position.
  template <class Kernel, class Argument>
  std::vector<std::int64_t> found(Kernel kernel, const Argument& argument,
                                  const std::vector<std::int64_t>& positions, std::size_t each) {
    std::vector<std::int64_t> result(positions.size() * each);
    const auto in = device_->allocate(positions.size() * sizeof(std::int64_t), "positions");
    const auto out = device_->allocate(result.size() * sizeof(std::int64_t), "found");
    device_->copy_now(in.get(), positions.data(), positions.size() * sizeof(std::int64_t));
    cuda::launch(kernel, 1, static_cast<unsigned>(positions.size()), 0, device_->stream("test"), argument,
                 reinterpret_cast<const std::int64_t*>(in.get()), reinterpret_cast<std::int64_t*>(out.get()));
    device_->synchronize(WaitContext::with_timeout(std::chrono::seconds(60)));
    device_->copy_now(result.data(), out.get(), result.size() * sizeof(std::int64_t));
    return result;
  }

  std::shared_ptr<Accelerator> device_;
};

TEST_F(LargeIndexTest, BroadcastsOverAxesOfMoreThan32BitsFindTheirOperands) {
  const Shape whole{3, kInner}, column{3, 1};
  cuda::DeviceBroadcast plan;
  ASSERT_TRUE(plan.from(BroadcastPlan({&whole, &column}, whole)));
  const std::vector<std::int64_t> positions{0,          7,      kFour - 1,      kFour,
                                            kInner - 1, kInner, 2 * kInner + 5, 3 * kInner - 1};
  std::vector<std::int64_t> expected;
  for (const std::int64_t i : positions) expected.insert(expected.end(), {i, i / kInner});
  EXPECT_EQ(found(locate, plan, positions, 2), expected);
}

TEST_F(LargeIndexTest, BroadcastsOfMoreThan32BitsWithShortAxesDoToo) {
  const Shape whole{kFour, 7}, row{7};
  cuda::DeviceBroadcast plan;
  ASSERT_TRUE(plan.from(BroadcastPlan({&whole, &row}, whole)));
  const std::vector<std::int64_t> positions{6, 7, kFour - 1, kFour, 7 * kFour - 1};
  std::vector<std::int64_t> expected;
  for (const std::int64_t i : positions) expected.insert(expected.end(), {i, i % 7});
  EXPECT_EQ(found(locate, plan, positions, 2), expected);
}

TEST_F(LargeIndexTest, AxesOfMoreThan32BitsHaveTheirOffsets) {
  cuda::DeviceAxes axes;
  ASSERT_TRUE(axes.add(kInner, 2));
  ASSERT_TRUE(axes.add(5, -1));
  const std::vector<std::int64_t> indices{0, 7, kFour - 1, kFour, kInner - 1, kInner, 4 * kInner + 3};
  std::vector<std::int64_t> expected;
  for (const std::int64_t i : indices) expected.push_back(i % kInner * 2 - i / kInner);
  EXPECT_EQ(found(offset, axes, indices, 1), expected);
}

}  // namespace
}  // namespace braid
