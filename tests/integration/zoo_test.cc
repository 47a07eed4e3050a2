// Every model of the zoo that has a job file of its own kind: it learns, alone and on parameter servers and
// by all-reduce, and streams keep its bits.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/integration/checkpoints.h"
#include "tests/support/made_data.h"
#include "tests/support/outside_data.h"

namespace braid::integration {
namespace {

struct ZooModel {
  const char* name;
  const char* file;
  const char* data;  // "criteo", "images": these are made; "": the job makes its own
  std::vector<std::string> set;
  int steps;
  double falls_to;  // the last steps' loss, as a share of the first ones'
};

void PrintTo(const ZooModel& model, std::ostream* out) { *out << model.name; }

double mean(const std::vector<double>& losses, std::size_t begin, std::size_t count) {
  const auto first = losses.begin() + static_cast<std::ptrdiff_t>(begin);
  return std::accumulate(first, first + static_cast<std::ptrdiff_t>(count), 0.0) / static_cast<double>(count);
}

class ZooTest : public IntegrationTest {
 protected:
  /// The shipped job with `set`, on the CPU, without evaluation.
  Job job_of(const char* file, const std::string& data, std::vector<std::string> set) {
    set.insert(set.end(), {"runtime.intra_op_threads=1", "runtime.device=CPU", "evaluation.enabled=false",
                           "streams.policy=NONE", "streams.count=1"});
    if (data == "images") return {file, image_folder(), std::move(set)};
    if (data.empty()) return {file, "", std::move(set)};
    const Path rows = directory() / "criteo";
    const auto made =
        run("criteo-data", {"data", "criteo", "--rows", "6000", "--seed", "3", "--out", rows.string()});
    EXPECT_EQ(made->exit_code(), 0) << made->err();
    return {file, rows, std::move(set)};
  }

  std::unique_ptr<Process> evaluated(const std::string& name, const Job& job) {
    auto process = run(name, job.with({"evaluation.enabled=true"}).arguments());
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    return process;
  }
};

class ZooModelTest : public ZooTest, public ::testing::WithParamInterface<ZooModel> {
 protected:
  Job job() {
    std::vector<std::string> set = GetParam().set;
    set.push_back("steps=" + std::to_string(GetParam().steps));
    return job_of(GetParam().file, GetParam().data, std::move(set));
  }
  void expect_falling(const std::vector<double>& losses) {
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(GetParam().steps));
    const std::size_t few = losses.size() / 5;
    EXPECT_LT(mean(losses, losses.size() - few, few), GetParam().falls_to * mean(losses, 0, few));
  }
};

TEST_P(ZooModelTest, LearnsAloneAndOnServersAndByAllReduceAndStreamsKeepItsBits) {
  const Job alone = job();
  const std::vector<float> local = train("one-stream", alone);
  expect_falling({local.begin(), local.end()});

  for (const char* policy : {"USER", "COST"})
    EXPECT_EQ(train(policy, alone.with({std::string("streams.policy=") + policy, "streams.count=4"})), local)
        << policy << " on four streams";

  for (const auto& [name, shape] : {std::pair{"PS", Cluster::Shape{2, 1}}, {"ALLREDUCE", {2, 0}}}) {
    Cluster cluster(directory() / name, alone.with({std::string("strategy.kind=") + name}), shape);
    cluster.expect_success();
    const std::vector<double> shared = cluster.mean_losses();
    expect_falling(shared);
    // Each worker normalises by the statistics of its own half of a batch.
    const double allowed = std::string(GetParam().name) == "resnet18" ? 0.2 : 1e-4;
    EXPECT_NEAR(shared[0], local[0], allowed * local[0]) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ZooModelTest,
    ::testing::Values(
        ZooModel{"deepfm",
                 "deepfm_criteo.pbtxt",
                 "criteo",
                 {"input.global_batch_size=64", "model.hash_buckets=1000"},
                 80,
                 0.97},
        ZooModel{"dcn_v2",
                 "dcn_v2_criteo.pbtxt",
                 "criteo",
                 {"input.global_batch_size=64", "model.hash_buckets=1000"},
                 200,
                 0.97},
        ZooModel{"mmoe", "mmoe_generated.pbtxt", "", {"input.global_batch_size=64"}, 100, 0.95},
        ZooModel{"din", "din_generated.pbtxt", "", {"input.global_batch_size=64"}, 100, 0.98},
        ZooModel{"transformer", "transformer_generated.pbtxt", "", {"input.global_batch_size=32"}, 80, 0.95},
        ZooModel{"resnet18",
                 "fashion_mnist_resnet18.pbtxt",
                 "images",
                 {"input.global_batch_size=16", "model.hidden=4,8,8,16", "schedule.warmup_steps=5"},
                 40,
                 0.9}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(ZooTest, EvaluationMeasuresBothTasksOfMmoe) {
  const Job job = job_of("mmoe_generated.pbtxt", "", {});
  const Result result = result_of(*evaluated("mmoe", job));
  ASSERT_EQ(result.tasks.size(), 2U);
  EXPECT_GT(result.tasks.at("click"), 0.75);
  EXPECT_GT(result.tasks.at("purchase"), 0.75);
  EXPECT_NE(result.tasks.at("click"), result.tasks.at("purchase"));
  EXPECT_NEAR(*result.quality, (result.tasks.at("click") + result.tasks.at("purchase")) / 2, 1e-9);
}

TEST_F(ZooTest, DinLearnsFromHistories) {
  EXPECT_GT(*result_of(*evaluated("din", job_of("din_generated.pbtxt", "", {}))).quality, 0.75);
}

TEST_F(ZooTest, TransformerTellsFourClassesApart) {
  EXPECT_GT(*result_of(*evaluated("transformer", job_of("transformer_generated.pbtxt", "", {}))).quality,
            0.85);
}

TEST_F(ZooTest, RealRowsInTheCriteoLayoutTrain) {
  const Path data = outside_data("criteo");
  SKIP_WITHOUT_OUTSIDE_DATA(data);
  const std::vector<std::string> common{"steps=30", "input.global_batch_size=50", "evaluation.enabled=false",
                                        "runtime.device=CPU", "streams.policy=NONE"};
  for (const char* file :
       {"deepctr_sample/criteo_sample.txt", "dlrover_deeprec/data_kaggle_ad_ctr_train.csv"})
    for (const char* model : {"dlrm", "deepfm", "dcn_v2"}) {
      const Job job = Job{std::string(model) + "_criteo.pbtxt", data, common}.with(
          {std::string("input.train_files=") + file});
      const std::vector<float> losses = train(model, job);
      ASSERT_EQ(losses.size(), 30U);
      EXPECT_LT(losses.back(), 0.5 * losses.front()) << model << " learns 200 rows by heart: " << file;
    }
}

TEST_F(ZooTest, AModelThatDoesNotFitItsJobIsRefused) {
  const auto expect_refused = [this](const char* file, std::vector<std::string> set, const char* says) {
    const auto process = run("refused", job_of(file, "", std::move(set)).arguments());
    EXPECT_EQ(process->exit_code(), 2) << says;
    EXPECT_THAT(process->err(), ::testing::HasSubstr(says));
  };
  expect_refused("transformer_generated.pbtxt", {"model.embedding_dim=30"},
                 "model 'transformer': embedding_dim must be a multiple of 4 heads, got 30");
  expect_refused(
      "mmoe_generated.pbtxt", {"model.tasks=click,refund"},
      "model 'mmoe' reads column 'refund', but the input has only: click, dense, purchase, sparse");
  expect_refused("mmoe_generated.pbtxt", {"model.name=din"}, "model 'din' reads column 'history'");
  expect_refused("mmoe_generated.pbtxt", {"model.experts=-1"}, "model.experts must not be negative");
  expect_refused("mmoe_generated.pbtxt", {"model.embedding_init=-0.1"},
                 "model.embedding_init must not be negative");
}

/// A small ResNet on few images, whose evaluation uses the statistics that its steps have stored.
class ResNetTest : public ZooTest {
 protected:
  Job job(int steps) {
    return job_of("fashion_mnist_resnet18.pbtxt", "images",
                  {"input.global_batch_size=32", "model.hidden=4,8,8,16", "schedule.warmup_steps=5",
                   "schedule.kind=CONSTANT", "steps=" + std::to_string(steps)});
  }
};

TEST_F(ResNetTest, WidthsAreThoseOfFourStages) {
  const auto process = run("refused", job(1).with({"model.hidden=4,8"}).arguments());
  EXPECT_EQ(process->exit_code(), 2);
  EXPECT_THAT(process->err(),
              ::testing::HasSubstr("model 'resnet18': hidden takes the widths of four stages, got 2"));
}

TEST_F(ResNetTest, PredictsWithStoredStatistics) {
  const Job job = this->job(60).with(checkpoints_in(directory() / "checkpoints", 60));
  EXPECT_GT(*result_of(*evaluated("resnet", job)).quality, 0.4);
  const Values values = values_of_newest(directory() / "checkpoints");
  ASSERT_TRUE(values.contains("stem/conv/mean"));
  EXPECT_NE(values.at("stem/conv/mean"), std::vector<float>(4, 0.0F));
  EXPECT_NE(values.at("stem/conv/variance"), std::vector<float>(4, 1.0F));
}

TEST_F(ResNetTest, AServersCheckpointHasTheStatisticsOfTheLeader) {
  const Job whole = job(6).with({"strategy.kind=PS"}).with(checkpoints_in(directory() / "whole", 6));
  Cluster uninterrupted(directory() / "a", whole, {2, 1});
  uninterrupted.expect_success();
  const Values expected = values_of_newest(directory() / "whole");
  ASSERT_TRUE(expected.contains("stem/conv/mean"));

  const Job cut = job(6).with({"strategy.kind=PS"}).with(checkpoints_in(directory() / "cut", 3));
  Cluster first(directory() / "b", cut.with({"steps=3"}), {2, 1});
  first.expect_success();
  Cluster second(directory() / "c", cut, {2, 1}, {"--resume"});
  second.expect_success();
  const Values resumed = values_of_newest(directory() / "cut");
  for (const char* name : {"stem/conv/mean", "stem/conv/variance", "stage3_block1/conv1/mean"})
    EXPECT_EQ(resumed.at(name), expected.at(name)) << name;
}

}  // namespace
}  // namespace braid::integration
