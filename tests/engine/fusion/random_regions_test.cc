// Whatever becomes a region: the bits are those of the nodes one by one, in the serial interpreter. Streams
// and the memory plan are random too. BRAID_RANDOM_REGIONS says how many graphs are tried. On a device:
// regions_device_test.cc.
#include <gtest/gtest.h>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "tests/engine/fusion/random_regions.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

std::vector<Tensor> tensors_of(const RandomRegions& regions) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : regions.feeds) tensors.push_back(tensor);
  return tensors;
}

TEST(RandomRegionsTest, HaveTheBitsOfTheirNodesOneByOne) {
  const int graphs = tries("BRAID_RANDOM_REGIONS", 2000, 200);
  const auto runtime = std::make_unique<Runtime>(RuntimeOptions{.intra_op_threads = 2});
  int regions = 0, nodes = 0;
  for (int seed = 0; seed < graphs && !HasFailure(); ++seed) {
    const RandomRegions random = make_random_regions(static_cast<std::uint64_t>(seed));
    CompileOptions options;
    options.fusion = true;
    options.steps_in_flight = 1;
    options.streams.count = 1 + seed % 3;
    options.streams.policy = seed % 2 == 0 ? StreamPolicy::Full : StreamPolicy::None;
    const auto program = compile(random.graph, random.request(), options);
    for (const ProgramOp& op : program->ops) {
      nodes += op.kind == OpKind::Kernel;
      regions += op.op == "braid.Fused";
    }
    Instance instance(program, *runtime);
    for (int step = 0; step < 2; ++step) {
      StepRequest request;
      request.params.step = static_cast<std::uint64_t>(step);
      request.params.seed = 5;
      const std::vector<Tensor> expected = random.interpreted(request.params);
      request.feeds = tensors_of(random);
      const StepResult got =
          instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60)));
      for (std::size_t f = 0; f < expected.size(); ++f)
        EXPECT_EQ(difference(expected[f], got.fetches[f]), "")
            << "seed " << seed << ", step " << step << ", fetch " << random.fetches[f];
    }
  }
  EXPECT_GT(regions, graphs) << "of " << nodes << " nodes";
}

}  // namespace
}  // namespace braid::testing
