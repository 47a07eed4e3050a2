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

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// Rows of which a rank has some batches.
struct SharedRows {
  std::shared_ptr<const Table> table;
  std::int64_t first_batch = 0;  // the number of its first batch among those of all tables
  int rank = 0, world = 1;       // this rank has those whose number in the table mod `world` is `rank`
};

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

  /// Where ranks measure together.
  struct Peers {
    comm::Communicator& communicator;
    /// The forward steps of all ranks meet: one without a batch makes a step of zeros.
    bool in_step = false;
    /// How long it may wait for another rank, which may make some batches meanwhile.
    std::chrono::nanoseconds patience = std::chrono::minutes(10);
  };
  /// The same over the rows of all ranks, each of which calls it; all have the values of all rows then, to
  /// the bits of run(). `next`: tables of which this rank has batches, then one that is null or without rows.
  /// Nothing on all of them where `stop` asks one to end. Throws also: what the communicator throws.
  using NextShared = std::function<SharedRows()>;
  std::optional<MetricValues> run_shared(const NextShared& next, const Peers& peers,
                                         std::chrono::nanoseconds batch_time, const std::stop_token& stop);

 private:
  /// False: it was not to go on.
  bool add_rows(const SharedRows& rows, std::vector<MetricSet>& sets, std::chrono::nanoseconds batch_time,
                const std::function<bool()>& goes_on);

  const ModelGraph& model_;
  const std::vector<Metric> metrics_;
  std::vector<ModelTask> tasks_;  // one without a name where the model has no tasks
  Forward forward_;
};

}  // namespace braid::worker
