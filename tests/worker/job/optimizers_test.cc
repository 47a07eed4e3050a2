// The section `optimizer` of a job: what each kind and each group of variables has.
#include "worker/job/optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using testing::HasSubstr;

proto::Job job_with(const std::string& optimizer) {
  proto::Job job =
      parse_job("model { name: 'mlp' } steps: 3 input { format: IDX global_batch_size: 8 } optimizer { " +
                    optimizer + " }",
                "j");
  fill_job_defaults(job);
  return job;
}

OptimizerSpec spec(const std::string& optimizer, const std::string& variable = "w") {
  const proto::Job job = job_with(optimizer);
  check_job(job);
  return Optimizers(job).spec_of(variable);
}

std::string refusal(const std::string& optimizer) {
  return message_of([&] { check_job(job_with(optimizer)); });
}

TEST(OptimizersTest, EachKindHasItsDefaults) {
  EXPECT_EQ(spec("learning_rate: 1"), (OptimizerSpec{.kind = OptimizerKind::Sgd}));
  EXPECT_EQ(spec("learning_rate: 1 kind: MOMENTUM"), (OptimizerSpec{.kind = OptimizerKind::Momentum}));
  EXPECT_EQ(spec("learning_rate: 1 kind: FTRL"), (OptimizerSpec{.kind = OptimizerKind::Ftrl}));
  EXPECT_EQ(spec("learning_rate: 1 kind: RMSPROP"),
            (OptimizerSpec{.kind = OptimizerKind::RmsProp, .momentum = 0, .initial_accumulator = 0}));
  EXPECT_EQ(spec("learning_rate: 1 kind: ADAM"), (OptimizerSpec{.kind = OptimizerKind::Adam}));
  EXPECT_EQ(spec("learning_rate: 1 kind: ADAMW"),
            (OptimizerSpec{.kind = OptimizerKind::Adam, .weight_decay = 0.01F}));
}

TEST(OptimizersTest, FieldsReachTheSpec) {
  EXPECT_EQ(spec("learning_rate: 1 kind: FTRL learning_rate_power: -0.7 l1: 0.1 l2: 0.2 l2_shrinkage: 0.3 "
                 "initial_accumulator: 0.4 clip_value: 0.5 weight_decay: 0.6"),
            (OptimizerSpec{.kind = OptimizerKind::Ftrl,
                           .initial_accumulator = 0.4F,
                           .weight_decay = 0.6F,
                           .learning_rate_power = -0.7F,
                           .l2_shrinkage = 0.3F,
                           .l1 = 0.1F,
                           .l2 = 0.2F,
                           .clip_value = 0.5F}));
  EXPECT_EQ(spec("learning_rate: 1 kind: RMSPROP rho: 0.8 centered: true momentum: 0.5 epsilon: 1"),
            (OptimizerSpec{.kind = OptimizerKind::RmsProp,
                           .momentum = 0.5F,
                           .epsilon = 1,
                           .initial_accumulator = 0,
                           .rho = 0.8F,
                           .centered = true}));
  EXPECT_EQ(spec("learning_rate: 1 kind: RMSPROP initial_accumulator: 1").initial_accumulator, 1);
}

TEST(OptimizersTest, AGroupWithoutAKindIsTheOthersWithItsOwnFields) {
  const std::string both =
      "learning_rate: 0.5 kind: ADAM beta1: 0.8 l2: 0.1 group { match: 'wide/.*' "
      "learning_rate: 0.25 l2: 0 epsilon: 1 }";
  const OptimizerSpec main{.kind = OptimizerKind::Adam, .beta1 = 0.8F, .l2 = 0.1F};
  OptimizerSpec wide = main;
  wide.l2 = 0;
  wide.epsilon = 1;
  wide.learning_rate_factor = 0.5F;
  EXPECT_EQ(spec(both, "wide/w"), wide);
  EXPECT_EQ(spec(both, "deep/wide/w"), main) << "a pattern is for all of a name";
}

TEST(OptimizersTest, AZeroInAGroupIsOne) {
  const std::string both = "learning_rate: 0.5 kind: ADAMW group { match: '.*/bias' weight_decay: 0 }";
  EXPECT_EQ(spec(both, "a/bias").weight_decay, 0);
  EXPECT_EQ(spec(both, "a/kernel").weight_decay, 0.01F);
  EXPECT_THAT(refusal("learning_rate: 1 group { match: 'a' learning_rate: 0 }"),
              HasSubstr("optimizer.group[0].learning_rate must be positive, got 0"));
}

TEST(OptimizersTest, AGroupWithAKindHasThatKindsDefaults) {
  const std::string both =
      "learning_rate: 0.5 kind: ADAMW l2: 0.1 clip_value: 3 group { match: 'a' kind: FTRL }";
  EXPECT_EQ(spec(both, "a"), (OptimizerSpec{.kind = OptimizerKind::Ftrl, .clip_value = 3}));
  EXPECT_EQ(spec(both).weight_decay, 0.01F);
}

TEST(OptimizersTest, TheFirstGroupThatFitsDecides) {
  const proto::Job job =
      job_with("learning_rate: 1 group { match: 'a/b' frozen: true } group { match: 'a/.*' kind: ADAGRAD }");
  const Optimizers optimizers(job);
  EXPECT_EQ(optimizers.group_of("a/b"), 1);
  EXPECT_EQ(optimizers.group_of("a/c"), 2);
  EXPECT_EQ(optimizers.group_of("b"), 0);
  EXPECT_TRUE(optimizers.frozen("a/b"));
  EXPECT_FALSE(optimizers.frozen("a/c"));
  EXPECT_FALSE(optimizers.frozen("b"));
}

TEST(OptimizersTest, AGroupOfNothingIsRefusedByItsName) {
  const proto::Job job =
      job_with("learning_rate: 1 group { match: 'a.*' } group { match: 'ab' } group { match: 'x' }");
  const Optimizers optimizers(job);
  EXPECT_EQ(message_of([&] {
              optimizers.check_groups({"a", "ab", "x"});
            }),
            "optimizer.group[1] 'ab': earlier groups match all of its variables");
  const proto::Job other = job_with("learning_rate: 1 group { match: 'x' } group { match: 'y.*' }");
  EXPECT_EQ(message_of([&] {
              Optimizers(other).check_groups({"x", "ay"});
            }),
            "optimizer.group[1] 'y.*': matches no trainable variable; there are: x, ay");
  const proto::Job frozen = job_with("learning_rate: 1 group { match: '.' frozen: true }");
  EXPECT_EQ(message_of([&] {
              Optimizers(frozen).check_groups({"a", "b"});
            }),
            "optimizer.group: all trainable variables are frozen");
  Optimizers(frozen).check_groups({"a", "bb"});
}

TEST(OptimizersTest, NumbersThatCannotBeAreRefusedByTheirField) {
  EXPECT_THAT(refusal("learning_rate: 0"), HasSubstr("optimizer.learning_rate is missing"));
  EXPECT_THAT(refusal("learning_rate: -1"), HasSubstr("optimizer.learning_rate must be positive"));
  EXPECT_THAT(refusal("learning_rate: 1 kind: RMSPROP rho: 1"), HasSubstr("optimizer.rho must be in [0, 1)"));
  EXPECT_THAT(refusal("learning_rate: 1 kind: FTRL learning_rate_power: 0.5"),
              HasSubstr("optimizer.learning_rate_power must be negative, got 0.5"));
  EXPECT_THAT(refusal("learning_rate: 1 l1: -1"), HasSubstr("optimizer.l1 must not be negative"));
  EXPECT_THAT(refusal("learning_rate: 1 clip_value: nan"), HasSubstr("optimizer.clip_value must be finite"));
  EXPECT_THAT(refusal("learning_rate: 1 accumulate_steps: 300"),
              HasSubstr("optimizer.accumulate_steps must be at most 256, got 300"));
  EXPECT_THAT(refusal("learning_rate: 1 group { match: 'a' momentum: 2 }"),
              HasSubstr("optimizer.group[0].momentum must be in [0, 1), got 2"));
}

}  // namespace
}  // namespace braid::worker
