#include "tests/integration/killed_often.h"

#include <signal.h>

#include <cmath>
#include <random>
#include <thread>

namespace braid::integration {
namespace {

std::vector<float> whole_run(const Path& directory, const Job& job) {
  Cluster whole(directory / "whole", job, {});
  whole.expect_success();
  return losses_of(whole.steps_file(0));
}

void wait_and_kill(Process& worker) {
  static std::mt19937 random(std::random_device{}());
  std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 20000)(random)));
  worker.signal(SIGKILL);
}

/// Of the steps that all workers have logged.
std::vector<double> mean_losses_in(const Path& log, int workers, std::uint64_t first) {
  std::vector<double> means;
  for (int worker = 0; worker < workers; ++worker) {
    const std::vector<float> losses = losses_of(log / ("worker-" + std::to_string(worker) + ".steps"), first);
    if (worker == 0) means.resize(losses.size());
    means.resize(std::min(means.size(), losses.size()));
    for (std::size_t i = 0; i < means.size(); ++i) means[i] += double{losses[i]} / workers;
  }
  return means;
}

std::uint64_t newest_in(const Path& root) {
  const auto steps = checkpointed_steps(root);
  return steps.empty() ? 0 : steps.back();
}

}  // namespace

void expect_kills_change_nothing(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                 int steps, int every, int kills) {
  const std::vector<float> base = whole_run(directory, job_in(directory / "whole-ckpt"));
  const Path root = directory / "ckpt";
  const Job job = job_in(root);
  for (int kill = 0, late = 0; kill < kills && late < 20;) {
    const std::uint64_t reached = newest_in(root);
    if (reached + static_cast<std::uint64_t>(every) >= static_cast<std::uint64_t>(steps)) {
      std::filesystem::remove_all(root);
      ++late;
      continue;
    }
    Cluster killed(directory / "killed", job, {}, {"--resume"});
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step " + std::to_string(reached + every) + ":"))
        << killed.worker(0).err();
    wait_and_kill(killed.worker(0));
    if (killed.worker(0).exit_code() != 0) ++kill;
  }
  const std::uint64_t reached = newest_in(root);
  ASSERT_GT(reached, 0U);
  Cluster last(directory / "last", job, {}, {"--resume"});
  last.expect_success();
  EXPECT_EQ(losses_of(last.steps_file(0), reached),
            std::vector<float>(base.begin() + static_cast<std::ptrdiff_t>(reached), base.end()));
  EXPECT_TRUE(files_of_newest(root) == files_of_newest(directory / "whole-ckpt"));
  EXPECT_EQ(last.worker(0).err().find("the input differs"), std::string::npos);
}

void expect_other_workers_go_on(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                int step, const std::vector<int>& workers) {
  const std::vector<float> base = whole_run(directory, job_in(directory / "whole-ckpt"));
  const Path root = directory / "ckpt";
  const auto job_of = [&](int count) {
    return count == 1 ? job_in(root) : job_in(root).with({"strategy.kind=ALLREDUCE"});
  };
  std::vector<int> legs{1};
  legs.insert(legs.end(), workers.begin(), workers.end() - 1);
  for (std::size_t leg = 0; leg < legs.size(); ++leg) {
    const std::uint64_t aim = newest_in(root) + static_cast<std::uint64_t>(step);
    Cluster killed(directory / ("killed-" + std::to_string(leg)), job_of(legs[leg]), {legs[leg], 0},
                   {"--resume"});
    ASSERT_TRUE(killed.worker(0).says("checkpoint of step " + std::to_string(aim) + ":"))
        << killed.worker(0).err();
    wait_and_kill(killed.worker(0));
    ASSERT_NE(killed.worker(0).exit_code(), 0) << "it was through before it was killed";
    EXPECT_EQ(killed.worker(0).err().find("the input differs"), std::string::npos);
  }
  const std::uint64_t reached = newest_in(root);
  Cluster last(directory / "last", job_of(workers.back()), {workers.back(), 0}, {"--resume"});
  last.expect_success();
  const std::vector<double> mean = last.mean_losses(reached);
  ASSERT_EQ(mean.size() + reached, base.size());
  // Sums in other orders, which steps of Adam amplify; a batch that is missed or comes twice is hundreds of
  // these.
  for (std::size_t t = 0; t < mean.size(); ++t)
    EXPECT_NEAR(mean[t], base[reached + t], 5e-4 * (1 + std::abs(base[reached + t]))) << t;
  EXPECT_EQ(last.worker(0).err().find("the input differs"), std::string::npos);
}

void expect_the_bits_of_one_worker(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                   int step, const std::vector<int>& workers) {
  const std::vector<float> base = whole_run(directory, job_in(directory / "whole-ckpt"));
  const Path root = directory / "ckpt";
  std::uint64_t reached = 0;
  for (std::size_t leg = 0; leg < workers.size(); ++leg) {
    SCOPED_TRACE("leg " + std::to_string(leg) + ", " + std::to_string(workers[leg]) + " workers");
    const Job job = workers[leg] == 1 ? job_in(root) : job_in(root).with({"strategy.kind=ALLREDUCE"});
    const Path log = directory / ("leg-" + std::to_string(leg));
    const bool last = leg + 1 == workers.size();
    {
      Cluster cluster(log, job, {workers[leg], 0}, {"--resume"});
      if (last) {
        cluster.expect_success();
      } else {
        const std::string saved =
            "checkpoint of step " + std::to_string(reached + static_cast<std::uint64_t>(step)) + ":";
        ASSERT_TRUE(cluster.worker(0).says(saved)) << cluster.worker(0).err();
        wait_and_kill(cluster.worker(0));
        ASSERT_NE(cluster.worker(0).exit_code(), 0) << "it was through before it was killed";
      }
      EXPECT_EQ(cluster.worker(0).err().find("the input differs"), std::string::npos);
    }
    const auto found = mean_losses_in(log, workers[leg], reached);
    EXPECT_GE(found.size(), static_cast<std::size_t>(last ? 1 : step))
        << "lines of steps that the checkpoint has";
    for (std::size_t t = 0; t < found.size() && reached + t < base.size(); ++t)
      ASSERT_EQ(found[t], static_cast<double>(base[reached + t])) << "step " << reached + t;
    reached = newest_in(root);
  }
  EXPECT_EQ(reached, base.size());
  EXPECT_EQ(values_of_newest(root), values_of_newest(directory / "whole-ckpt"));
}

}  // namespace braid::integration
