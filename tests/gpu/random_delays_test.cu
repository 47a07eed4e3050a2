// Training of the models of many branches on the device: whatever the streams and however long kernels take,
// its losses and variables have the bits of one stream. Before every kernel its outputs and scratch are
// filled with NaN, so memory that somebody still reads, and values that nobody wrote, show; then the stream
// waits for a random time. The times of launched steps and of captured ones are drawn when they run.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/cuda/check.h"
#include "engine/compile/compile.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ir/op.h"
#include "engine/schedule/segments.h"
#include "tests/gpu/branch_step.h"
#include "tests/gpu/test_kernels.h"
#include "tests/support/missing.h"

namespace braid {
namespace {

constexpr unsigned kMostNs = 30'000, kLateNs = 1'000'000;
constexpr int kPoison = 0xFF;  // of each byte: NaN, or -1

bool g_disturbed = false;
int g_late_op = -1;  // waits for kLateNs more

/// Fills what the kernel is to write, but what shares memory with its inputs: that is changed in place.
void poison(const KernelArgs& args, const std::vector<std::size_t>& inputs,
            const std::vector<std::size_t>& outputs, std::size_t scratch) {
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const auto* const begin = static_cast<std::byte*>(args.outputs[o]);
    bool shared = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto* const input = static_cast<std::byte*>(args.inputs[i]);
      shared = shared || (input && begin < input + inputs[i] && input < begin + outputs[o]);
    }
    if (!shared && outputs[o] > 0)
      BRAID_CUDA_CHECK(cudaMemsetAsync(args.outputs[o], kPoison, outputs[o], cuda::native(args.stream)));
  }
  if (scratch > 0)
    BRAID_CUDA_CHECK(cudaMemsetAsync(args.scratch, kPoison, scratch, cuda::native(args.stream)));
}

std::vector<std::size_t> bytes_of(std::span<const OutputInfo> infos) {
  std::vector<std::size_t> bytes;
  for (const OutputInfo& info : infos)
    bytes.push_back(static_cast<std::size_t>(info.shape.elements()) *
                    (info.dtype == DType::Resource ? 0 : dtype_size(info.dtype)));
  return bytes;
}

/// Kernels that are prepared from now on may be disturbed.
void disturb_every_op() {
  static const bool done = [] {
    for (const OpDef* def : OpRegistry::global().all()) {
      if (!def->cuda) continue;
      const_cast<OpDef*>(def)->cuda = [prepare = def->cuda](const PrepareContext& context) {
        PreparedKernel kernel = prepare(context);
        if (kernel.run)
          kernel.run = [run = kernel.run, inputs = bytes_of(context.inputs),
                        outputs = bytes_of(context.outputs),
                        scratch = kernel.scratch_bytes](const KernelArgs& args) {
            if (g_disturbed) {
              poison(args, inputs, outputs, scratch);
              testing::random_delay(args.stream, kMostNs, args.op == g_late_op ? kLateNs : 0);
            }
            run(args);
          };
        return kernel;
      };
    }
    return true;
  }();
  (void)done;
}

/// Every loss, and the variables at the end.
struct Trained {
  std::vector<float> losses;
  std::map<std::string, std::vector<std::byte>> variables;
  bool operator==(const Trained& other) const {
    // As bits: NaN is not equal to itself.
    return losses.size() == other.losses.size() &&
           std::memcmp(losses.data(), other.losses.data(), losses.size() * sizeof(float)) == 0 &&
           variables == other.variables;
  }
};

class RandomDelaysTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
    device_ = open_cuda({});
    disturb_every_op();
  }
  void TearDown() override {
    g_disturbed = false;
    g_late_op = -1;
  }

  BranchTraining training(StreamPolicy policy, int streams) const {
    return make_branch_training({GetParam(), 64}, policy == StreamPolicy::User ? streams : 0);
  }

  static std::shared_ptr<const Program> compiled(const BranchTraining& training, StreamPolicy policy,
                                                 int streams, BatchSiblings batching) {
    CompileOptions options;
    options.domain = Domain::Device;
    options.streams.policy = policy;
    options.streams.count = streams;
    options.batch_siblings = batching;
    return compile(training.graph.graph, training.request, options);
  }

  Trained train(const BranchTraining& training, std::shared_ptr<const Program> program, int steps,
                bool graphs = true) const {
    Runtime runtime(branch_runtime(device_, graphs));
    BranchSteps run(training, std::move(program), runtime);
    run.run(steps);
    Trained trained{run.losses(static_cast<std::size_t>(steps)), {}};
    for (const std::string& name : runtime.variables().names()) {
      const Tensor value = runtime.variables().read(name).value();
      trained.variables[name].assign(value.raw(), value.raw() + value.bytes());
    }
    return trained;
  }

  Trained on_one_stream(BatchSiblings batching, int steps) const {
    const BranchTraining model = training(StreamPolicy::None, 1);
    Trained trained = train(model, compiled(model, StreamPolicy::None, 1, batching), steps);
    EXPECT_EQ(trained.losses.size(), static_cast<std::size_t>(steps));
    EXPECT_LT(trained.losses.back(), trained.losses.front());
    EXPECT_FALSE(trained.variables.empty());
    return trained;
  }

  std::shared_ptr<Accelerator> device_;
};

constexpr BatchSiblings kBatchings[] = {BatchSiblings::Off, BatchSiblings::AcrossScopes};
constexpr StreamPolicy kPolicies[] = {StreamPolicy::User, StreamPolicy::Full, StreamPolicy::Cost};

TEST_P(RandomDelaysTest, S1_EveryNumberOfStreamsGivesTheBitsOfOneOverAThousandSteps) {
  constexpr int kSteps = 1000;
  for (const BatchSiblings batching : kBatchings) {
    g_disturbed = false;
    const Trained expected = on_one_stream(batching, kSteps);
    g_disturbed = true;
    for (int streams = 1; streams <= 8; ++streams) {
      const StreamPolicy policy = kPolicies[streams % 3];
      const BranchTraining model = training(policy, streams);
      EXPECT_TRUE(train(model, compiled(model, policy, streams, batching), kSteps) == expected)
          << stream_policy_name(policy) << " on " << streams
          << (batching == BatchSiblings::Off ? "" : ", siblings batched");
    }
  }
}

TEST_P(RandomDelaysTest, S7_MemoryThatIsSpoiltBeforeItIsWrittenChangesNoBits) {
  constexpr int kSteps = 20;
  for (const BatchSiblings batching : kBatchings) {
    g_disturbed = false;
    const Trained expected = on_one_stream(batching, kSteps);
    g_disturbed = true;
    for (const StreamPolicy policy : kPolicies)
      for (const int streams : {2, 4, 8})
        for (const bool graphs : {true, false}) {
          const BranchTraining model = training(policy, streams);
          EXPECT_TRUE(train(model, compiled(model, policy, streams, batching), kSteps, graphs) == expected)
              << stream_policy_name(policy) << " on " << streams << (graphs ? ", graph" : ", launched")
              << (batching == BatchSiblings::Off ? "" : ", siblings batched");
        }
  }
}

/// Models without indices, which would stop a step when they are spoilt.
class LeftOutWaitTest : public RandomDelaysTest {};

/// What the tests above say of plans that have one wait too few, where what it waited for is late.
TEST_P(LeftOutWaitTest, S7_AWaitThatIsLeftOutShows) {
  constexpr int kSteps = 4;
  g_disturbed = false;
  const Trained expected = on_one_stream(BatchSiblings::Off, kSteps);
  g_disturbed = true;
  const BranchTraining model = training(StreamPolicy::Full, 4);
  const auto good = compiled(model, StreamPolicy::Full, 4, BatchSiblings::Off);
  int waits = 0, seen = 0;
  std::string unseen;
  for (std::size_t s = 0; s < good->streams.size(); ++s)
    for (std::size_t i = 0; i < good->streams[s].instructions.size(); ++i) {
      const Instruction instruction = good->streams[s].instructions[i];
      if (instruction.kind != Instruction::Kind::Wait) continue;
      Program bad = *good;
      auto& list = bad.streams[s].instructions;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      cut_segments(bad);
      g_late_op = instruction.op;
      ++waits;
      const bool shows = train(model, std::make_shared<const Program>(bad), kSteps) != expected;
      seen += shows;
      if (!shows)
        unseen +=
            "\n" + good->streams[s].name + " for " + good->ops[static_cast<std::size_t>(instruction.op)].name;
    }
  EXPECT_GT(waits, 10);
  EXPECT_GE(seen, waits * 9 / 10) << "of " << waits << ", not those of" << unseen;
}

INSTANTIATE_TEST_SUITE_P(Models, RandomDelaysTest, ::testing::Values("towers8", "mmoe8x4", "dlrm26"));
INSTANTIATE_TEST_SUITE_P(Models, LeftOutWaitTest, ::testing::Values("towers8", "mmoe8x4"));

}  // namespace
}  // namespace braid
