// What a job that goes on may change, and what it is told of the rest.
#include "worker/run/resumed_job.h"

#include <gmock/gmock.h>

#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

proto::Job wide_deep() {
  proto::Job job;
  job.set_seed(4);
  job.mutable_model()->set_name("wide_deep");
  job.mutable_optimizer()->set_kind(proto::Optimizer::ADAGRAD);
  job.mutable_optimizer()->set_learning_rate(0.1F);
  return job;
}

CheckpointMeta checkpoint_of(const proto::Job& job) {
  CheckpointMeta meta;
  meta.attributes = resumed_attributes(job);
  return meta;
}

TEST(ResumedJobTest, RatesStepsStreamsAndStrategiesAreNoChange) {
  proto::Job job = wide_deep();
  job.mutable_optimizer()->set_learning_rate(0.001F);
  job.mutable_optimizer()->add_group()->set_learning_rate(0.5F);
  job.set_steps(1000);
  job.mutable_streams()->set_count(4);
  job.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  EXPECT_THAT(job_changes(checkpoint_of(wide_deep()), job), IsEmpty());
}

TEST(ResumedJobTest, ModelOptimizersSeedAndOrderAre) {
  proto::Job job = wide_deep();
  job.set_seed(5);
  job.mutable_model()->set_name("dlrm");
  proto::OptimizerGroup& group = *job.mutable_optimizer()->add_group();
  group.set_match("deep/.*");
  group.set_kind(proto::Optimizer::ADAM);
  job.mutable_input()->set_shuffle(false);
  EXPECT_THAT(
      job_changes(checkpoint_of(wide_deep()), job),
      ElementsAre("input's order was shuffled and is that of the rows",
                  "model.name was wide_deep and is dlrm",
                  "optimizer.kind was ADAGRAD and is ADAGRAD; ADAM for deep/.*", "seed was 4 and is 5"));
}

TEST(ResumedJobTest, OfACheckpointOfAnotherProgramNothingIsKnown) {
  EXPECT_THAT(job_changes(CheckpointMeta(), wide_deep()), IsEmpty());
}

TEST(ResumedJobTest, CursorsAreComparedButForWhereTheyAre) {
  EXPECT_THAT(cursor_changes("ticket=3 epoch=0 position=192 rows=400 batch=64 seed=4",
                             "ticket=3 epoch=1 position=96 rows=300 batch=64 seed=4"),
              ElementsAre("the input's rows was 400 and is 300"));
  EXPECT_THAT(cursor_changes("ticket=3 rows=400 batch=64", "ticket=3 batch=32 stream=0f"),
              ElementsAre("the input's batch was 64 and is 32", "the input's rows was 400 and is not there",
                          "the input's stream was not there and is 0f"));
  EXPECT_THAT(cursor_changes("ticket=3 batch=64 seed=4", "ticket=3 batch=32 seed=5", false),
              ElementsAre("the input's batch was 64 and is 32"));
  EXPECT_THAT(cursor_changes("ticket=3 batch=64 stream=0e", "ticket=3 batch=64 stream=0f"),
              ElementsAre("files that are streamed, or settings of their order, are others"));
}

}  // namespace
}  // namespace braid::worker
