// Jobs on GPUs: how many there are, and how near their losses are to the CPU's.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "engine/device/accelerator.h"
#include "tests/integration/run.h"

#define REQUIRE_GPUS(n)          \
  if (cuda_device_count() < (n)) \
  GTEST_SKIP() << "SKIPPED: needs " << (n) << " GPUs, there are " << cuda_device_count()

namespace braid::integration {

/// Without TF32, whose rounding is another matter.
inline Job on_gpu(const Job& job) { return job.with({"runtime.device=CUDA", "runtime.tf32=false"}); }

template <class A, class B>
double largest_relative_difference(const A& a, const B& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]) / std::abs(static_cast<double>(a[i])));
  return worst;
}

}  // namespace braid::integration
