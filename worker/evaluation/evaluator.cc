#include "worker/evaluation/evaluator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"

namespace braid::worker {
namespace {

constexpr const char* kWeightColumn = "weight";

std::vector<ModelTask> tasks_of(const ModelGraph& model) {
  if (!model.tasks.empty()) return model.tasks;
  return {{"", model.prediction, model.label}};
}

std::vector<std::string> predictions_of(const std::vector<ModelTask>& tasks) {
  std::vector<std::string> predictions;
  for (const ModelTask& task : tasks) predictions.push_back(task.prediction);
  return predictions;
}

/// The columns beside the model's that a measurement needs, each at its place among them.
struct Further {
  explicit Further(const Table& table, const std::vector<ModelTask>& tasks) {
    for (const ModelTask& task : tasks) columns.push_back(task.label);
    if (table.find(kWeightColumn)) weights = add(kWeightColumn);
    if (table.find(kGroupColumn)) groups = add(kGroupColumn);
  }
  std::size_t add(const char* column) {
    columns.emplace_back(column);
    return columns.size() - 1;
  }

  std::vector<std::string> columns;  // the tasks' labels first
  std::optional<std::size_t> weights, groups;
};

MetricValues metrics_of(const std::vector<ModelTask>& tasks, const std::vector<MetricSet>& sets) {
  MetricValues measured;
  measured.values = sets[0].values();
  measured.rows = sets[0].rows();
  if (tasks[0].name.empty()) return measured;
  for (MetricValue& mean : measured.values) mean.value = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    measured.tasks.emplace_back(tasks[t].name, sets[t].values());
    for (std::size_t m = 0; m < measured.values.size(); ++m)
      measured.values[m].value += measured.tasks[t].second[m].value / static_cast<double>(tasks.size());
  }
  return measured;
}

/// Labels that a graph reads as integers, as numbers in `made`; those of floats where they are.
std::span<const float> numbers_of(const Tensor& labels, std::vector<float>& made) {
  if (labels.dtype() == DType::Float32) return labels.data<float>();
  const auto integers = labels.data<std::int64_t>();
  made.assign(integers.begin(), integers.end());
  return made;
}

/// Labels that are classes; of a share of each class [..., classes] the class with the largest.
std::span<const std::int64_t> classes_of(const Tensor& labels, const Tensor& logits,
                                         std::vector<std::int64_t>& made) {
  if (labels.dtype() == DType::Int64) return labels.data<std::int64_t>();
  const auto shares = labels.data<float>();
  const auto classes = static_cast<std::ptrdiff_t>(logits.shape()[logits.shape().rank() - 1]);
  for (auto row = shares.begin(); shares.end() - row >= classes; row += classes)
    made.push_back(std::max_element(row, row + classes) - row);
  return made;
}

}  // namespace

Evaluator::Evaluator(const ModelGraph& model, std::vector<Metric> metrics, Strategy& strategy,
                     Runtime& runtime, const CompileOptions& options,
                     const std::shared_ptr<const Table>& shapes, std::int64_t batch_rows)
    : model_(model),
      metrics_(std::move(metrics)),
      tasks_(tasks_of(model)),
      forward_(model, predictions_of(tasks_), strategy, runtime, options, shapes, batch_rows) {}

bool Evaluator::add_rows(const SharedRows& shared, std::vector<MetricSet>& sets,
                         std::chrono::nanoseconds batch_time, const std::function<bool()>& goes_on) {
  const Further further(*shared.table, tasks_);
  const auto add = [&](const Forward::Rows& rows) {
    std::vector<float> labels;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      MetricBatch batch;
      std::vector<std::int64_t> classes;
      batch.number = shared.first_batch + rows.batch;
      batch.predicted = rows.fetched[t].data<float>();
      if (model_.predicts == Prediction::Classes)
        batch.classes = classes_of(rows.further[t], rows.fetched[t], classes);
      else
        batch.labels = numbers_of(rows.further[t], labels);
      if (further.weights) batch.weights = rows.further[*further.weights].data<float>();
      if (further.groups) batch.groups = rows.further[*further.groups].data<std::int64_t>();
      sets[t].add(batch);
    }
  };
  return forward_.run_turns(shared.table, further.columns, batch_time,
                            Forward::Turns{shared.rank, shared.world, goes_on}, add);
}

std::optional<MetricValues> Evaluator::run(const NextRows& next, std::chrono::nanoseconds batch_time,
                                           const std::stop_token& stop) {
  std::vector<MetricSet> sets(tasks_.size(), MetricSet(model_.predicts, metrics_));
  while (const std::shared_ptr<const Table> table = next()) {
    if (table->rows == 0) break;
    if (!add_rows({table}, sets, batch_time, [&] { return !stop.stop_requested(); })) return std::nullopt;
  }
  return metrics_of(tasks_, sets);
}

namespace {

/// Batches of a rank between two meetings, where steps need none.
constexpr std::int64_t kBatchesOfRound = 8;

/// What ranks tell each other before each batch, or each some.
class Rounds {
 public:
  Rounds(const Evaluator::Peers& peers, const std::stop_token& stop) : peers_(peers), stop_(stop) {}
  /// Of a rank that has a batch. False: one was asked to stop.
  bool begin_batch() {
    if (peers_.in_step || batches_++ % kBatchesOfRound == 0) meet(true);
    return !stops_;
  }
  /// Of a rank that has none. True: another one has.
  bool others_go_on() {
    meet(false);
    return others_ && !stops_;
  }
  bool stops() const { return stops_; }
  WaitContext wait() const { return WaitContext::with_timeout(peers_.patience); }

 private:
  void meet(bool has_batch) {
    std::int32_t said[2] = {stop_.stop_requested() ? 1 : 0, has_batch ? 1 : 0};
    peers_.communicator.all_reduce(said, said, 2, DType::Int32, comm::ReduceOp::Max, StreamRef::host(),
                                   wait());
    stops_ = said[0] > 0;
    others_ = said[1] > 0;
  }

  const Evaluator::Peers& peers_;
  const std::stop_token& stop_;
  std::int64_t batches_ = 0;
  bool stops_ = false, others_ = false;
};

}  // namespace

std::optional<MetricValues> Evaluator::run_shared(const NextShared& next, const Peers& peers,
                                                  std::chrono::nanoseconds batch_time,
                                                  const std::stop_token& stop) {
  std::vector<MetricSet> sets(tasks_.size(), MetricSet(model_.predicts, metrics_));
  Rounds rounds(peers, stop);
  bool goes_on = true;
  while (goes_on) {
    const SharedRows rows = next();
    if (!rows.table || rows.table->rows == 0) break;
    goes_on = add_rows(rows, sets, batch_time, [&] { return rounds.begin_batch(); });
  }
  while (goes_on && rounds.others_go_on())
    if (peers.in_step) forward_.of_zeros();
  if (rounds.stops()) return std::nullopt;
  for (MetricSet& set : sets) set.share(peers.communicator, rounds.wait());
  return metrics_of(tasks_, sets);
}

std::optional<MetricValues> Evaluator::run(const std::shared_ptr<const Table>& table,
                                           std::chrono::nanoseconds batch_time, const std::stop_token& stop) {
  std::shared_ptr<const Table> left = table;
  return run([&] { return std::exchange(left, nullptr); }, batch_time, stop);
}

}  // namespace braid::worker
