// How well a model predicts: any number of measures over the same rows, which come in batches. Sums are
// double, of each batch in the order of its rows and then in the order of the batches; what ranks rows
// (worker/metrics/ranking.h) keeps their scores, 5 bytes a row and 4 more for a weight, 8 for a group; the
// rest keeps sums alone. Thread rule: one object, one thread.
//
//   a probability, by its logit z and a label y in {0, 1}
//     log loss      mean of log(1 + e^z) - y z: the cross entropy of sigmoid(z), without clipping
//     calibration   sum of sigmoid(z) over sum of y: above 1 the model promises too much
//     accuracy      share of rows where z > 0 says y
//     and those of ranking.h
//   classes, by logits z_c and a label
//     log loss      mean of log(sum_c e^(z_c)) - z_label, the cross entropy of softmax(z)
//     accuracy      share of rows whose largest logit is the label's, the first of equal ones
//   a value:  RMSE, MAE
// Means and sums are weighted where rows have weights. A measure that the rows do not define (one class only,
// no rows, weights of 0, a prediction that is not a number) is NaN.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/wait_context.h"
#include "models/model.h"
#include "worker/metrics/ranking.h"
#include "worker/metrics/score_runs.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

enum class MetricKind {
  Accuracy,
  Auc,
  LogLoss,
  PrAuc,
  Calibration,
  GroupAuc,
  PrecisionAtK,
  RecallAtK,
  NdcgAtK,
  Rmse,
  Mae,
};

struct Metric {
  MetricKind kind = MetricKind::Auc;
  std::int64_t k = 0;  // of those at k

  /// "auc", "precision_at_10": in results, logs, checkpoints and Prometheus.
  std::string name() const;
  bool operator==(const Metric&) const = default;
};

bool has_k(MetricKind kind);
bool needs_groups(MetricKind kind);
bool measures(MetricKind kind, Prediction prediction);
/// Whether ranks that each have some of the rows can find it together: what does not look at groups.
bool can_be_shared(const Metric& metric);
/// Nothing where neither is better: a calibration is best at 1.
std::optional<bool> higher_is_better(MetricKind kind);

/// What a model is judged by where its job does not say: the first one decides.
std::vector<Metric> default_metrics(Prediction prediction);

struct MetricValue {
  std::string name;
  double value = 0;
};

/// The predictions and truths of some rows. What does not belong to the kind of prediction is empty.
struct MetricBatch {
  std::span<const float> predicted = {};       // logits [B], logits [B, classes], or values [B]
  std::span<const float> labels = {};          // of a probability or a value, [B]
  std::span<const std::int64_t> classes = {};  // of classes, [B]
  std::span<const float> weights = {};         // [B], also where a row has several labels; empty: 1 each
  std::span<const std::int64_t> groups = {};   // [B], likewise; empty: none
  std::int64_t number = -1;                    // of all batches that ranks share; -1: the next
};

class MetricSet {
 public:
  MetricSet(Prediction prediction, std::vector<Metric> metrics);

  /// Throws: InvalidArgument (a weight below 0 or not finite, a class that has no logit, weights or groups in
  /// some batches only).
  void add(const MetricBatch& batch);
  /// The rows of `later` come behind these. Throws: as add().
  void merge(const MetricSet& later);
  /// In the order of the metrics.
  std::vector<MetricValue> values() const;
  std::int64_t rows() const { return rows_; }

  /// The set becomes that of all ranks, each of which has some of the batches, by their numbers; all ranks
  /// call it. values() has the bits then that one process finds of all batches. Throws: as the communicator;
  /// InvalidArgument where rows have weights or groups, or a metric cannot be shared.
  void share(comm::Communicator& communicator, const WaitContext& wait);

 private:
  /// Over rows, weighted.
  struct Sums {
    double weight = 0;
    double right = 0, log_loss = 0;
    double promised = 0, observed = 0;  // probabilities and labels
    double squared = 0, absolute = 0;   // errors
    void add(const Sums& later);
  };
  struct Shared {
    double auc = kUndefined, pr_auc = kUndefined;
  };

  Sums add_probability(const MetricBatch& batch);
  Sums add_classes(const MetricBatch& batch) const;
  Sums add_values(const MetricBatch& batch) const;
  bool ranks_by_runs() const { return ranked_.weights.empty(); }
  bool has(MetricKind kind) const;
  Shared rank_runs(const RunPart& part, comm::Communicator* communicator, const WaitContext& wait) const;
  void share_sums(comm::Communicator& communicator, const WaitContext& wait);
  /// Throws: InvalidArgument where predictions, labels and weights are not of the same rows.
  void require_sizes(const MetricBatch& batch, std::size_t truths) const;
  void require_alike(bool weighted, bool grouped, bool first);
  double value_of(const Metric& metric, const Shared& ranked, std::span<const std::size_t> order,
                  std::span<const std::size_t> group_order) const;

  // Set once.
  Prediction prediction_;
  std::vector<Metric> metrics_;
  bool ranks_ = false;

  std::int64_t rows_ = 0;
  bool weighted_ = false, grouped_ = false, not_a_number_ = false;
  Sums sums_;
  std::vector<std::int64_t> numbers_;  // of batches
  std::vector<Sums> batches_;          // what sums_ has of each, until share()
  std::optional<Shared> shared_;       // behind share()
  RankedRows ranked_;
};

/// What an evaluation says.
struct MetricValues {
  std::vector<MetricValue> values;                                           // of several tasks the means
  std::vector<std::pair<std::string, std::vector<MetricValue>>> tasks = {};  // of each
  std::int64_t rows = 0;

  /// Throws: Internal when it was not measured.
  double value(const std::string& metric) const;
  /// "auc" and "auc/<task>", as checkpoints store them; without those that are not defined.
  std::vector<MetricValue> flat() const;
};

/// "auc 0.7712, log_loss 0.3520"; "undefined" for NaN.
std::string metrics_text(std::span<const MetricValue> values);
/// Logs that of step `step`, and of each task.
void log_metrics(std::uint64_t step, const MetricValues& measured);

}  // namespace braid::worker
