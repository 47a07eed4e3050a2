// Metrics against scikit-learn's on the same predictions (metric_cases.json, made by make_metric_cases.py),
// in one batch, in several, and merged.
#include "worker/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace braid::worker {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Metric metric_named(const std::string& name) {
  for (const MetricKind kind :
       {MetricKind::Accuracy, MetricKind::Auc, MetricKind::LogLoss, MetricKind::PrAuc,
        MetricKind::Calibration, MetricKind::GroupAuc, MetricKind::Rmse, MetricKind::Mae})
    if (Metric{kind}.name() == name) return {kind};
  const auto k = std::stoll(name.substr(name.rfind('_') + 1));
  for (const MetricKind kind : {MetricKind::PrecisionAtK, MetricKind::RecallAtK, MetricKind::NdcgAtK})
    if (Metric{kind, k}.name() == name) return {kind, k};
  throw Internal("no metric " + name);
}

/// A recorded case: its columns, and parts of them.
struct Case {
  explicit Case(const json& from) {
    const auto read = [&](const char* name, auto& to) {
      if (from.contains(name)) from[name].get_to(to);
    };
    read("scores", predicted);
    read("values", predicted);
    read("labels", labels);
    read("classes", classes);
    read("weights", weights);
    read("groups", groups);
    prediction = from.contains("classes")  ? Prediction::Classes
                 : from.contains("values") ? Prediction::Value
                                           : Prediction::Probability;
    for (const auto& [name, value] : from["expected"].items()) {
      metrics.push_back(metric_named(name));
      expected.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
  }
  std::size_t rows() const { return std::max(labels.size(), classes.size()); }
  MetricBatch part(std::size_t begin, std::size_t end) const {
    const auto cut = [&](const auto& column, std::size_t width = 1) {
      return column.empty() ? std::span(column)
                            : std::span(column).subspan(begin * width, (end - begin) * width);
    };
    return {cut(predicted, predicted.size() / rows()), cut(labels), cut(classes), cut(weights), cut(groups)};
  }

  std::vector<float> predicted, labels, weights;
  std::vector<std::int64_t> classes, groups;
  Prediction prediction;
  std::vector<Metric> metrics;
  std::vector<double> expected;
};

void expect_values(const MetricSet& set, const Case& its, const std::string& how) {
  const std::vector<MetricValue> values = set.values();
  ASSERT_EQ(values.size(), its.expected.size());
  for (std::size_t m = 0; m < values.size(); ++m) {
    if (std::isnan(its.expected[m]))
      EXPECT_TRUE(std::isnan(values[m].value)) << how << values[m].name << " " << values[m].value;
    else
      EXPECT_NEAR(values[m].value, its.expected[m], 1e-9) << how << values[m].name;
  }
}

TEST(MetricsTest, EqualScikitLearnOnRecordedPredictions) {
  std::ifstream file(METRIC_CASES);
  const json recorded = json::parse(file);
  ASSERT_GE(recorded["cases"].size(), 14U);
  for (const json& from : recorded["cases"]) {
    const std::string name = from["name"];
    const Case its(from);
    MetricSet whole(its.prediction, its.metrics);
    whole.add(its.part(0, its.rows()));
    expect_values(whole, its, name + ": ");

    MetricSet parts(its.prediction, its.metrics), first(its.prediction, its.metrics),
        second(its.prediction, its.metrics);
    for (std::size_t at = 0; at < its.rows(); at += 7) {
      const MetricBatch part = its.part(at, std::min(at + 7, its.rows()));
      parts.add(part);
      (at < its.rows() / 2 ? first : second).add(part);
    }
    expect_values(parts, its, name + ", in batches: ");
    first.merge(second);
    expect_values(first, its, name + ", merged: ");
    EXPECT_EQ(first.rows(), static_cast<std::int64_t>(its.rows()));
  }
}

TEST(MetricsTest, WhatTheRowsDoNotDefineIsNotANumber) {
  const std::vector<Metric> all{{MetricKind::Auc},      {MetricKind::LogLoss},  {MetricKind::PrAuc},
                                {MetricKind::GroupAuc}, {MetricKind::Accuracy}, {MetricKind::NdcgAtK, 3}};
  const MetricSet none(Prediction::Probability, all);
  for (const MetricValue& metric : none.values()) EXPECT_TRUE(std::isnan(metric.value)) << metric.name;
  MetricSet broken(Prediction::Probability, all);
  broken.add({.predicted = std::vector<float>{0.5F, std::nanf("")}, .labels = std::vector<float>{1, 0}});
  for (const MetricValue& metric : broken.values()) EXPECT_TRUE(std::isnan(metric.value)) << metric.name;
  EXPECT_EQ(metrics_text(std::vector<MetricValue>{{"auc", std::nan("")}, {"log_loss", 0.25}}),
            "auc undefined, log_loss 0.2500");
  EXPECT_TRUE((MetricValues{broken.values()}.flat().empty())) << "a checkpoint has no such numbers";
}

TEST(MetricsTest, PredictionsOfOtherRowsThanTheLabelsAreRefused) {
  MetricSet values(Prediction::Value, {{MetricKind::Rmse}}),
      classes(Prediction::Classes, {{MetricKind::Accuracy}});
  EXPECT_ERROR(values.add({.predicted = std::vector<float>{1, 2, 3}, .labels = std::vector<float>{1}}),
               InvalidArgument, HasSubstr("the model predicts 3 numbers where the label has 1"));
  EXPECT_ERROR(values.add({.predicted = std::vector<float>{1}, .labels = std::vector<float>{1, 2}}),
               InvalidArgument, HasSubstr("the model predicts 1 numbers where the label has 2"));
  EXPECT_ERROR(
      classes.add({.predicted = std::vector<float>{1, 2, 3}, .classes = std::vector<std::int64_t>{0, 1}}),
      InvalidArgument, HasSubstr("the model predicts 3 numbers where the label has 2"));
  values.add({.predicted = std::vector<float>{1, 2, 3, 4},
              .labels = std::vector<float>{1, 2, 3, 6},
              .weights = std::vector<float>{1, 0}});
  EXPECT_EQ(values.values()[0].value, 0) << "a weight is of a row, of which two numbers are predicted";
}

TEST(MetricsTest, AWeightOfARowIsThatOfEachOfItsLabels) {
  MetricSet labels(Prediction::Probability, {{MetricKind::Accuracy}, {MetricKind::Auc}});
  labels.add({.predicted = std::vector<float>{5, -5, -5, 5},
              .labels = std::vector<float>{1, 0, 1, 0},
              .weights = std::vector<float>{3, 1}});
  EXPECT_DOUBLE_EQ(labels.values()[0].value, 0.75);
  EXPECT_NEAR(labels.values()[1].value, 0.75, 1e-9);
  MetricSet places(Prediction::Classes, {{MetricKind::Accuracy}});
  places.add({.predicted = std::vector<float>{1, 0, 0, 1, 1, 0, 0, 1},
              .classes = std::vector<std::int64_t>{0, 1, 1, 0},
              .weights = std::vector<float>{1, 3}});
  EXPECT_DOUBLE_EQ(places.values()[0].value, 0.25);
}

TEST(MetricsTest, ALogLossIsNotClipped) {
  MetricSet set(Prediction::Probability, {{MetricKind::LogLoss}});
  set.add({.predicted = std::vector<float>{1000, -1000}, .labels = std::vector<float>{0, 0}});
  EXPECT_DOUBLE_EQ(set.values()[0].value, 500);
}

TEST(MetricsTest, WrongRowsAreRefused) {
  MetricSet set(Prediction::Classes, {{MetricKind::Accuracy}});
  const std::vector<float> logits{0, 1, 2, 0, 1, 2};
  const std::vector<std::int64_t> classes{2, 3};
  EXPECT_ERROR(set.add({.predicted = logits, .classes = classes}), InvalidArgument,
               HasSubstr("row 1 has the label 3, and the model 3 classes"));
  MetricSet clicks(Prediction::Probability, {{MetricKind::LogLoss}});
  EXPECT_ERROR(clicks.add({.predicted = std::vector<float>{0, 0}, .labels = std::vector<float>{0.5, 2}}),
               InvalidArgument, HasSubstr("row 1 has the label 2, and the model predicts a probability"));
  MetricSet weighted(Prediction::Value, {{MetricKind::Rmse}});
  const std::vector<float> one{1}, minus{-1};
  EXPECT_ERROR(weighted.add({.predicted = one, .labels = one, .weights = minus}), InvalidArgument,
               HasSubstr("the weight -1"));
  weighted.add({.predicted = one, .labels = one, .weights = one});
  EXPECT_ERROR(weighted.add({.predicted = one, .labels = one}), InvalidArgument,
               HasSubstr("only some of the rows have weights"));
}

TEST(MetricsTest, EachKindOfPredictionHasItsOwn) {
  EXPECT_TRUE(measures(MetricKind::LogLoss, Prediction::Classes));
  EXPECT_FALSE(measures(MetricKind::Auc, Prediction::Classes));
  EXPECT_FALSE(measures(MetricKind::Rmse, Prediction::Probability));
  EXPECT_EQ(higher_is_better(MetricKind::LogLoss), false);
  EXPECT_EQ(higher_is_better(MetricKind::GroupAuc), true);
  EXPECT_EQ(higher_is_better(MetricKind::Calibration), std::nullopt);
}

}  // namespace
}  // namespace braid::worker
