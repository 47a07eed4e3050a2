// First values of rows that a kernel makes: the host's bits (engine/ops/state/initial_rows.h).
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/ops/cuda_runner.h"
#include "tests/engine/ops/state/initial_parts.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

TEST(CudaInitialRows, HaveTheBitsOfTheHost) {
  const std::shared_ptr<Accelerator> device = cuda_device();
  if (!device) GTEST_SKIP() << missing::kCudaDevice;
  device->make_current();
  const StreamRef stream = device->stream("initial values");
  for (const InitialRows& part : initial_parts()) {
    SCOPED_TRACE(text_of(part));
    const std::vector<float> expected = expected_of(part);
    // One number more on both sides: packs that are not aligned, and an end that nobody may write to.
    for (const std::size_t ahead : {0, 1}) {
      std::vector<float> made(expected.size() + 2, 7);
      const std::uint64_t bytes = made.size() * sizeof(float);
      const auto memory = device->allocate(bytes, "a test");
      device->copy_now(memory.get(), made.data(), bytes);
      fill_initial_rows(part, reinterpret_cast<float*>(memory.get()) + ahead, stream);
      device->synchronize(WaitContext::with_timeout(std::chrono::seconds(20)));
      device->copy_now(made.data(), memory.get(), bytes);
      EXPECT_EQ(std::memcmp(made.data() + ahead, expected.data(), expected.size() * sizeof(float)), 0);
      EXPECT_EQ(made.back(), 7);
      if (ahead != 0) EXPECT_EQ(made.front(), 7);
    }
  }
}

}  // namespace
}  // namespace braid::testing
