#include "worker/evaluation/job_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using proto::Evaluation;

constexpr std::array kKinds = {
    std::pair{Evaluation::ACCURACY, MetricKind::Accuracy},
    std::pair{Evaluation::AUC, MetricKind::Auc},
    std::pair{Evaluation::LOG_LOSS, MetricKind::LogLoss},
    std::pair{Evaluation::PR_AUC, MetricKind::PrAuc},
    std::pair{Evaluation::CALIBRATION, MetricKind::Calibration},
    std::pair{Evaluation::GROUP_AUC, MetricKind::GroupAuc},
    std::pair{Evaluation::PRECISION_AT_K, MetricKind::PrecisionAtK},
    std::pair{Evaluation::RECALL_AT_K, MetricKind::RecallAtK},
    std::pair{Evaluation::NDCG_AT_K, MetricKind::NdcgAtK},
    std::pair{Evaluation::RMSE, MetricKind::Rmse},
    std::pair{Evaluation::MAE, MetricKind::Mae},
};

const char* prediction_text(Prediction prediction) {
  switch (prediction) {
    case Prediction::Probability:
      return "a probability";
    case Prediction::Classes:
      return "classes";
    case Prediction::Value:
      break;
  }
  return "a value";
}

class Reader {
 public:
  Reader(const proto::Job& job, const ModelGraph& model) : job_(job), model_(model) {}

  std::vector<Metric> read() {
    const Evaluation& evaluation = job_.evaluation();
    if (evaluation.metric() != Evaluation::NO_METRIC) {
      add("metric", evaluation.metric());
      if (!higher_is_better(metrics_[0].kind))
        refuse(
            fmt::format("evaluation.metric {} cannot decide which checkpoint is better: it is best at 1; "
                        "evaluation.metrics measures it",
                        Evaluation::Metric_Name(evaluation.metric())));
    }
    for (const int metric : evaluation.metrics()) add("metrics", static_cast<Evaluation::Metric>(metric));
    if (evaluation.metrics().empty()) {
      for (const Metric& metric : default_metrics(model_.predicts)) add(metric);
      if (!evaluation.group_column().empty()) add({MetricKind::GroupAuc});
    }
    if (evaluation.metric() == Evaluation::NO_METRIC) put_the_default_first();
    return std::move(metrics_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument("job '" + job_.name() + "': " + what);
  }

  /// Of the metrics that are listed, the default one decides, else the first that can.
  void put_the_default_first() {
    auto first = std::find(metrics_.begin(), metrics_.end(), default_metrics(model_.predicts)[0]);
    if (first == metrics_.end())
      first = std::find_if(metrics_.begin(), metrics_.end(),
                           [](const Metric& metric) { return higher_is_better(metric.kind).has_value(); });
    if (first == metrics_.end()) {
      metrics_.insert(metrics_.begin(), default_metrics(model_.predicts)[0]);
      return;
    }
    std::rotate(metrics_.begin(), first, first + 1);
  }

  void add(const char* field, Evaluation::Metric asked) {
    const auto found =
        std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& each) { return each.first == asked; });
    if (found == kKinds.end()) refuse(fmt::format("evaluation.{} has NO_METRIC", field));
    const MetricKind kind = found->second;
    if (!measures(kind, model_.predicts)) {
      std::string known;
      for (const auto& [name, each] : kKinds)
        if (measures(each, model_.predicts))
          known += (known.empty() ? "" : ", ") + Evaluation::Metric_Name(name);
      refuse(fmt::format(
          "evaluation.{} {} does not measure what model '{}' predicts, which is {}; these do: {}", field,
          Evaluation::Metric_Name(asked), model_text(job_.model()), prediction_text(model_.predicts), known));
    }
    if (needs_groups(kind) && job_.evaluation().group_column().empty())
      refuse(fmt::format("evaluation.{} {} needs evaluation.group_column", field,
                         Evaluation::Metric_Name(asked)));
    if (!has_k(kind)) return add({kind});
    constexpr std::int64_t kDefault = 10;
    if (job_.evaluation().k().empty()) return add({kind, kDefault});
    for (const std::int64_t k : job_.evaluation().k()) add({kind, k});
  }

  void add(const Metric& metric) {
    if (std::find(metrics_.begin(), metrics_.end(), metric) == metrics_.end()) metrics_.push_back(metric);
  }

  const proto::Job& job_;
  const ModelGraph& model_;
  std::vector<Metric> metrics_;
};

}  // namespace

std::vector<Metric> job_metrics(const proto::Job& job, const ModelGraph& model) {
  return Reader(job, model).read();
}

}  // namespace braid::worker
