// Streams, threads, staging and steps in flight change when things happen, never what is computed: every bit
// of every loss stays.
#include <gmock/gmock.h>

#include "tests/integration/run.h"

namespace braid::integration {
namespace {

class DeterminismTest : public IntegrationTest {
 protected:
  /// Trains `job` as it is, then with each of `variants`, and expects the same bits.
  void expect_same_bits(const Job& job, const std::vector<std::vector<std::string>>& variants) {
    const std::vector<float> base = train("base", job);
    ASSERT_FALSE(base.empty());
    int number = 0;
    for (const auto& variant : variants)
      EXPECT_EQ(train("variant-" + std::to_string(number++), job.with(variant)), base)
          << job.file << " " << ::testing::PrintToString(variant);
  }
};

/// Every policy with 2, 4 and 8 streams. AUTO may take another of them in every run.
std::vector<std::vector<std::string>> all_streams() {
  std::vector<std::vector<std::string>> variants{
      {"streams.policy=NONE", "streams.count=4"},
      {"streams.policy=AUTO", "streams.count=4", "streams.measure_seconds=0.1"}};
  for (const char* policy : {"USER", "COST", "FULL", "EMBEDDING"})
    for (const char* count : {"2", "4", "8"})
      variants.push_back({std::string("streams.policy=") + policy, std::string("streams.count=") + count});
  return variants;
}

const std::vector<std::string> kOneStream{"streams.policy=NONE", "streams.count=1"};

TEST_F(DeterminismTest, NumberAndPolicyOfStreamsKeepBitsOfWideDeep) {
  expect_same_bits(wide_deep().with(kOneStream).with({"steps=60"}), all_streams());
}

TEST_F(DeterminismTest, NumberAndPolicyOfStreamsKeepBitsOfLinearRegression) {
  expect_same_bits(linear_regression().with(kOneStream).with({"steps=100"}), all_streams());
}

TEST_F(DeterminismTest, NumberAndPolicyOfStreamsKeepBitsOfDlrm) {
  const Path data = directory() / "criteo";
  ASSERT_EQ(*run("criteo-data", {"data", "criteo", "--rows", "4000", "--seed", "3", "--out", data.string()})
                 ->wait({}),
            0);
  expect_same_bits(dlrm(data).with(kOneStream).with({"steps=30"}), all_streams());
}

TEST_F(DeterminismTest, S9_StreamsKeepTheBitsOfParameterServersAndOfAllReduce) {
  for (const auto& shape : {Cluster::Shape{2, 1}, Cluster::Shape{2, 0}}) {
    const Job job =
        wide_deep().with({"steps=30", shape.servers > 0 ? "strategy.kind=PS" : "strategy.kind=ALLREDUCE"});
    std::vector<float> base;
    int number = 0;
    for (const std::vector<std::string>& streams :
         {kOneStream,
          {"streams.policy=COST", "streams.count=4"},
          {"streams.policy=AUTO", "streams.count=4", "streams.measure_seconds=0.1"}}) {
      Cluster cluster(directory() / (std::to_string(shape.servers) + "-" + std::to_string(number++)),
                      job.with(streams), shape);
      cluster.expect_success();
      const std::vector<float> losses = losses_of(cluster.steps_file(1));
      if (base.empty()) base = losses;
      EXPECT_EQ(losses, base) << ::testing::PrintToString(streams) << ", " << shape.servers << " servers";
    }
  }
}

TEST_F(DeterminismTest, IntraOpThreadsKeepBits) {
  const std::vector<std::vector<std::string>> variants{{"runtime.intra_op_threads=2"},
                                                       {"runtime.intra_op_threads=3"}};
  expect_same_bits(wide_deep().with({"steps=60"}), variants);
  expect_same_bits(cnn().with({"steps=10"}), variants);
  expect_same_bits(mlp().with({"steps=40"}), variants);
}

TEST_F(DeterminismTest, StagingAndStepsInFlightKeepBits) {
  expect_same_bits(wide_deep().with({"steps=60"}), {{"staging.enabled=false"},
                                                    {"staging.num_threads=2"},
                                                    {"staging.num_threads=3", "staging.capacity=1"},
                                                    {"staging.num_threads=AUTO", "staging.capacity=AUTO"},
                                                    {"staging.auto_stage=true", "staging.num_threads=2"},
                                                    {"staging.auto_stage=true", "staging.enabled=false"},
                                                    {"runtime.steps_in_flight=1"},
                                                    {"runtime.steps_in_flight=4", "staging.capacity=8"}});
}

TEST_F(DeterminismTest, T10_AutoStageKeepsTheBitsOfParameterServersAndOfAllReduce) {
  for (const auto& shape : {Cluster::Shape{2, 1}, Cluster::Shape{2, 0}}) {
    const Job job =
        wide_deep().with({"steps=30", shape.servers > 0 ? "strategy.kind=PS" : "strategy.kind=ALLREDUCE"});
    std::vector<float> base;
    for (const std::vector<std::string>& staging :
         std::vector<std::vector<std::string>>{{}, {"staging.auto_stage=true", "staging.num_threads=2"}}) {
      Cluster cluster(directory() / (std::to_string(shape.servers) + "-" + std::to_string(staging.size())),
                      job.with(staging), shape);
      cluster.expect_success();
      const std::vector<float> losses = losses_of(cluster.steps_file(1));
      if (base.empty()) base = losses;
      EXPECT_EQ(losses, base) << shape.servers << " servers";
    }
  }
}

TEST_F(DeterminismTest, ASecondRunGivesTheSameBits) {
  for (const auto& shape : {Cluster::Shape{2, 2}, Cluster::Shape{2, 0}}) {
    const Job job =
        wide_deep().with({"steps=60", shape.servers > 0 ? "strategy.kind=PS" : "strategy.kind=ALLREDUCE"});
    std::vector<std::vector<float>> runs;
    for (const char* name : {"a", "b"}) {
      Cluster cluster(directory() / (std::to_string(shape.servers) + name), job, shape);
      cluster.expect_success();
      runs.push_back(losses_of(cluster.steps_file(1)));
    }
    EXPECT_EQ(runs[0], runs[1]) << shape.servers << " servers";
    EXPECT_EQ(runs[0].size(), 60U);
  }
}

}  // namespace
}  // namespace braid::integration
