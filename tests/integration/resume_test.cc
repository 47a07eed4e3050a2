// A run that was killed or asked to stop, and goes on with --resume, ends with the bits of a run that was
// not.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <random>
#include <thread>

#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using std::chrono::microseconds;

constexpr int kResumedSteps = 300;
constexpr int kEvery = 20;

/// Waits until a random checkpoint of the first half, and a random while longer.
void wait_for_random_moment(Process& leader) {
  static std::mt19937 random(std::random_device{}());
  const int step = kEvery * std::uniform_int_distribution(1, kResumedSteps / kEvery / 2)(random);
  EXPECT_TRUE(leader.says("checkpoint of step " + std::to_string(step) + ":")) << leader.err();
  std::this_thread::sleep_for(microseconds(std::uniform_int_distribution(0, 20000)(random)));
}

std::vector<float> from(const std::vector<float>& losses, std::uint64_t step) {
  return {losses.begin() + static_cast<std::ptrdiff_t>(step), losses.end()};
}

class ResumeTest : public IntegrationTest {
 protected:
  /// The policy is given: the plan that AUTO measures may be another in another run, and its hash is in the
  /// manifest.
  static Job job(const std::string& strategy = "LOCAL") {
    return wide_deep().with(
        {"steps=" + std::to_string(kResumedSteps), "strategy.kind=" + strategy, "streams.policy=COST"});
  }
  Job job_in(const Path& root, const std::string& strategy = "LOCAL") const {
    return job(strategy).with(checkpoints_in(root, kEvery));
  }
  /// A job with a new directory of checkpoints of which these workers, and for SIGKILL all servers, got
  /// `signal` at a random moment. It is started anew when it had ended before, as it may when this test is
  /// held up.
  std::unique_ptr<Cluster> interrupted(const Path& root, const std::string& strategy, Cluster::Shape shape,
                                       const std::vector<int>& workers, int signal) const {
    for (int trials = 1;; ++trials) {
      std::filesystem::remove_all(root);
      auto cluster = std::make_unique<Cluster>(directory() / "interrupted", job_in(root, strategy), shape);
      wait_for_random_moment(cluster->worker(0));
      for (int s = 0; s < shape.servers && signal == SIGKILL; ++s) cluster->server(s).signal(signal);
      for (int worker : workers) cluster->worker(worker).signal(signal);
      if (cluster->worker(0).exit_code() != 0 || trials == 20) return cluster;
    }
  }
};
using ResumeFaultTest = ResumeTest;

TEST_F(ResumeFaultTest, KilledAtAnyMomentALocalRunResumesToTheSameBits) {
  const std::vector<float> base = train("base", job_in(directory() / "base-checkpoints"));
  const Files expected = files_of_newest(directory() / "base-checkpoints");
  for (int trial = 0; trial < 5; ++trial) {
    const Path root = directory() / ("checkpoints-" + std::to_string(trial));
    const auto killed = interrupted(root, "LOCAL", {}, {0}, SIGKILL);
    ASSERT_EQ(killed->worker(0).exit_code(), 128 + SIGKILL);
    const std::vector<std::uint64_t> steps = checkpointed_steps(root);
    ASSERT_FALSE(steps.empty());
    const std::uint64_t step = steps.back();

    Cluster resumed(directory() / "resumed", job_in(root), {}, {"--resume"});
    resumed.expect_success();
    EXPECT_EQ(losses_of(resumed.steps_file(0), step), from(base, step)) << "killed after step " << step;
    EXPECT_TRUE(files_of_newest(root) == expected) << "killed after step " << step;
  }
}

TEST_F(ResumeTest, TerminatedALocalRunSavesThatStepAndResumesToTheSameBits) {
  const std::vector<float> base = train("base", job_in(directory() / "base-checkpoints"));
  const Path root = directory() / "checkpoints";
  const auto stopped = interrupted(root, "LOCAL", {}, {0}, SIGTERM);
  ASSERT_EQ(stopped->worker(0).exit_code(), 143);
  const Result result = result_of(stopped->worker(0));
  EXPECT_EQ(result.exit, 143);
  EXPECT_LT(result.last_step, std::uint64_t{kResumedSteps});
  EXPECT_THAT(checkpointed_steps(root), ::testing::Contains(result.last_step));

  Cluster resumed(directory() / "resumed", job_in(root), {}, {"--resume"});
  resumed.expect_success();
  EXPECT_EQ(losses_of(resumed.steps_file(0), result.last_step), from(base, result.last_step));
  EXPECT_TRUE(files_of_newest(root) == files_of_newest(directory() / "base-checkpoints"));
}

TEST_F(ResumeTest, TheStreamsThatAutoChoseAreKept) {
  const Path root = directory() / "checkpoints";
  const Job automatic = wide_deep()
                            .with({"streams.policy=AUTO", "streams.count=3", "streams.measure_seconds=0.1"})
                            .with(checkpoints_in(root, 10));
  const auto plan = [&] { return read_file(root / "streams.plan"); };
  Cluster first(directory() / "first", automatic.with({"steps=20"}), {});
  first.expect_success();
  const std::string kept = plan();
  EXPECT_THAT(kept,
              ::testing::AllOf(::testing::StartsWith("braid stream plan 1\n"),
                               ::testing::HasSubstr("\nwhy AUTO took "), ::testing::HasSubstr("\ncost ")));
  Cluster second(directory() / "second", automatic.with({"steps=40"}), {}, {"--resume"});
  second.expect_success();
  EXPECT_EQ(plan(), kept) << "measured again, it would have other times";
  EXPECT_EQ(second.worker(0).err().find("the plan differs"), std::string::npos);
  std::ofstream(root / "streams.plan") << "braid stream plan 1\nmade f";
  Cluster third(directory() / "third", automatic.with({"steps=50"}), {}, {"--resume"});
  third.expect_success();
  EXPECT_THAT(third.worker(0).err(),
              ::testing::HasSubstr("streams.plan:2: 'made f' is not a line of a stream plan"));
  EXPECT_THAT(plan(), ::testing::HasSubstr("\nwhy AUTO took "));
}

/// Stops a job of two workers with SIGTERM to those of `signalled`; starts it again with
/// `servers_afterwards`.
struct StopCase {
  const char* name;
  const char* strategy;
  int servers;
  int servers_afterwards;
  std::vector<int> signalled;
};

class StopTest : public ResumeTest, public ::testing::WithParamInterface<StopCase> {};

TEST_P(StopTest, AllStopAfterTheSameStepAndResumeToTheSameBits) {
  const StopCase& c = GetParam();
  Cluster base(directory() / "base", job_in(directory() / "base-checkpoints", c.strategy), {2, c.servers});
  base.expect_success();

  const Path root = directory() / "checkpoints";
  const auto stopped = interrupted(root, c.strategy, {2, c.servers}, c.signalled, SIGTERM);
  for (int worker : {0, 1})
    ASSERT_EQ(stopped->worker(worker).exit_code(), 143) << stopped->worker(worker).err();
  for (int s = 0; s < c.servers; ++s)
    EXPECT_EQ(stopped->server(s).exit_code(), 143) << stopped->server(s).err();
  const std::uint64_t step = result_of(stopped->worker(0)).last_step;
  EXPECT_EQ(result_of(stopped->worker(1)).last_step, step);
  EXPECT_LT(step, std::uint64_t{kResumedSteps});
  EXPECT_THAT(checkpointed_steps(root), ::testing::Contains(step));

  Cluster resumed(directory() / "resumed", job_in(root, c.strategy), {2, c.servers_afterwards}, {"--resume"});
  resumed.expect_success();
  for (int worker : {0, 1})
    EXPECT_EQ(losses_of(resumed.steps_file(worker), step), from(losses_of(base.steps_file(worker)), step))
        << "worker " << worker << ", stopped after step " << step;
  EXPECT_EQ(values_of_newest(root), values_of_newest(directory() / "base-checkpoints"));
}

INSTANTIATE_TEST_SUITE_P(All, StopTest,
                         ::testing::Values(StopCase{"one_server_then_two", "PS", 1, 2, {0, 1}},
                                           StopCase{"two_servers_then_one", "PS", 2, 1, {0, 1}},
                                           StopCase{"servers_leader_signalled", "PS", 1, 1, {0}},
                                           StopCase{"servers_other_worker_signalled", "PS", 2, 2, {1}},
                                           StopCase{"all_reduce_leader_signalled", "ALLREDUCE", 0, 0, {0}},
                                           StopCase{
                                               "all_reduce_other_rank_signalled", "ALLREDUCE", 0, 0, {1}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(ResumeFaultTest, AKilledParameterServerJobResumesFromItsLastCheckpoint) {
  Cluster base(directory() / "base", job("PS"), {2, 1});
  base.expect_success();
  const Path root = directory() / "checkpoints";
  const auto killed = interrupted(root, "PS", {2, 1}, {0, 1}, SIGKILL);
  ASSERT_EQ(killed->worker(0).exit_code(), 128 + SIGKILL);
  const std::vector<std::uint64_t> steps = checkpointed_steps(root);
  ASSERT_FALSE(steps.empty());
  const std::uint64_t step = steps.back();
  Cluster resumed(directory() / "resumed", job_in(root, "PS"), {2, 2}, {"--resume"});
  resumed.expect_success();
  for (int worker : {0, 1})
    EXPECT_EQ(losses_of(resumed.steps_file(worker), step), from(losses_of(base.steps_file(worker)), step));
}

TEST_F(ResumeTest, WithoutACheckpointItSaysSoAndBeginsAtStepZero) {
  Cluster fresh(directory() / "fresh", job_in(directory() / "none").with({"steps=5"}), {}, {"--resume"});
  fresh.expect_success();
  EXPECT_EQ(losses_of(fresh.steps_file(0)).size(), 5U);
  EXPECT_THAT(fresh.worker(0).err(),
              ::testing::HasSubstr("no checkpoint in '" + (directory() / "none").string()));
}

}  // namespace
}  // namespace braid::integration
