#include "watch/status.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/watch/made_job.h"

namespace braid::watch {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(StatusTest, WhatIsWrittenIsReadBack) {
  Status s = made_worker(2);
  Gpu gpu;
  gpu.name = "cuda:0";
  gpu.utilization = 0.5;
  gpu.temperature_celsius = 61;
  gpu.processes.push_back({12, "braid", 1000});
  gpu.streams.push_back({"compute0", 0.25, 99});
  s.gpus.push_back(gpu);
  s.skipped_steps = 3;
  s.checkpoints = {
      .saved = 1, .last_step = 10, .age_seconds = 2, .duration_seconds = 0.5, .spent_seconds = 0.5};
  s.warnings.push_back({"slow_input", "worker 2", "a \"text\"\n", "advice"});
  s.peers.push_back({"ps 0", "10.0.0.1:8080"});
  EXPECT_EQ(to_json(status_from_json(to_json(s))), to_json(s));
  EXPECT_EQ(to_json(status_from_json(to_json(made_server(1)))), to_json(made_server(1)));
}

TEST(StatusTest, WhatARoleDoesNotHaveIsNotThere) {
  const Json server = Json::parse(to_json(made_server(0)));
  for (const char* field : {"step", "loss", "learning_rate", "examples_per_second", "checkpoints"})
    EXPECT_FALSE(server.contains(field)) << field;
  EXPECT_TRUE(server.contains("server"));
  Json worker = Json::parse(to_json(made_worker(0)));
  EXPECT_FALSE(worker.contains("server"));
  Status odd = made_worker(0);
  odd.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Json::parse(to_json(odd)).contains("loss"));
}

TEST(StatusTest, FieldsOfOtherTypesAreLeftOut) {
  const Status s = status_from_json(
      R"({"task": 7, "trains": true, "step": -3, "loss": "x", "metrics": [1], "streams": [{"busy": "a"}, 5],
          "server": 9, "process": [], "gpus": {}, "batch_rows": 1e300, "new_field": {}})");
  EXPECT_EQ(s.task, "");
  EXPECT_EQ(s.step, 0U);
  EXPECT_FALSE(s.loss);
  EXPECT_EQ(s.streams.size(), 2U);
  EXPECT_FALSE(s.server && s.server->index != 0);
  EXPECT_ERROR(status_from_json("[1]"), InvalidArgument, HasSubstr("not the status"));
  EXPECT_ERROR(status_from_json("{"), InvalidArgument, HasSubstr("not the status"));
  EXPECT_ERROR(status_from_json(std::string(200'000, '[')), InvalidArgument, HasSubstr("not the status"));
}

TEST(StatusTest, SharesAndRatesAreOfTheTimeBetweenTwoMoments) {
  Status before = made_worker(0), now = made_worker(0);
  before.time = 996;
  now.streams[0].busy_seconds = before.streams[0].busy_seconds + 2;
  now.streams[0].wait_seconds = {{"input", 1}};
  now.streams[0].launches = 1000;
  now.streams[1].busy_seconds = 2;
  now.compute_busy_seconds = before.compute_busy_seconds + 3;
  now.steps_total += 40;
  now.examples_total += 4000;
  now.step_seconds_total += 3.6;
  now.process.cpu_seconds += 8;
  now.network.sent_bytes += 400;
  set_rates(now, before);
  EXPECT_DOUBLE_EQ(now.window_seconds, 4);
  EXPECT_DOUBLE_EQ(now.streams[0].busy, 0.5);
  EXPECT_DOUBLE_EQ(now.streams[0].wait.at("input"), 0.25);
  EXPECT_DOUBLE_EQ(now.streams[0].node_seconds, 0.002);
  EXPECT_DOUBLE_EQ(now.compute_busy, 0.75);
  EXPECT_NEAR(now.overlap, 4.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(now.steps_per_second, 10);
  EXPECT_DOUBLE_EQ(now.examples_per_second, 1000);
  EXPECT_NEAR(now.step_seconds, 0.09, 1e-12);
  EXPECT_DOUBLE_EQ(now.process.cores_used, 2);
  EXPECT_DOUBLE_EQ(now.network.sent_per_second, 100);
}

TEST(StatusTest, AProcessThatBeganAnewHasNoNegativeRates) {
  Status before = made_worker(0), now = made_worker(0);
  before.time = 999;
  now.steps_total = now.examples_total = 0;
  now.streams[0].busy_seconds = -1;
  set_rates(now, before);
  EXPECT_EQ(now.steps_per_second, 0);
  EXPECT_EQ(now.examples_per_second, 0);
  EXPECT_EQ(now.streams[0].busy, 0);
  set_rates(now, now);  // no time between them: as it was
  EXPECT_DOUBLE_EQ(now.window_seconds, 1);
}

}  // namespace
}  // namespace braid::watch
