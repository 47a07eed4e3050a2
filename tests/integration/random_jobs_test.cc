// Jobs drawn at random train and evaluate as the plain job in one process does, but for rounding; some are
// cut in the middle, and go on from their checkpoint as another strategy. BRAID_RANDOM_JOBS says how many are
// drawn, BRAID_RANDOM_SEED from which seed on; a failure names its seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/integration/checkpoints.h"
#include "tests/integration/drawn_job.h"

namespace braid::integration {
namespace {

constexpr double kLossTolerance = 2e-4, kQualityTolerance = 2e-3;
constexpr int kDrawnJobSteps = 10;

class RandomJobs : public IntegrationTest {
 protected:
  /// The losses of all steps, and the quality behind the last, of the job as it was drawn.
  std::pair<std::vector<double>, std::optional<double>> trained(const DrawnJob& drawn, const Path& root) {
    if (drawn.cut == 0) {
      Cluster cluster(root / "drawn", drawn.plain(kDrawnJobSteps).with(drawn.first.settings),
                      drawn.first.shape);
      cluster.expect_success();
      return {cluster.mean_losses(), result_of(cluster.worker(0)).quality};
    }
    const Job saved = drawn.plain(kDrawnJobSteps).with(checkpoints_in(root / "checkpoints", kDrawnJobSteps));
    Cluster first(root / "first", saved.with(drawn.first.settings).with({fmt::format("steps={}", drawn.cut)}),
                  drawn.first.shape);
    first.expect_success();
    std::vector<double> losses = first.mean_losses();
    Cluster second(root / "second", saved.with(drawn.second.settings), drawn.second.shape, {"--resume"});
    second.expect_success();
    const std::vector<double> rest = second.mean_losses(static_cast<std::uint64_t>(drawn.cut));
    losses.insert(losses.end(), rest.begin(), rest.end());
    return {losses, result_of(second.worker(0)).quality};
  }

  void compare(const DrawnJob& drawn, const Path& root) {
    Cluster alone(root / "alone",
                  drawn.plain(kDrawnJobSteps).with({"streams.policy=NONE", "streams.batch_siblings=OFF"}),
                  {});
    alone.expect_success();
    const auto [losses, quality] = trained(drawn, root);
    if (HasFailure()) return;
    const std::vector<double> expected = alone.mean_losses();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], kLossTolerance * (1 + std::abs(expected[step]))) << step;
    ASSERT_TRUE(quality);
    EXPECT_NEAR(*quality, result_of(alone.worker(0)).quality.value(), kQualityTolerance);
  }
};

TEST_F(RandomJobs, TrainAsInOneProcess) {
  const std::uint64_t first = number_of("BRAID_RANDOM_SEED", 1), jobs = number_of("BRAID_RANDOM_JOBS", 20);
  for (std::uint64_t seed = first; seed < first + jobs; ++seed) {
    const DrawnJob drawn = draw_job(seed, kDrawnJobSteps);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, drawn.text()));
    compare(drawn, directory() / std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace braid::integration
