// All-reduce over NCCL, one process a GPU: the losses of one GPU with the global batch, and ranks that are
// missed.
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/gpu/gpu_job.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr double kRelative = 1e-4;

Job over_nccl(const Job& job) {
  return on_gpu(job).with({"strategy.kind=ALLREDUCE", "strategy.backend=NCCL"});
}

Job in_stages(const Job& job) {
  return on_gpu(job).with({"strategy.kind=PIPELINE", "strategy.backend=NCCL", "input.global_batch_size=64",
                           "strategy.pipeline.micro_batches=4"});
}

class NcclJobTest : public IntegrationTest {};

nlohmann::json result_in(const std::string& text) {
  const std::string mark = "result: ";
  const std::size_t at = text.rfind(mark);
  if (at == std::string::npos) return {};
  return nlohmann::json::parse(text.substr(at + mark.size(), text.find('\n', at) - at - mark.size()));
}

TEST_F(NcclJobTest, AGroupOfOneTrains) {
  REQUIRE_GPUS(1);
  const Job job = linear_regression().with({"steps=50"});
  EXPECT_LT(largest_relative_difference(train("alone", on_gpu(job)), train("nccl", over_nccl(job))),
            kRelative);
}

TEST_F(NcclJobTest, S9_TwoGpusLoseAsMuchAsOneAtEveryStep) {
  REQUIRE_GPUS(2);
  for (const Job& job :
       {mlp().with({"steps=100"}), wide_deep().with({"steps=100", "model.sparse_tables=true"})}) {
    SCOPED_TRACE(job.file);
    const auto one = train(job.file + ".one", on_gpu(job));
    Cluster cluster(directory() / (job.file + ".two"), over_nccl(job), {2, 0});
    cluster.expect_success();
    EXPECT_LT(largest_relative_difference(one, cluster.mean_losses()), kRelative);
  }
}

TEST_F(NcclJobTest, TablesSpreadOverTwoGpusLoseAsMuchAsOne) {
  REQUIRE_GPUS(2);
  const Job job = wide_deep().with({"steps=100", "model.sparse_tables=true"});
  const auto one = train("one", on_gpu(job));
  for (const std::string ids : {"ALL", "DISTINCT"}) {
    SCOPED_TRACE(ids);
    Cluster cluster(
        directory() / ids,
        on_gpu(job).with({"strategy.kind=HYBRID", "strategy.backend=NCCL", "strategy.hybrid.ids=" + ids}),
        {2, 0});
    cluster.expect_success();
    EXPECT_LT(largest_relative_difference(one, cluster.mean_losses()), kRelative);
  }
}

/// Messages of stages lie in slots: one block writes small ones, copy engines large ones.
TEST_F(NcclJobTest, StagesOfAPipelineLoseAsMuchAsOneGpu) {
  REQUIRE_GPUS(2);
  for (const std::string width : {"64,32", "2048,2048"})
    for (const std::string schedule : {"ONE_F_ONE_B", "GPIPE"}) {
      SCOPED_TRACE(schedule + " " + width);
      const Job job = mlp().with({"steps=40", "model.hidden=" + width});
      const auto one =
          train(schedule + width + ".one",
                on_gpu(job).with({"optimizer.accumulate_steps=4", "input.global_batch_size=64"}));
      Cluster cluster(directory() / (schedule + width),
                      in_stages(job).with({"strategy.pipeline.schedule=" + schedule}), {2, 0});
      cluster.expect_success();
      EXPECT_LT(largest_relative_difference(one, cluster.mean_losses()), kRelative);
    }
}

/// Each predicts some of the batches; scores and sums travel over NCCL. What one GPU finds of the checkpoint
/// has the same bits.
TEST_F(NcclJobTest, WorkersMeasureTogetherWhatOneGpuMeasures) {
  REQUIRE_GPUS(2);
  for (const std::string kind : {"ALLREDUCE", "HYBRID"}) {
    SCOPED_TRACE(kind);
    const Path checkpoints = directory() / (kind + ".checkpoints");
    const Job job = on_gpu(wide_deep())
                        .with({"strategy.backend=NCCL", "steps=60", "model.sparse_tables=true",
                               "evaluation.enabled=true", "evaluation.batch_size=61", "evaluation.metric=AUC",
                               "evaluation.metric=LOG_LOSS", "evaluation.metric=PR_AUC",
                               "checkpoint.directory=" + checkpoints.string(), "checkpoint.every_steps=60"});
    Cluster cluster(directory() / kind, job.with({"strategy.kind=" + kind}), {2, 0});
    cluster.expect_success();
    EXPECT_THAT(cluster.worker(0).err(), HasSubstr("workers share the test rows"));
    const auto together = result_in(cluster.worker(0).out());
    std::vector<std::string> arguments = on_gpu(job).with({"strategy.kind=LOCAL"}).arguments();
    arguments[0] = "evaluate";
    arguments.insert(arguments.end(), {"--checkpoint", checkpoints.string()});
    Process alone(braid(arguments), {}, directory() / (kind + ".alone"));
    ASSERT_EQ(alone.exit_code(), 0) << alone.err();
    const auto expected = result_in(alone.out());
    for (const char* metric : {"auc", "log_loss", "pr_auc"})
      EXPECT_EQ(together[metric].get<double>(), expected[metric].get<double>()) << metric;
  }
}

TEST_F(NcclJobTest, RanksOfMpirunFindEachOther) {
  REQUIRE_GPUS(2);
  if (mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  const Job job = linear_regression().with({"steps=50", "input.global_batch_size=16"});
  const auto one = train("one", on_gpu(job));
  const Job logged = over_nccl(job).with({"metrics.steps_file=" + (directory() / "%r.steps").string()});
  Process mpirun(under_mpirun(2, logged.arguments()), {}, directory() / "mpirun");
  ASSERT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  EXPECT_LT(largest_relative_difference(one, losses_of(directory() / "worker-0.steps")), kRelative);
}

TEST_F(NcclJobTest, MoreWorkersThanGpusAreRefused) {
  REQUIRE_GPUS(1);
  const int gpus = cuda_device_count();
  Cluster cluster(directory() / "job",
                  over_nccl(linear_regression().with({"steps=5", "strategy.start_deadline_seconds=5"})),
                  {gpus + 1, 0});
  EXPECT_EQ(cluster.worker(gpus).exit_code(), 2);
  EXPECT_THAT(cluster.worker(gpus).err(), HasSubstr("needs a GPU of its own"));
}

/// SIGKILL ends its heartbeats and sockets, which is seen at once; SIGSTOP its heartbeats alone, which counts
/// at the deadline.
class NcclFaultJobTest : public IntegrationTest, public ::testing::WithParamInterface<int> {};

TEST_P(NcclFaultJobTest, ARankThatIsLostIsNamedByTheOther) {
  REQUIRE_GPUS(2);
  const Job job =
      over_nccl(linear_regression())
          .with({"steps=100000000", "input.global_batch_size=16",
                 GetParam() == SIGKILL ? "strategy.deadline_seconds=120" : "strategy.deadline_seconds=5",
                 "metrics.progress_seconds=0.05"});
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 4)) << cluster.worker(0).err();
  cluster.worker(1).signal(GetParam());
  EXPECT_EQ(cluster.worker(0).exit_code(30s), 138);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("rank 1 ("));
}

TEST_P(NcclFaultJobTest, AStageThatIsLostIsNamedByTheOther) {
  REQUIRE_GPUS(2);
  const Job job = in_stages(mlp()).with(
      {"steps=100000000", "epochs=0",
       GetParam() == SIGKILL ? "strategy.deadline_seconds=120" : "strategy.deadline_seconds=5",
       "metrics.progress_seconds=0.05"});
  Cluster cluster(directory() / "job", job, {2, 0});
  ASSERT_TRUE(reaches_step(cluster.worker(0), 4)) << cluster.worker(0).err();
  cluster.worker(1).signal(GetParam());
  EXPECT_EQ(cluster.worker(0).exit_code(30s), 138);
  EXPECT_THAT(cluster.worker(0).err(), HasSubstr("rank 1 ("));
}

INSTANTIATE_TEST_SUITE_P(Signals, NcclFaultJobTest, ::testing::Values(SIGKILL, SIGSTOP));

}  // namespace
}  // namespace braid::integration
