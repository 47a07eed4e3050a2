// Measures a model on rows whose truth is known: forward steps (worker/evaluation/forward.h) and the metrics
// of each task (worker/metrics/metrics.h). The column "weight", where there is one, has the rows' weights,
// and the column of groups (ReadOptions::group_column) their groups. Thread rule: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "worker/evaluation/forward.h"
#include "worker/metrics/metrics.h"

namespace braid::worker {

class Evaluator {
 public:
  /// `model` and `runtime` outlive the evaluator; `shapes` as for Forward.
  Evaluator(const ModelGraph& model, std::vector<Metric> metrics, Strategy& strategy, Runtime& runtime,
            const CompileOptions& options, const std::shared_ptr<const Table>& shapes,
            std::int64_t batch_rows);

  const Graph& graph() const { return forward_.graph(); }
  /// See Forward::bind().
  void bind() { forward_.bind(); }

  /// A table after the other; null, or one without rows, at the end.
  using NextRows = std::function<std::shared_ptr<const Table>()>;
  /// Over all those rows, with the variables' present values; nothing when `stop` asks to end it between two
  /// batches. `batch_time`: how long one batch may take. Throws what a batch threw.
  std::optional<MetricValues> run(const NextRows& next, std::chrono::nanoseconds batch_time,
                                  const std::stop_token& stop);
  std::optional<MetricValues> run(const std::shared_ptr<const Table>& table,
                                  std::chrono::nanoseconds batch_time, const std::stop_token& stop);

 private:
  const ModelGraph& model_;
  const std::vector<Metric> metrics_;
  std::vector<ModelTask> tasks_;  // one without a name where the model has no tasks
  Forward forward_;
};

}  // namespace braid::worker
