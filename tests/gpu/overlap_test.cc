// S2 and S6 on a device: streams of a captured step overlap where branches are independent, and nothing of
// the step crosses the bus but its inputs and results.
#include <gtest/gtest.h>

#include "engine/compile/compile.h"
#include "engine/program/program.h"
#include "tests/gpu/branch_step.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/missing.h"

namespace braid {
namespace {

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    device_ = open_cuda({});
    training_ = make_branch_training({"towers8", 256}, 0);
  }

  std::shared_ptr<const Program> compiled(StreamPolicy policy, int streams) const {
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.policy = policy;
    options.streams.count = streams;
    return compile(training_.graph.graph, training_.request, options);
  }

  std::shared_ptr<Accelerator> device_;
  BranchTraining training_;
};

TEST_F(OverlapTest, S2_IndependentBranchesOverlapAndOneStreamDoesNot) {
  // What else runs on the host or the device moves the times.
  in_some_attempt([&] {
    std::unique_ptr<ActivitySampler> sampler = make_activity_sampler(*device_);
    Runtime runtime(branch_runtime(device_, true));
    BranchSteps one(training_, compiled(StreamPolicy::None, 1), runtime);
    BranchSteps eight(training_, compiled(StreamPolicy::Full, 8), runtime);
    one.run(20);
    eight.run(20);
    const BranchProfile of_one = record(one, *sampler), of_eight = record(eight, *sampler);
    EXPECT_LT(of_one.overlap_factor, 1.2);
    EXPECT_GT(of_eight.overlap_factor, 2);
    EXPECT_LT(eight.time(100), 0.7 * one.time(100));
  });
}

TEST_F(OverlapTest, S6_AStepIsOneCopyInAndOneOutWhateverItsStreams) {
  constexpr int kSteps = 30;
  for (const int streams : {1, 8}) {
    const auto program = compiled(streams == 1 ? StreamPolicy::None : StreamPolicy::Full, streams);
    EXPECT_EQ(program->stats.waits_issued > 0, streams > 1);
    std::size_t kernels = 0;
    for (const ProgramOp& op : program->ops) {
      EXPECT_EQ(op.domain, Domain::Device) << op.name;
      ++kernels;
    }
    Runtime runtime(branch_runtime(device_, true));
    BranchSteps steps(training_, program, runtime);
    steps.run(kSteps);
    std::uint64_t computed = 0;
    for (const DeviceStreamWork& stream : runtime.activity().device_streams) {
      if (stream.name == "h2d" || stream.name == "d2h")
        EXPECT_EQ(stream.launches, kSteps) << stream.name << " of " << streams << " streams";
      else
        computed += stream.launches;
    }
    EXPECT_EQ(computed, kSteps * kernels) << "no node is run twice, and none is a copy";
  }
}

}  // namespace
}  // namespace braid
