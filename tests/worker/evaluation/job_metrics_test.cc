// What a job says about metrics, for each kind of prediction.
#include "worker/evaluation/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "tests/support/expect_error.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const std::string& evaluation, Prediction predicts) {
  const proto::Job job =
      parse_job("name: 'j' model { name: 'm' } evaluation { " + evaluation + " }", "j.pbtxt");
  ModelGraph model;
  model.predicts = predicts;
  std::vector<std::string> names;
  for (const Metric& metric : job_metrics(job, model)) names.push_back(metric.name());
  return names;
}

TEST(JobMetricsTest, DefaultsFollowFromWhatTheModelPredicts) {
  EXPECT_THAT(names("", Prediction::Probability), ElementsAre("auc", "log_loss", "pr_auc", "calibration"));
  EXPECT_THAT(names("", Prediction::Classes), ElementsAre("accuracy", "log_loss"));
  EXPECT_THAT(names("", Prediction::Value), ElementsAre("rmse", "mae"));
  EXPECT_THAT(names("group_column: 'user'", Prediction::Probability),
              ElementsAre("auc", "log_loss", "pr_auc", "calibration", "group_auc"));
}

TEST(JobMetricsTest, TheOneThatDecidesIsTheFirst) {
  EXPECT_THAT(names("metric: LOG_LOSS", Prediction::Probability),
              ElementsAre("log_loss", "auc", "pr_auc", "calibration"));
  EXPECT_THAT(names("metric: LOG_LOSS metrics: [AUC, LOG_LOSS]", Prediction::Probability),
              ElementsAre("log_loss", "auc"));
  EXPECT_THAT(names("metrics: [LOG_LOSS, AUC]", Prediction::Probability), ElementsAre("auc", "log_loss"))
      << "the default one, where it is asked for";
  EXPECT_THAT(names("metrics: [CALIBRATION, LOG_LOSS]", Prediction::Probability),
              ElementsAre("log_loss", "calibration"));
  EXPECT_THAT(names("metrics: [CALIBRATION]", Prediction::Probability), ElementsAre("auc", "calibration"));
}

TEST(JobMetricsTest, EachKIsAMetricOfItsOwn) {
  EXPECT_THAT(
      names("metric: NDCG_AT_K metrics: [PRECISION_AT_K, NDCG_AT_K] k: [5, 20]", Prediction::Probability),
      ElementsAre("ndcg_at_5", "ndcg_at_20", "precision_at_5", "precision_at_20"));
  EXPECT_THAT(names("metrics: [AUC, RECALL_AT_K]", Prediction::Probability),
              ElementsAre("auc", "recall_at_10"));
}

TEST(JobMetricsTest, WhatCannotBeMeasuredIsRefused) {
  EXPECT_ERROR(
      names("metric: AUC", Prediction::Value), InvalidArgument,
      AllOf(HasSubstr("evaluation.metric AUC does not measure what model 'm' predicts, which is a value"),
            HasSubstr("these do: RMSE, MAE")));
  EXPECT_ERROR(names("metrics: [ACCURACY, RMSE]", Prediction::Classes), InvalidArgument,
               HasSubstr("evaluation.metrics RMSE"));
  EXPECT_ERROR(names("metrics: [GROUP_AUC]", Prediction::Probability), InvalidArgument,
               HasSubstr("needs evaluation.group_column"));
  EXPECT_ERROR(names("metric: CALIBRATION", Prediction::Probability), InvalidArgument,
               HasSubstr("cannot decide"));
}

}  // namespace
}  // namespace braid::worker
