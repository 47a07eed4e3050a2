// Elastic jobs as real processes: what their tests start, and the losses of fixed worlds to compare with.
#pragma once

#include <gmock/gmock.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/run.h"

namespace braid::integration {

class ElasticFaultTest : public IntegrationTest {
 protected:
  static constexpr std::uint64_t kSteps = 3000;

  /// Of workers that there are from the beginning to the end.
  virtual Job plain(std::uint64_t steps = kSteps) const {
    return wide_deep().with({"steps=" + std::to_string(steps), "input.global_batch_size=96",
                             "strategy.kind=ALLREDUCE", "strategy.deadline_seconds=20",
                             "strategy.start_deadline_seconds=60", "metrics.progress_seconds=0.05",
                             "streams.batch_siblings=OFF", "streams.policy=NONE"});
  }
  Job elastic(int least = 1, std::uint64_t steps = kSteps) const {
    return plain(steps).with(
        {"strategy.elastic.min_workers=" + std::to_string(least), "strategy.elastic.wait_seconds=20"});
  }
  Job endless(int least = 1) const { return elastic(least, 10'000'000); }

  /// "world 2 begins at step 317", of the newest such line of that world.
  static std::uint64_t first_step(Process& process, int world) {
    const std::string begin = "world " + std::to_string(world) + " begins at step ";
    EXPECT_TRUE(process.says(begin)) << process.err();
    const std::string text = process.err();
    unsigned long long step = 0;
    if (const auto at = text.rfind(begin); at != std::string::npos)
      std::sscanf(text.c_str() + at + begin.size(), "%llu", &step);
    return step;
  }
  /// The losses of fixed worlds: `workers[i]` of them up to step until[i].
  std::vector<float> fixed(const std::vector<int>& workers, const std::vector<std::uint64_t>& until) {
    std::vector<float> all;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const Path run = directory() / ("fixed-" + std::to_string(i));
      const Job job = plain(until[i]).with({"checkpoint.directory=" + path("fixed-checkpoints")});
      Cluster cluster(run, job, {workers[i], 0},
                      i == 0 ? std::vector<std::string>{} : std::vector<std::string>{"--resume"});
      cluster.expect_success();
      const auto losses = losses_of(cluster.steps_file(0), all.size());
      all.insert(all.end(), losses.begin(), losses.end());
    }
    return all;
  }
  static void expect_losses(const std::vector<float>& losses, const std::vector<float>& expected) {
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) ASSERT_EQ(losses[i], expected[i]) << "step " << i;
  }
  /// A process that no list has.
  std::unique_ptr<Process> join(Cluster& cluster, const Job& job, const std::string& name, int index) {
    EXPECT_TRUE(cluster.worker(0).says("--join 127.0.0.1:")) << cluster.worker(0).err();
    const std::string text = cluster.worker(0).err();
    const auto at = text.find("--join ") + 7;
    std::vector<std::string> command = braid(job.arguments());
    command.insert(command.end(), {"--join", text.substr(at, text.find('\n', at) - at), "--task",
                                   "worker:" + std::to_string(index)});
    return std::make_unique<Process>(command, Variables{}, directory() / name);
  }
};

}  // namespace braid::integration
