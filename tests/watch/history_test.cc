#include "watch/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/watch/made_job.h"

namespace braid::watch {
namespace {

using Json = nlohmann::json;

TEST(HistoryTest, ALongRunKeepsItsWholeCurveInBoundedRoom) {
  History history(100);
  for (int i = 0; i < 20'000; ++i) {
    Status s = made_worker(0);
    s.step = static_cast<std::uint64_t>(i);
    s.loss = 1.0 / (1 + i);
    history.add(s);
  }
  const Json out = Json::parse(history.to_json());
  ASSERT_LE(out["step"].size(), 100U);
  ASSERT_GE(out["step"].size(), 40U);
  EXPECT_EQ(out["step"][0], 0);
  EXPECT_GT(out["step"].back(), 19'000);
  EXPECT_EQ(out["loss"].size(), out["step"].size());
}

TEST(HistoryTest, AMetricIsKeptOncePerEvaluation) {
  History history;
  Status s = made_worker(0);
  for (int i = 0; i < 10; ++i) history.add(s);
  s.metrics_step = 2000;
  s.metrics["auc"] = 0.8;
  history.add(s);
  EXPECT_EQ(Json::parse(history.to_json())["metrics"]["auc"], Json::parse("[[1000,0.75],[2000,0.8]]"));
}

TEST(HistoryTest, WhoDoesNotTrainHasNoCurve) {
  History history;
  history.add(made_server(0));
  EXPECT_TRUE(Json::parse(history.to_json())["step"].empty());
}

}  // namespace
}  // namespace braid::watch
