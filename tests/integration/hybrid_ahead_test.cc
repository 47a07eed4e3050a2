// Strategy HYBRID with ids that travel a step ahead: whole jobs as processes over TCP have the bits of jobs
// whose ids travel in their own step.
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Lists, a table for two columns, and one that is replicated.
constexpr const char* kJobAhead = R"(
name: "ahead" seed: 3 steps: 20
model { name: "din" hidden: 8 embedding_dim: 12 sparse_tables: true }
input {
  format: GENERATOR generator { rows: 600 test_rows: 128 } global_batch_size: 48
  columns { name: "age" kind: NUMERIC }
  columns { name: "city" kind: CATEGORICAL buckets: 7 }
  columns { name: "shop" kind: CATEGORICAL buckets: 300 length: 3 }
  columns { name: "item" kind: CATEGORICAL buckets: 90 output: "item" }
  columns { name: "history" kind: CATEGORICAL buckets: 90 length: 5 output: "history" }
  columns { name: "clicked" kind: LABEL }
}
strategy {
  kind: HYBRID
  hybrid {
    ids: ALL
    table { match: "city.*" plan: REPLICATE }
    table { match: "shop.*" plan: COLUMN }
    table { match: ".*" plan: TABLE }
  }
}
optimizer { kind: ADAM learning_rate: 0.01 }
evaluation { enabled: false }
streams { count: 1 policy: NONE }
runtime { intra_op_threads: 1 device: CPU }
)";

class HybridAheadTest : public IntegrationTest {
 protected:
  Job job(std::vector<std::string> more = {}) const {
    return {write("job.pbtxt", kJobAhead), "", std::move(more)};
  }

  /// The losses, the same on all workers.
  std::vector<float> losses(const std::string& name, const Job& job, int workers, std::uint64_t first = 0,
                            const std::vector<std::string>& arguments = {}) const {
    Cluster cluster(directory() / name, job, {workers, 0}, arguments);
    cluster.expect_success();
    const std::vector<float> leaders = losses_of(cluster.steps_file(0), first);
    for (int w = 1; w < workers; ++w)
      EXPECT_EQ(losses_of(cluster.steps_file(w), first), leaders) << "worker " << w;
    return leaders;
  }
};

class HybridAheadRanksTest : public HybridAheadTest, public ::testing::WithParamInterface<int> {};

TEST_P(HybridAheadRanksTest, HasTheBitsOfIdsThatTravelInTheirStep) {
  const std::vector<float> in_step = losses("in step", job({"staging.enabled=false"}), GetParam());
  ASSERT_EQ(in_step.size(), 20U);
  EXPECT_LT(in_step.back(), in_step.front()) << "it learns";
  for (const std::vector<std::string>& how : {std::vector<std::string>{"steps=20"},
                                              {"staging.auto_stage=true"},
                                              {"runtime.steps_in_flight=1"},
                                              {"strategy.bucket_bytes=64"},
                                              {"streams.count=3", "streams.policy=COST"}})
    EXPECT_EQ(losses(how.front(), job(how), GetParam()), in_step) << how.front();
}

INSTANTIATE_TEST_SUITE_P(Workers, HybridAheadRanksTest, ::testing::Values(2, 3, 4));

/// The step in front of it had not its batch.
TEST_F(HybridAheadTest, TheLastRowsAreTrainedOn) {
  const std::vector<std::string> once{"steps=0", "epochs=1"};
  const std::vector<float> ahead = losses("ahead", job(once), 2);
  EXPECT_EQ(ahead.size(), 600U / 48);
  EXPECT_EQ(ahead, losses("in step", job(once).with({"staging.enabled=false"}), 2));
}

TEST_F(HybridAheadTest, AResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
  const std::vector<float> whole = losses("whole", job(), 2);
  const Path root = directory() / "checkpoints";
  losses("begun", job(checkpoints_in(root, 5)).with({"steps=10"}), 2);
  for (const auto& [file, text] : files_of_newest(root))
    EXPECT_THAT(text, Not(HasSubstr("ids_ahead"))) << file << " has what is no part of the model";
  const std::vector<float> rest = losses("resumed", job(checkpoints_in(root, 5)), 2, 10, {"--resume"});
  EXPECT_EQ(rest, std::vector<float>(whole.begin() + 10, whole.end()));
}

TEST_F(HybridAheadTest, AnEvaluationBetweenStepsChangesNothing) {
  const std::vector<float> plain = losses("plain", job(), 2);
  EXPECT_EQ(losses("evaluated", job({"evaluation.enabled=true", "evaluation.every_steps=7"}), 2), plain);
}

}  // namespace
}  // namespace braid::integration
