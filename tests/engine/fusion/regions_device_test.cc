// The same on a device: generated kernels beside the interpreter. Elementwise float32 has the host's bits where the
// formula is vector_math.h's; other functions and sums of rows differ in the last bits. Two runs have the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "tests/engine/fusion/random_regions.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

constexpr double kTolerance = 2e-4;

TEST(RegionsDeviceTest, RandomRegionsMeanWhatTheInterpreterComputes) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  RuntimeOptions runtime_options;
  runtime_options.device = open_cuda({});
  Runtime runtime(runtime_options);
  int regions = 0, exact = 0, compared = 0;
  const int graphs = tries("BRAID_RANDOM_REGIONS", 60, 20);
  for (int seed = 0; seed < graphs && !HasFailure(); ++seed) {
    const RandomRegions random = make_random_regions(static_cast<std::uint64_t>(seed), false);
    const std::vector<Tensor> expected =
        Interpreter(random.graph).run({random.feeds.begin(), random.feeds.end()}, random.fetches);
    CompileOptions options;
    options.fusion = true;
    options.domain = Domain::Device;
    options.steps_in_flight = 1;
    const auto program = compile(random.graph, random.request(), options);
    for (const ProgramOp& op : program->ops) regions += op.op == "braid.Fused";
    Instance instance(program, runtime);
    std::vector<Tensor> first;
    for (int step = 0; step < 3; ++step) {
      StepRequest request;
      request.params.step = static_cast<std::uint64_t>(step);
      for (const auto& [name, tensor] : random.feeds) request.feeds.push_back(tensor);
      const StepResult got = instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60)));
      for (std::size_t f = 0; f < expected.size(); ++f) {
        EXPECT_EQ(difference(expected[f], got.fetches[f], kTolerance), "")
            << "seed " << seed << ", step " << step << ", fetch " << random.fetches[f];
        if (step == 0) {
          ++compared;
          exact += difference(expected[f], got.fetches[f]).empty();
          first.push_back(got.fetches[f].clone());
        } else {
          EXPECT_EQ(difference(first[f], got.fetches[f]), "") << "seed " << seed << ": another run, other bits";
        }
      }
    }
  }
  EXPECT_GT(regions, graphs / 2);
  std::printf("%d regions; %d of %d fetches have the host's bits\n", regions, exact, compared);
}

}  // namespace
}  // namespace braid::testing
