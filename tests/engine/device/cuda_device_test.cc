// A CUDA device behind the Accelerator interface: its streams in the suite of all streams, captured work, and
// its memory. Skips aloud without a device.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/cuda/event_pool.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/gather_rows.h"
#include "tests/engine/device/stream_conformance.h"
#include "tests/support/eventually.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

Accelerator& device() {
  static const std::shared_ptr<Accelerator> device = open_cuda({});
  return *device;
}

void CUDART_CB run_once(void* work) {
  const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(work));
  (*function)();
}

void CUDART_CB run_again(void* work) { (*static_cast<std::function<void()>*>(work))(); }

struct CudaHarness {
  struct Stream {
    StreamRef ref;
    ~Stream() {
      eventually([&] { return cudaStreamQuery(cuda::native(ref)) != cudaErrorNotReady; });
    }
  };
  struct Event {
    std::unique_ptr<DeviceEvent> event = device().make_event();
  };
  static std::unique_ptr<Stream> make(const std::string& name) {
    return std::make_unique<Stream>(Stream{device().stream(name)});
  }
  static void launch(Stream& s, std::function<void()> f) {
    BRAID_CUDA_CHECK(
        cudaLaunchHostFunc(cuda::native(s.ref), run_once, new std::function<void()>(std::move(f))));
  }
  static void record(Stream& s, Event& e, std::uint64_t) { e.event->record(s.ref); }
  static void wait(Stream& s, Event& e, std::uint64_t, const WaitContext&) { e.event->wait(s.ref); }
  static void synchronize(Stream& s, const WaitContext&) {
    cuda::await_stream(cuda::native(s.ref), WaitContext::with_timeout(std::chrono::seconds(60)), "a stream");
  }
};

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  }
  static void synchronize() { device().synchronize(WaitContext::with_timeout(std::chrono::seconds(60))); }
  static std::uint64_t free_bytes() {
    std::size_t free = 0, total = 0;
    BRAID_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  template <class Refusal = OutOfMemory>
  static std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const Refusal& error) {
      return error.message();
    }
    return "not refused";
  }
};

}  // namespace

template <>
class StreamOrder<CudaHarness> : public StreamTests<CudaHarness> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, StreamOrder, CudaHarness);
// Deadlines, stops and errors of a device's work are its runner's.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StreamControl);

namespace {

TEST_F(CudaDeviceTest, CapturedWorkOfTwoStreamsRunsAtEachLaunchAndNotBefore) {
  const StreamRef a = device().stream("a"), b = device().stream("b");
  const auto forked = device().make_event(), joined = device().make_event();
  int seen = 0, ran = 0;
  std::function<void()> first = [&] { ++ran; }, second = [&] { seen = ran; };
  device().begin_capture(a);
  BRAID_CUDA_CHECK(cudaLaunchHostFunc(cuda::native(a), run_again, &first));
  forked->record(a);
  forked->wait(b);
  BRAID_CUDA_CHECK(cudaLaunchHostFunc(cuda::native(b), run_again, &second));
  joined->record(b);
  joined->wait(a);
  const auto graph = device().end_capture(a);
  synchronize();
  EXPECT_EQ(ran, 0);
  for (int launch = 1; launch <= 3; ++launch) {
    graph->launch(a);
    synchronize();
    EXPECT_EQ(seen, launch);
  }
}

TEST_F(CudaDeviceTest, WhatCannotBeCapturedIsRefusedAndTheStreamGoesOn) {
  const StreamRef stream = device().stream("a");
  device().begin_capture(stream);
  EXPECT_NE(cudaStreamSynchronize(cuda::native(stream)), cudaSuccess);
  EXPECT_THROW(device().end_capture(stream), DeviceError);
  device().abandon_capture(stream);
  cudaGetLastError();
  bool ran = false;
  BRAID_CUDA_CHECK(
      cudaLaunchHostFunc(cuda::native(stream), run_once, new std::function<void()>([&] { ran = true; })));
  synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(CudaDeviceTest, AnEventThatIsGivenBackIsTakenAgain) {
  cuda::EventPool pool;
  cuda::Event one = pool.take();
  const cuda::Event two = pool.take();
  EXPECT_NE(one.get(), two.get());
  const cudaEvent_t handle = one.get();
  pool.give_back(std::move(one));
  EXPECT_EQ(pool.take().get(), handle);
}

TEST_F(CudaDeviceTest, StreamsAreKnownByNameAndPriority) {
  EXPECT_EQ(device().stream("a").native, device().stream("a").native);
  EXPECT_NE(device().stream("a").native, device().stream("b").native);
  EXPECT_NE(device().stream("a").native, device().stream("a", 1).native);
  int usual = 0, high = 0;
  BRAID_CUDA_CHECK(cudaStreamGetPriority(cuda::native(device().stream("a")), &usual));
  BRAID_CUDA_CHECK(cudaStreamGetPriority(cuda::native(device().stream("a", 1)), &high));
  EXPECT_LT(high, usual) << "CUDA's lower numbers go first";
}

TEST_F(CudaDeviceTest, MemoryIsZeroedAlignedAndCountedUntilItsLastReferenceGoes) {
  const std::uint64_t before = device().bytes_in_use();
  {
    const auto one = device().allocate(1, "one"), two = device().allocate(1000, "two");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.get()) % 256, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(two.get()) % 256, 0U);
    EXPECT_EQ(device().bytes_in_use(), before + 1001);
    std::vector<std::byte> host(1000, std::byte{1});
    device().copy_now(host.data(), two.get(), 1000);
    EXPECT_EQ(std::count(host.begin(), host.end(), std::byte{0}), 1000);
    const std::shared_ptr<std::byte[]> kept = two;
    EXPECT_EQ(device().bytes_in_use(), before + 1001);
  }
  EXPECT_EQ(device().bytes_in_use(), before);
  EXPECT_NE(device().allocate(0, "nothing"), nullptr);
}

TEST_F(CudaDeviceTest, UsedMemoryIsZeroedWhenItIsTakenAgain) {
  for (int round = 0; round < 3; ++round) {
    const auto memory = device().allocate(kMiB, "round");
    std::vector<std::byte> host(kMiB);
    device().copy_now(host.data(), memory.get(), kMiB);
    ASSERT_EQ(std::count(host.begin(), host.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kMiB));
    std::fill(host.begin(), host.end(), std::byte{7});
    device().copy_now(memory.get(), host.data(), kMiB);
  }
}

TEST_F(CudaDeviceTest, CopiesInStreamOrderGoThroughPageLockedMemory) {
  const StreamRef stream = device().stream("copies");
  const auto from = device().allocate_pinned(64, "from"), to = device().allocate_pinned(64, "to");
  const auto there = device().allocate(64, "there");
  std::memset(from.get(), 5, 64);
  device().copy(there.get(), from.get(), 64, stream);
  device().copy(to.get(), there.get(), 64, stream);
  device().fill_zero(there.get(), 32, stream);
  synchronize();
  EXPECT_EQ(to[63], std::byte{5});
  std::byte half[64];
  device().copy_now(half, there.get(), 64);
  EXPECT_EQ(half[31], std::byte{0});
  EXPECT_EQ(half[32], std::byte{5});
}

TEST_F(CudaDeviceTest, SingleRowsAreBroughtInAnyOrderAndOften) {
  constexpr std::int64_t kRows = 5000, kWidth = 33;
  std::vector<float> values(kRows * kWidth);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto there = device().allocate(values.size() * sizeof(float), "table");
  device().copy_now(there.get(), values.data(), values.size() * sizeof(float));
  std::vector<std::int64_t> rows;  // of more than one block
  for (std::int64_t k = 0; k < 70000; ++k) rows.push_back((k * 7919) % kRows);
  std::vector<float> found(rows.size() * kWidth);
  gather_rows_now(device(), found.data(), there.get(), rows, kWidth * sizeof(float));
  for (std::size_t k = 0; k < rows.size(); ++k)
    for (std::size_t c = 0; c < kWidth; ++c)
      ASSERT_EQ(found[k * kWidth + c], values[static_cast<std::size_t>(rows[k]) * kWidth + c]) << k;
  gather_rows_now(device(), nullptr, there.get(), {}, kWidth * sizeof(float));
}

TEST_F(CudaDeviceTest, OverTheLimitTheLargestHoldersAreNamed) {
  AcceleratorOptions options;
  options.memory_limit = 10 * kMiB;
  const auto limited = open_cuda(options);
  const auto small = limited->allocate(kMiB, "small"),
             large = limited->allocate(6 * kMiB, "variables of 'm'");
  const std::string why = refusal([&] { limited->allocate(4 * kMiB, "a step"); });
  EXPECT_THAT(why, HasSubstr("cuda:0: no memory for 4194304 bytes of a step: the limit is 10485760 bytes"));
  EXPECT_THAT(why, HasSubstr("7340032 are in use; largest: variables of 'm' 6291456, small 1048576"));
  EXPECT_EQ(limited->bytes_in_use(), 7 * kMiB) << "a refusal holds nothing";
  EXPECT_NE(limited->allocate(3 * kMiB, "the rest"), nullptr);
}

TEST_F(CudaDeviceTest, MoreThanTheDeviceHasIsRefusedAndNothingIsLost) {
  const std::uint64_t before = device().bytes_in_use();
  const std::string why = refusal([] { device().allocate(std::uint64_t{1} << 45, "everything"); });
  EXPECT_THAT(why, HasSubstr("bytes of everything: "));
  EXPECT_THAT(why, HasSubstr("bytes are free"));
  EXPECT_EQ(device().bytes_in_use(), before);
  EXPECT_NE(device().allocate(kMiB, "after"), nullptr);
}

TEST_F(CudaDeviceTest, AWaitForADeviceThatDoesNotAnswerEndsAndTheMemoryIsNotUsedAgain) {
  AcceleratorOptions options;
  options.wait_timeout = std::chrono::milliseconds(200);
  const auto impatient = open_cuda(options);
  std::shared_ptr<std::byte[]> memory = impatient->allocate(kMiB, "a busy one");
  const std::byte* const place = memory.get();
  std::atomic<bool> go_on{false};
  std::function<void()> hang = [&] {
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  BRAID_CUDA_CHECK(cudaLaunchHostFunc(cuda::native(impatient->stream("busy")), run_again, &hang));
  const std::string why = refusal<DeadlineExceeded>(
      [&] { impatient->synchronize(WaitContext::with_timeout(std::chrono::milliseconds(200))); });
  EXPECT_THAT(why, HasSubstr("cuda:0: work of the device: deadline exceeded"));
  memory.reset();
  go_on = true;
  impatient->synchronize(WaitContext::with_timeout(std::chrono::seconds(60)));
  EXPECT_NE(impatient->allocate(kMiB, "another").get(), place);
}

TEST_F(CudaDeviceTest, MemoryGrowsUnlessItIsTakenUpFront) {
  synchronize();
  const std::uint64_t before = free_bytes();
  AcceleratorOptions options;
  options.memory_limit = 512 * kMiB;
  {
    const auto grows = open_cuda(options);
    EXPECT_GT(free_bytes() + 128 * kMiB, before);
    { const auto some = grows->allocate(256 * kMiB, "some"); }
    EXPECT_GT(free_bytes() + 128 * kMiB, before) << "what is given back goes to the device";
  }
  options.memory_up_front = true;
  {
    const auto taken = open_cuda(options);
    EXPECT_LE(free_bytes() + 512 * kMiB, before);
    { const auto some = taken->allocate(256 * kMiB, "some"); }
    EXPECT_LE(free_bytes() + 512 * kMiB, before) << "what is given back is kept";
    const auto all = taken->allocate(512 * kMiB, "all of it");
    EXPECT_LE(free_bytes() + 512 * kMiB, before);
  }
  EXPECT_GT(free_bytes() + 128 * kMiB, before) << "it goes with the device";
  options.memory_limit = std::uint64_t{1} << 45;
  EXPECT_THAT(refusal([&] { open_cuda(options); }), HasSubstr("bytes of the pool: "));
}

}  // namespace
}  // namespace braid::testing
