// Whatever the streams and however long kernels take: the bits of training on the device are those of one
// stream. Before every kernel of every op a kernel spins for a random time; captured graphs keep the times of
// their capture.
#include <gtest/gtest.h>

#include <random>

#include "base/cuda/check.h"
#include "bench/gpu/branch_step.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/op.h"

namespace braid {
namespace {

constexpr unsigned kMostNs = 60'000;
constexpr int kSteps = 20;

bool g_delays = false;
std::minstd_rand g_random(7);

__global__ void spin(unsigned ns) {
  unsigned long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < ns);
}

void delay(StreamRef stream) {
  if (!g_delays || g_random() % 3 != 0) return;
  spin<<<1, 1, 0, cuda::native(stream)>>>(g_random() % kMostNs);
  BRAID_CUDA_CHECK(cudaGetLastError());
}

/// Kernels that are prepared from now on may be delayed.
void delay_every_op() {
  static const bool done = [] {
    for (const OpDef* def : OpRegistry::global().all()) {
      if (!def->cuda) continue;
      const_cast<OpDef*>(def)->cuda = [prepare = def->cuda](const PrepareContext& context) {
        PreparedKernel kernel = prepare(context);
        if (kernel.run)
          kernel.run = [run = kernel.run](const KernelArgs& args) {
            delay(args.stream);
            run(args);
          };
        return kernel;
      };
    }
    return true;
  }();
  (void)done;
}

class RandomDelaysTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "SKIPPED: there is no CUDA device";
    device_ = open_cuda({});
    delay_every_op();
  }
  void TearDown() override { g_delays = false; }

  std::vector<float> losses(StreamPolicy policy, int streams, BatchSiblings batching, bool graphs) {
    const BranchTraining training =
        make_branch_training({GetParam(), 64}, policy == StreamPolicy::User ? streams : 0);
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.policy = policy;
    options.streams.count = streams;
    options.batch_siblings = batching;
    Runtime runtime(branch_runtime(device_, graphs));
    BranchSteps steps(training, compile(training.graph.graph, training.request, options), runtime);
    steps.run(kSteps);
    return steps.losses();
  }

  std::shared_ptr<Accelerator> device_;
};

TEST_P(RandomDelaysTest, S1_ManyStreamsGiveTheBitsOfOne) {
  for (const BatchSiblings batching : {BatchSiblings::Off, BatchSiblings::AcrossScopes}) {
    g_delays = false;
    const std::vector<float> expected = losses(StreamPolicy::None, 1, batching, true);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    ASSERT_NE(expected.front(), expected.back());
    g_delays = true;
    for (const StreamPolicy policy : {StreamPolicy::User, StreamPolicy::Full, StreamPolicy::Cost})
      for (const int streams : {2, 4, 8})
        for (const bool graphs : {true, false})
          EXPECT_EQ(losses(policy, streams, batching, graphs), expected)
              << stream_policy_name(policy) << " on " << streams << (graphs ? ", graph" : ", launched")
              << (batching == BatchSiblings::Off ? "" : ", siblings batched");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomDelaysTest, ::testing::Values("towers8", "mmoe8x4", "dlrm26"));

}  // namespace
}  // namespace braid
