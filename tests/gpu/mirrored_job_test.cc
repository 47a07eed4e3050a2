// Strategy MIRRORED on several GPUs of one process: the bits of as many processes, the losses of one GPU, and
// how it ends.
#include <signal.h>

#include "tests/gpu/gpu_job.h"
#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MirroredJobTest : public IntegrationTest {
 protected:
  static Job mirrored(const Job& job, int devices) {
    return on_gpu(job).with(
        {"strategy.kind=MIRRORED", "strategy.mirrored.devices=" + std::to_string(devices)});
  }
};

TEST_F(MirroredJobTest, OneGpuIsLocal) {
  REQUIRE_GPUS(1);
  const Job job = mlp().with({"steps=50"});
  EXPECT_EQ(train("one", mirrored(job, 1)), train("local", on_gpu(job)));
}

/// Evaluations and checkpoints in between are the first one's alone, while the others wait.
TEST_F(MirroredJobTest, TwoGpusOfAProcessHaveTheBitsOfTwoProcesses) {
  REQUIRE_GPUS(2);
  for (const Job& plain : {mlp(), wide_deep().with({"model.sparse_tables=true"})}) {
    SCOPED_TRACE(plain.file);
    const Job job = plain.with({"steps=60", "evaluation.enabled=true", "evaluation.every_steps=10"});
    const std::string name = Path(plain.file).stem();
    const auto saved = [&](const char* which) {
      return on_gpu(job).with(checkpoints_in(directory() / (name + which), 15));
    };
    Cluster apart(directory() / (name + "-apart"),
                  saved("-a").with({"strategy.kind=ALLREDUCE", "strategy.backend=NCCL"}), {2, 0});
    apart.expect_success();
    Cluster together(directory() / (name + "-together"), mirrored(saved("-b"), 2), {1, 0});
    together.expect_success();
    EXPECT_EQ(losses_of(together.steps_file(0)), losses_of(apart.steps_file(0)));
    EXPECT_EQ(values_of_newest(directory() / (name + "-b")), values_of_newest(directory() / (name + "-a")));
    EXPECT_EQ(result_of(together.worker(0)).quality, result_of(apart.worker(0)).quality);
    EXPECT_THAT(together.worker(0).out(), AllOf(HasSubstr("/gpu:0/"), HasSubstr("/gpu:1/")));
    EXPECT_THAT(together.worker(0).err(), HasSubstr("communicator: nccl of 2 replicas"));
  }
}

TEST_F(MirroredJobTest, AllVisibleGpusAreTaken) {
  REQUIRE_GPUS(2);
  const auto trained = run("all", on_gpu(mlp().with({"steps=5", "strategy.kind=MIRRORED"})).arguments());
  EXPECT_EQ(trained->exit_code(), 0) << trained->err();
  EXPECT_THAT(trained->err(), HasSubstr("nccl of " + std::to_string(cuda_device_count()) + " replicas"));
  const auto fewer = run("fewer", on_gpu(mlp().with({"steps=5", "strategy.kind=MIRRORED"})).arguments(),
                         {{"CUDA_VISIBLE_DEVICES", "1"}});
  EXPECT_EQ(fewer->exit_code(), 0) << fewer->err();
}

TEST_F(MirroredJobTest, MoreReplicasThanGpusAreRefused) {
  REQUIRE_GPUS(1);
  const auto refused = run("refused", mirrored(mlp().with({"steps=5"}), cuda_device_count() + 1).arguments());
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("needs a GPU of its own"));
}

TEST_F(MirroredJobTest, ARequestToStopSavesAndEnds) {
  REQUIRE_GPUS(2);
  const Job job = mlp().with({"steps=1000000"}).with(checkpoints_in(directory() / "checkpoints", 1000000));
  Process trains(braid(mirrored(job, 2).arguments()), {}, directory() / "train");
  ASSERT_TRUE(reaches_step(trains, 1)) << trains.err();
  trains.signal(SIGTERM);
  EXPECT_EQ(trains.exit_code(), 143) << trains.err();
  EXPECT_EQ(checkpointed_steps(directory() / "checkpoints").back(), result_of(trains).last_step);
}

/// The second replica's rows end within the job: the first one's kernels must not wait for it for long.
TEST_F(MirroredJobTest, AReplicaThatFailsEndsTheJobWithItsName) {
  REQUIRE_GPUS(2);
  std::string good;
  for (int i = 0; i < 40; ++i) good += "1,a,0\n";
  const std::string files = write("a.csv", good) + "," + write("b.csv", good + "what,a,0\n");
  const std::string text = R"(name: "csv" steps: 5 model { name: "wide_deep" hidden: 4 embedding_dim: 2 }
    input { format: CSV shard: FILES global_batch_size: 8
      columns { name: "x" kind: NUMERIC } columns { name: "c" kind: CATEGORICAL buckets: 7 }
      columns { name: "y" kind: LABEL } }
    optimizer { kind: SGD learning_rate: 0.1 })";
  const Job job{write("csv.pbtxt", text), "", {"input.train_files=" + files, "evaluation.enabled=false"}};
  const auto trained = run("train", mirrored(job, 2).arguments());
  EXPECT_EQ(trained->exit_code(), 2) << trained->err();
  EXPECT_THAT(trained->err(), HasSubstr("replica /gpu:1: "));
}

}  // namespace
}  // namespace braid::integration
