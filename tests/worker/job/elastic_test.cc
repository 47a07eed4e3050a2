// What strategy.elastic says, and what it does not go with.
#include "worker/job/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

proto::Job job_of(const std::vector<std::string>& set) {
  return load_job_text(R"(name: "j" steps: 3 model { name: "wide_deep" }
                          input { format: NPY train_files: "a.npy" global_batch_size: 24 }
                          optimizer { kind: SGD learning_rate: 0.1 }
                          strategy { kind: ALLREDUCE })",
                       "test", set);
}

TEST(ElasticJobTest, AnAbsentMessageIsNoElasticJob) { EXPECT_FALSE(elastic_limits(job_of({})).has_value()); }

TEST(ElasticJobTest, LimitsHaveDefaults) {
  const auto limits = elastic_limits(job_of({"strategy.elastic.min_workers=2"}));
  ASSERT_TRUE(limits.has_value());
  EXPECT_EQ(limits->min_workers, 2);
  EXPECT_EQ(limits->max_workers, 24) << "a worker has a row at least";
  EXPECT_EQ(limits->wait, 120s);
  EXPECT_EQ(limits->silence, 60s) << "as strategy.deadline_seconds";
  const auto some =
      elastic_limits(job_of({"strategy.elastic.max_workers=4", "strategy.elastic.wait_seconds=1.5",
                             "strategy.deadline_seconds=2"}));
  EXPECT_EQ(some->min_workers, 1);
  EXPECT_EQ(some->max_workers, 4);
  EXPECT_EQ(some->wait, 1500ms);
  EXPECT_EQ(some->silence, 2s);
}

TEST(ElasticJobTest, WhatKeepsStateOnOneWorkerIsRefused) {
  const auto refusal = [](const std::string& what) {
    return message_of([&] { job_of({"strategy.elastic.min_workers=1", what}); });
  };
  for (const char* kind : {"PS_ALLREDUCE", "PIPELINE", "LOCAL"})
    EXPECT_THAT(refusal(std::string("strategy.kind=") + kind),
                HasSubstr("strategy.elastic is for strategy.kind ALLREDUCE"));
  EXPECT_THAT(refusal("strategy.compression.kind=INT8"), HasSubstr("strategy.compression, whose state"));
  EXPECT_THAT(refusal("strategy.shard=GRADIENTS"), HasSubstr("strategy.shard, whose state"));
  EXPECT_THAT(refusal("strategy.average_every_steps=2"), HasSubstr("average_every_steps, whose state"));
  EXPECT_THAT(refusal("strategy.reduction=TRIMMED_MEAN"), HasSubstr("min_workers must be above 2, and is 1"));
  EXPECT_THAT(refusal("strategy.backend=MPI"), HasSubstr("MPI ends all ranks with one"));
  EXPECT_THAT(refusal("input.shard=ROWS"), HasSubstr("strategy.elastic needs input.shard ALL"));
  EXPECT_THAT(refusal("strategy.elastic.max_workers=1025"), HasSubstr("strategy.elastic.max_workers"));
  EXPECT_THAT(refusal("strategy.elastic.wait_seconds=-1"), HasSubstr("strategy.elastic.wait_seconds"));
}

TEST(ElasticJobTest, WorkersWithPartsOfTablesChangeOverACheckpointThatAllWrite) {
  const auto hybrid = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"strategy.elastic.min_workers=1", "strategy.kind=HYBRID"});
    return more;
  };
  EXPECT_TRUE(spreads_state(job_of(hybrid({"checkpoint.directory=/tmp/parts"}))));
  EXPECT_FALSE(spreads_state(job_of({"strategy.kind=HYBRID"}))) << "its workers do not change";
  EXPECT_FALSE(spreads_state(job_of({"strategy.elastic.min_workers=1"})));
  const auto refusal = [&](std::vector<std::string> more) {
    return message_of([&] { job_of(hybrid(std::move(more))); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("needs checkpoint.directory, which all workers see"));
  EXPECT_THAT(refusal({"checkpoint.directory=/tmp/parts", "checkpoint.every_seconds=1"}),
              HasSubstr("set checkpoint.every_steps"));
  EXPECT_THAT(refusal({"checkpoint.directory=/tmp/parts", "strategy.backend=NCCL"}),
              HasSubstr("needs strategy.backend RING"));
}

TEST(ElasticJobTest, UnderServersThereArePlacesWhereNobodyWaits) {
  const std::vector<std::string> servers{"strategy.kind=PS", "strategy.consistency=ASP",
                                         "input.shard=DYNAMIC", "input.carry_remainder=false"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), servers.begin(), servers.end());
    return more;
  };
  const proto::Job job = job_of(with({"strategy.elastic.max_workers=8"}));
  EXPECT_EQ(open_places(job), 8);
  EXPECT_FALSE(elastic_limits(job).has_value()) << "no worlds are made";
  EXPECT_FALSE(open_places(job_of(servers)).has_value());
  EXPECT_FALSE(open_places(job_of({"strategy.elastic.max_workers=8"})).has_value());

  const auto refusal = [&](const std::vector<std::string>& more) {
    return message_of([&] { job_of(with(more)); });
  };
  EXPECT_THAT(refusal({"strategy.elastic.min_workers=1"}),
              HasSubstr("strategy.elastic.max_workers is needed under PS"));
  EXPECT_THAT(refusal({"strategy.elastic.max_workers=4", "strategy.elastic.min_workers=2"}),
              HasSubstr("no worker waits for others"));
  for (const char* what : {"strategy.consistency=BSP", "strategy.consistency=SSP", "input.shard=ALL"})
    EXPECT_NE(refusal({"strategy.elastic.max_workers=4", what}), "") << what;
  EXPECT_THAT(refusal({"strategy.elastic.max_workers=4", "input.shard=ALL"}),
              HasSubstr("consistency ASP with input.shard DYNAMIC"));
}

}  // namespace
}  // namespace braid::worker
