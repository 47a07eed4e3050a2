// Workers whose steps run on GPUs, with parameter servers on the host.
#include "tests/gpu/gpu_job.h"

namespace braid::integration {
namespace {

constexpr double kRelative = 1e-4;

class PsGpuJobTest : public IntegrationTest, public ::testing::WithParamInterface<int> {};

TEST_P(PsGpuJobTest, RowsPulledAheadKeepTheBitsAndLoseAsOneProcess) {
  const int workers = GetParam();
  REQUIRE_GPUS(workers);
  const Job job = wide_deep().with({"steps=100", "model.sparse_tables=true"});
  const std::vector<float> one = train("one", on_gpu(job));
  std::vector<double> first;
  for (const std::string ahead : {"true", "false"}) {
    SCOPED_TRACE(ahead);
    Cluster cluster(directory() / ahead,
                    on_gpu(job).with({"strategy.kind=PS", "strategy.ps.pull_ahead=" + ahead}), {workers, 2});
    cluster.expect_success();
    const std::vector<double> losses = cluster.mean_losses();
    EXPECT_LT(largest_relative_difference(one, losses), kRelative);
    if (first.empty()) first = losses;
    EXPECT_EQ(losses, first);
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, PsGpuJobTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace braid::integration
