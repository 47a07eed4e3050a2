// The same job on the same global batches gives the same losses, whoever computes it: one process, parameter
// servers, all-reduce.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>

#include "tests/integration/checkpoints.h"
#include "tests/support/missing.h"

namespace braid::integration {
namespace {

constexpr std::uint64_t kComparedSteps = 200;
constexpr double kRelative = 1e-5;
// Sooner or later a value before a ReLU is 0 to rounding, and which side it is on decides on a part of an
// update. When that is depends on the processor, whose products add in an order of their own. Until then
// losses differ by rounding.
constexpr std::size_t kRoundedSteps = 100;
constexpr double kFlipped = 1e-2;

struct How {
  const char* name;
  int servers;          // 0: all-reduce
  const char* backend;  // of all-reduce
  bool under_mpi;
};

struct What {
  const char* name;
  Job (*job)();
  const char* optimizer;
  const char* learning_rate;
};

class EquivalenceTest : public IntegrationTest, public ::testing::WithParamInterface<std::tuple<What, How>> {
 protected:
  void SetUp() override {
    if (std::get<How>(GetParam()).under_mpi && mpirun_is_missing()) GTEST_SKIP() << missing::kMpirun;
  }
  Job job() const {
    const What& what = std::get<What>(GetParam());
    return what.job().with({"steps=" + std::to_string(kComparedSteps),
                            std::string("optimizer.kind=") + what.optimizer,
                            std::string("optimizer.learning_rate=") + what.learning_rate});
  }
};

/// The mean of two workers' losses at each step.
std::vector<double> shared_losses(const Path& directory, const Job& job, const How& how) {
  if (how.servers > 0) {
    Cluster cluster(directory, job.with({"strategy.kind=PS"}), {2, how.servers});
    cluster.expect_success();
    return cluster.mean_losses();
  }
  const Job reduced = job.with({"strategy.kind=ALLREDUCE", std::string("strategy.backend=") + how.backend});
  if (!how.under_mpi) {
    Cluster cluster(directory, reduced, {2, 0});
    cluster.expect_success();
    return cluster.mean_losses();
  }
  const Job logged = reduced.with({"metrics.steps_file=" + (directory / "%r.steps").string()});
  Process mpirun(under_mpirun(2, logged.arguments()), {}, directory / "mpirun");
  EXPECT_EQ(mpirun.exit_code(), 0) << mpirun.err();
  const auto first = losses_of(directory / "worker-0.steps"),
             second = losses_of(directory / "worker-1.steps");
  EXPECT_EQ(first, second) << "every rank reports the mean over all";
  return {first.begin(), first.end()};
}

TEST_P(EquivalenceTest, TwoWorkersLoseAsMuchAsOneProcessAtEveryStep) {
  const std::vector<float> local = train("local", job());
  const std::vector<double> shared = shared_losses(directory() / "shared", job(), std::get<How>(GetParam()));
  ASSERT_EQ(local.size(), kComparedSteps);
  ASSERT_EQ(shared.size(), kComparedSteps);
  double worst = 0;
  for (std::size_t i = 0; i < kComparedSteps; ++i) {
    const double relative = std::abs(shared[i] - local[i]) / std::abs(local[i]);
    worst = std::max(worst, relative);
    ASSERT_LT(relative, i < kRoundedSteps ? kRelative : kFlipped)
        << "step " << i << ": " << local[i] << " and " << shared[i];
  }
  std::printf("largest relative difference %.2g\n", worst);
  EXPECT_LT(local.back(), local.front()) << "it learns";
}

INSTANTIATE_TEST_SUITE_P(
    All, EquivalenceTest,
    ::testing::Combine(::testing::Values(What{"mlp_adam", mlp, "ADAM", "0.001"},
                                         What{"mlp_adagrad", mlp, "ADAGRAD", "0.01"},
                                         What{"wide_deep_adam", wide_deep, "ADAM", "0.001"},
                                         What{"wide_deep_adagrad", wide_deep, "ADAGRAD", "0.05"}),
                       ::testing::Values(How{"one_server", 1, "", false}, How{"two_servers", 2, "", false},
                                         How{"ring", 0, "RING", false}, How{"mpi", 0, "MPI", true})),
    [](const auto& info) {
      return std::string(std::get<What>(info.param).name) + "_" + std::get<How>(info.param).name;
    });

/// The first `rows` lines of `from`, after `skipped` others, as a file `to`.
void copy_lines(const Path& from, const Path& to, int skipped, int rows) {
  std::ifstream in(from);
  std::ofstream out(to);
  std::string line;
  for (int i = 0; i < skipped + rows && std::getline(in, line); ++i)
    if (i >= skipped) out << line << "\n";
}

/// One step of gradient descent is linear in the gradient, so what servers hold after it lies half-way
/// between what each worker would have learned alone from its half of the batch.
/// A checkpoint that is due before a slow worker has come waits for that worker, and not the other way round.
TEST_F(IntegrationTest, AWorkerMayComeAfterTheLeaderWantsItsFirstCheckpoint) {
  const Job job =
      wide_deep().with({"steps=2", "strategy.kind=PS"}).with(checkpoints_in(directory() / "checkpoints", 1));
  Cluster cluster(directory() / "job", job, {2, 1});
  cluster.worker(1).signal(SIGSTOP);
  EXPECT_TRUE(cluster.worker(0).says("step 1/2")) << cluster.worker(0).err();
  cluster.worker(1).signal(SIGCONT);
  cluster.expect_success();
  EXPECT_EQ(checkpointed_steps(directory() / "checkpoints"), (std::vector<std::uint64_t>{1, 2}));
}

void expect_near(const std::vector<double>& losses, const std::vector<double>& expected,
                 const std::string& what) {
  ASSERT_EQ(losses.size(), expected.size()) << what;
  for (std::size_t i = 0; i < losses.size(); ++i)
    ASSERT_NEAR(losses[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << what << ", step " << i;
}

TEST_F(IntegrationTest, SiblingsMayBeBatchedUnderEveryStrategy) {
  const std::string batched = "streams.batch_siblings=ACROSS_SCOPES";
  std::vector<std::string> plan{"graph", "plan"};
  for (const std::string& argument : mmoe().with({batched}).arguments())
    if (argument != "train") plan.push_back(argument);
  EXPECT_THAT(run("plan", plan)->out(), ::testing::HasSubstr("nodes became"));
  const Job job = mmoe().with({"steps=40"});
  for (const auto& [name, shape] :
       std::map<std::string, Cluster::Shape>{{"LOCAL", {1, 0}}, {"ALLREDUCE", {2, 0}}, {"PS", {2, 1}}}) {
    std::vector<double> expected;
    for (const std::string& siblings : {std::string("streams.batch_siblings=OFF"), batched}) {
      Cluster cluster(directory() / (name + siblings), job.with({siblings, "strategy.kind=" + name}), shape);
      cluster.expect_success();
      const std::vector<double> losses = cluster.mean_losses();
      if (expected.empty()) expected = losses;
      expect_near(losses, expected, name + " " + siblings);
    }
  }
}

TEST_F(IntegrationTest, ACheckpointOfBatchedSiblingsIsOneOfTheGraphAsWritten) {
  const std::string off = "streams.batch_siblings=OFF", on = "streams.batch_siblings=ACROSS_SCOPES";
  const std::vector<float> whole = train("whole", mmoe().with({"steps=40", off}));
  std::map<std::string, Values> saved;
  for (const auto& [first, second] : {std::pair{off, on}, {on, off}}) {
    const Path root = directory() / (first + "-checkpoints");
    const Job job = mmoe().with(checkpoints_in(root, 20));
    train(first, job.with({"steps=20", first}));
    saved[first] = values_of_newest(root);
    Cluster resumed(directory() / (first + "-resumed"), job.with({"steps=40", second}), {}, {"--resume"});
    resumed.expect_success();
    expect_near(resumed.mean_losses(20), {whole.begin() + 20, whole.end()}, first + ", then " + second);
  }
  ASSERT_EQ(saved[on].size(), saved[off].size());
  for (const auto& [name, values] : saved[off]) {
    ASSERT_TRUE(saved[on].contains(name)) << name;
    EXPECT_THAT(saved[on].at(name), ::testing::Pointwise(::testing::FloatNear(1e-4F), values)) << name;
  }
}

class ServersTest : public IntegrationTest {
 protected:
  /// Values after one step on rows [begin, begin + rows) of the data.
  Values learned(const std::string& name, int begin, int rows, Cluster::Shape shape) {
    const Path data = directory() / (name + "-data"), root = directory() / (name + "-checkpoints");
    std::filesystem::create_directories(data);
    copy_lines(wide_deep().data / "adult.data", data / "adult.data", begin, rows);
    Job job = wide_deep()
                  .with(checkpoints_in(root, 1))
                  .with({"steps=1", "input.shuffle=false", "input.global_batch_size=" + std::to_string(rows),
                         "optimizer.kind=SGD", "optimizer.learning_rate=0.5",
                         shape.servers > 0 ? "strategy.kind=PS" : "strategy.kind=LOCAL"});
    job.data = data;
    Cluster cluster(directory() / name, job, shape);
    cluster.expect_success();
    return values_of_newest(root);
  }
};

TEST_F(ServersTest, HoldTheMeanOfWhatTheWorkersLearnAndNoSingleWorkersValues) {
  const Values first = learned("first", 0, 32, {}), second = learned("second", 32, 32, {});
  const Values servers = learned("servers", 0, 64, {2, 2});
  int compared = 0;
  for (const auto& [name, values] : servers) {
    if (!first.contains(name)) continue;  // a row of a sparse table
    ++compared;
    const std::vector<float>&a = first.at(name), &b = second.at(name);
    ASSERT_EQ(values.size(), a.size()) << name;
    EXPECT_NE(values, a) << name;
    EXPECT_NE(values, b) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], (a[i] + b[i]) / 2, 1e-6) << name << "[" << i << "]";
  }
  EXPECT_EQ(compared, 8) << "a matrix and a bias of each of four dense layers";
}

}  // namespace
}  // namespace braid::integration
