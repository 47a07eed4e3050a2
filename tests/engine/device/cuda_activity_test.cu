// Sampled busy time against kernels that say themselves how long they took. Skips aloud without a device or
// CUPTI.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "engine/device/activity.h"
#include "engine/device/cuda/cuda_device.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/missing.h"

namespace braid {
namespace {

using namespace std::chrono_literals;

constexpr long long kSpinNs = 400000;
constexpr double kTolerance = 0.02;

__device__ long long now_ns() {
  long long now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// Runs for `ns` and adds what it took to `*took`.
__global__ void spin(long long ns, long long* took) {
  const long long begin = now_ns();
  while (now_ns() - begin < ns) {
  }
  *took += now_ns() - begin;
}

struct Measured {
  DeviceActivity activity;
  double seconds(const std::string& stream) const {
    for (const StreamActivity& row : activity.streams)
      if (row.stream == stream) return row.busy_seconds;
    return -1;
  }
  std::uint64_t pieces(const std::string& stream) const {
    for (const StreamActivity& row : activity.streams)
      if (row.stream == stream) return row.pieces;
    return 0;
  }
};

class CudaActivityTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    device_ = open_cuda({});
    try {
      sampler_ = make_activity_sampler(*device_);
    } catch (const Unavailable& error) {
      GTEST_SKIP() << "SKIPPED: " << error.message();
    }
    took_ = device_->allocate(4 * sizeof(long long), "test");
    for (const char* name : {"compute0", "compute1", "idle"}) device_->stream(name);
  }

  cudaStream_t stream(const char* name) { return cuda::native(device_->stream(name)); }
  long long* took(int i) { return reinterpret_cast<long long*>(took_.get()) + i; }
  double took_seconds(int i) {
    long long ns = 0;
    device_->copy_now(&ns, took(i), sizeof(ns));
    return 1e-9 * static_cast<double>(ns);
  }

  /// One window around `work`, which is over well before its end unless the machine does other things.
  Measured measure(const std::function<void()>& work) {
    device_->fill_zero(took_.get(), 4 * sizeof(long long), device_->stream("compute0"));
    device_->synchronize(WaitContext::with_timeout(60s));
    auto result = std::async(std::launch::async, [this] {
      return sampler_->sample({50ms, 400ms}, std::stop_token());
    });
    std::this_thread::sleep_for(150ms);
    work();
    device_->synchronize(WaitContext::with_timeout(60s));
    return {result.get()};
  }

  std::shared_ptr<Accelerator> device_;
  std::unique_ptr<ActivitySampler> sampler_;
  std::shared_ptr<std::byte[]> took_;
};

TEST_F(CudaActivityTest, BusyTimeOfStreamsIsThatOfTheirKernels) {
  in_some_attempt([&] {
    const Measured measured = measure([&] {
      for (int i = 0; i < 200; ++i) spin<<<1, 1, 0, stream("compute0")>>>(kSpinNs, took(0));
      for (int i = 0; i < 100; ++i) spin<<<1, 1, 0, stream("compute1")>>>(kSpinNs, took(1));
    });
    EXPECT_NEAR(measured.seconds("compute0") / took_seconds(0), 1, kTolerance);
    EXPECT_NEAR(measured.seconds("compute1") / took_seconds(1), 1, kTolerance);
    EXPECT_EQ(measured.pieces("compute0"), 200U);
    EXPECT_EQ(measured.seconds("idle"), 0) << "idle streams are listed";
    // The second stream's kernels run beside the first's.
    EXPECT_NEAR(measured.activity.busy_seconds / took_seconds(0), 1, kTolerance);
    EXPECT_NEAR(measured.activity.overlap_factor(), 1.5, 2 * kTolerance);
    EXPECT_NEAR(measured.activity.window_seconds, 0.4, 0.05);
  });
}

TEST_F(CudaActivityTest, ReplayedNodesKeepTheirNamesAndStreams) {
  const StreamRef origin = device_->stream("compute0"), other = device_->stream("compute1");
  const auto fork = device_->make_event(), join = device_->make_event();
  device_->begin_capture(origin);
  fork->record(origin);
  fork->wait(other);
  begin_device_work("tower/left", "compute0");
  spin<<<1, 1, 0, cuda::native(origin)>>>(kSpinNs, took(0));
  end_device_work();
  begin_device_work("tower/right", "compute1");
  spin<<<1, 1, 0, cuda::native(other)>>>(kSpinNs / 2, took(1));
  end_device_work();
  join->record(other);
  join->wait(origin);
  const auto graph = device_->end_capture(origin);
  in_some_attempt([&] {
    const Measured measured = measure([&] {
      for (int i = 0; i < 100; ++i) graph->launch(origin);
    });
    EXPECT_NEAR(measured.seconds("compute0") / took_seconds(0), 1, kTolerance);
    EXPECT_NEAR(measured.seconds("compute1") / took_seconds(1), 1, kTolerance);
    int left = 0, right = 0;
    for (const ActivitySlice& slice : measured.activity.slices) {
      left += slice.name == "tower/left";
      right += slice.name == "tower/right";
    }
    EXPECT_EQ(left, 100);
    EXPECT_EQ(right, 100);
  });
}

TEST_F(CudaActivityTest, CopiesOfInputsAreCountedAndHowMuchOfThemIsHidden) {
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
  constexpr int kCopies = 10;
  const auto host = device_->allocate_pinned(kBytes, "test"), there = device_->allocate(kBytes, "test");
  const auto copy = [&](const char* on) {
    for (int i = 0; i < kCopies; ++i) device_->copy(there.get(), host.get(), kBytes, device_->stream(on));
  };
  copy("h2d");
  in_some_attempt([&] {
    const CopyActivity found = measure([&] {
                                 spin<<<1, 1, 0, stream("compute0")>>>(100 * kSpinNs, took(0));
                                 copy("h2d");
                                 device_->synchronize(WaitContext::with_timeout(60s));
                                 copy("h2d");
                                 device_->synchronize(WaitContext::with_timeout(60s));
                                 copy("comm");
                               }).activity.inputs;
    EXPECT_EQ(found.copies, 2U * kCopies) << "those of other streams are not inputs";
    EXPECT_EQ(found.bytes, 2 * kCopies * kBytes);
    EXPECT_GT(found.seconds, 0);
    EXPECT_NEAR(found.hidden_seconds / found.seconds, 0.5, 0.1);
  });
}

TEST_F(CudaActivityTest, NothingIsRecordedOutsideOfWindows) {
  spin<<<1, 1, 0, stream("compute0")>>>(kSpinNs, took(0));
  device_->synchronize(WaitContext::with_timeout(60s));
  const Measured measured = measure([] {});
  EXPECT_EQ(measured.pieces("compute0"), 0U);
  EXPECT_EQ(measured.activity.busy_seconds, 0);
}

}  // namespace
}  // namespace braid
