#include "worker/metrics/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"

namespace braid::worker {
namespace {

enum class Better { High, Low, Neither };

struct Row {
  MetricKind kind;
  std::string_view name;
  Better better;
  bool probability, classes, values;  // what it measures
};

constexpr std::array kMetrics = {
    Row{MetricKind::Accuracy, "accuracy", Better::High, true, true, false},
    Row{MetricKind::Auc, "auc", Better::High, true, false, false},
    Row{MetricKind::LogLoss, "log_loss", Better::Low, true, true, false},
    Row{MetricKind::PrAuc, "pr_auc", Better::High, true, false, false},
    Row{MetricKind::Calibration, "calibration", Better::Neither, true, false, false},
    Row{MetricKind::GroupAuc, "group_auc", Better::High, true, false, false},
    Row{MetricKind::PrecisionAtK, "precision_at", Better::High, true, false, false},
    Row{MetricKind::RecallAtK, "recall_at", Better::High, true, false, false},
    Row{MetricKind::NdcgAtK, "ndcg_at", Better::High, true, false, false},
    Row{MetricKind::Rmse, "rmse", Better::Low, false, false, true},
    Row{MetricKind::Mae, "mae", Better::Low, false, false, true},
};

const Row& row_of(MetricKind kind) { return kMetrics[static_cast<std::size_t>(kind)]; }

/// log(1 + e^z)
double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }

double sigmoid(double z) {
  const double e = std::exp(-std::abs(z));
  return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}

bool uses_ranks(MetricKind kind) {
  return kind == MetricKind::Auc || kind == MetricKind::PrAuc || kind == MetricKind::GroupAuc || has_k(kind);
}

bool is_by_group(MetricKind kind) { return kind == MetricKind::GroupAuc || has_k(kind); }

}  // namespace

std::string Metric::name() const {
  return has_k(kind) ? fmt::format("{}_{}", row_of(kind).name, k) : std::string(row_of(kind).name);
}

bool has_k(MetricKind kind) {
  return kind == MetricKind::PrecisionAtK || kind == MetricKind::RecallAtK || kind == MetricKind::NdcgAtK;
}

bool needs_groups(MetricKind kind) { return kind == MetricKind::GroupAuc; }

bool measures(MetricKind kind, Prediction prediction) {
  const Row& row = row_of(kind);
  switch (prediction) {
    case Prediction::Probability:
      return row.probability;
    case Prediction::Classes:
      return row.classes;
    case Prediction::Value:
      break;
  }
  return row.values;
}

std::optional<bool> higher_is_better(MetricKind kind) {
  const Better better = row_of(kind).better;
  return better == Better::Neither ? std::nullopt : std::optional(better == Better::High);
}

std::vector<Metric> default_metrics(Prediction prediction) {
  switch (prediction) {
    case Prediction::Probability:
      return {{MetricKind::Auc}, {MetricKind::LogLoss}, {MetricKind::PrAuc}, {MetricKind::Calibration}};
    case Prediction::Classes:
      return {{MetricKind::Accuracy}, {MetricKind::LogLoss}};
    case Prediction::Value:
      break;
  }
  return {{MetricKind::Rmse}, {MetricKind::Mae}};
}

bool can_be_shared(const Metric& metric) { return !is_by_group(metric.kind); }

MetricSet::MetricSet(Prediction prediction, std::vector<Metric> metrics)
    : prediction_(prediction),
      metrics_(std::move(metrics)),
      ranks_(std::any_of(metrics_.begin(), metrics_.end(),
                         [](const Metric& metric) { return uses_ranks(metric.kind); })) {}

void MetricSet::require_alike(bool weighted, bool grouped, bool first) {
  if (first) {
    weighted_ = weighted;
    grouped_ = grouped;
  }
  if (weighted != weighted_) throw InvalidArgument("metrics: only some of the rows have weights");
  if (grouped != grouped_) throw InvalidArgument("metrics: only some of the rows have groups");
}

void MetricSet::require_sizes(const MetricBatch& batch, std::size_t truths) const {
  const std::size_t predicted = batch.predicted.size();
  if (prediction_ == Prediction::Classes ? predicted == 0 || predicted % truths != 0 : predicted != truths)
    throw InvalidArgument(fmt::format(
        "metrics: the model predicts {} numbers where the label has {}: name a prediction with as "
        "many, or evaluation.enabled: false",
        predicted, truths));
  if (!batch.weights.empty() && truths % batch.weights.size() != 0)
    throw InvalidArgument(fmt::format("metrics: {} weights for {} labels", batch.weights.size(), truths));
  if (!batch.groups.empty() && truths % batch.groups.size() != 0)
    throw InvalidArgument(fmt::format("metrics: {} groups for {} labels", batch.groups.size(), truths));
}

namespace {

/// A value a row, for each of its `numbers` labels.
template <typename T>
std::span<const T> for_each_label(std::span<const T> of_rows, std::size_t numbers, std::vector<T>& made) {
  if (of_rows.empty() || of_rows.size() == numbers) return of_rows;
  const std::size_t width = numbers / of_rows.size();
  for (const T& value : of_rows) made.insert(made.end(), width, value);
  return made;
}

}  // namespace

void MetricSet::add(const MetricBatch& of_rows) {
  MetricBatch batch = of_rows;
  const std::size_t rows = prediction_ == Prediction::Classes ? batch.classes.size() : batch.labels.size();
  if (rows == 0) return;
  require_sizes(batch, rows);
  require_alike(!batch.weights.empty(), !batch.groups.empty(), rows_ == 0);
  std::vector<float> weights;
  std::vector<std::int64_t> groups;
  batch.weights = for_each_label(batch.weights, rows, weights);
  batch.groups = for_each_label(batch.groups, rows, groups);
  for (const float weight : batch.weights)
    if (!(weight >= 0) || !std::isfinite(weight))
      throw InvalidArgument(fmt::format("metrics: a row has the weight {}", weight));
  for (const float predicted : batch.predicted)
    if (std::isnan(predicted)) not_a_number_ = true;
  Sums sums;
  if (prediction_ == Prediction::Probability) sums = add_probability(batch);
  if (prediction_ == Prediction::Classes) sums = add_classes(batch);
  if (prediction_ == Prediction::Value) sums = add_values(batch);
  sums_.add(sums);
  numbers_.push_back(batch.number >= 0 ? batch.number : std::ssize(numbers_));
  batches_.push_back(sums);
  rows_ += static_cast<std::int64_t>(rows);
}

void MetricSet::Sums::add(const Sums& later) {
  weight += later.weight;
  right += later.right;
  log_loss += later.log_loss;
  promised += later.promised;
  observed += later.observed;
  squared += later.squared;
  absolute += later.absolute;
}

MetricSet::Sums MetricSet::add_probability(const MetricBatch& batch) {
  Sums sums;
  for (std::size_t row = 0; row < batch.labels.size(); ++row) {
    const double z = batch.predicted[row], y = batch.labels[row];
    if (!(y >= 0 && y <= 1))
      throw InvalidArgument(fmt::format(
          "metrics: row {} has the label {}, and the model predicts a probability, whose labels are "
          "from 0 to 1",
          rows_ + static_cast<std::int64_t>(row), y));
    const double weight = batch.weights.empty() ? 1.0 : batch.weights[row];
    sums.weight += weight;
    sums.log_loss += weight * (softplus(z) - y * z);
    sums.promised += weight * sigmoid(z);
    sums.observed += weight * y;
    if ((z > 0) == (y > 0.5)) sums.right += weight;
    if (ranks_) ranked_.labels.push_back(y > 0.5 ? 1 : 0);
  }
  if (!ranks_) return sums;
  ranked_.scores.insert(ranked_.scores.end(), batch.predicted.begin(), batch.predicted.end());
  ranked_.weights.insert(ranked_.weights.end(), batch.weights.begin(), batch.weights.end());
  ranked_.groups.insert(ranked_.groups.end(), batch.groups.begin(), batch.groups.end());
  return sums;
}

MetricSet::Sums MetricSet::add_classes(const MetricBatch& batch) const {
  Sums sums;
  const std::size_t classes = batch.predicted.size() / batch.classes.size();
  for (std::size_t row = 0; row < batch.classes.size(); ++row) {
    const auto logits = batch.predicted.subspan(row * classes, classes);
    const std::int64_t label = batch.classes[row];
    if (label < 0 || static_cast<std::size_t>(label) >= classes)
      throw InvalidArgument(fmt::format("metrics: row {} has the label {}, and the model {} classes",
                                        rows_ + static_cast<std::int64_t>(row), label, classes));
    const double weight = batch.weights.empty() ? 1.0 : batch.weights[row];
    const auto most = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - *most);
    sums.weight += weight;
    sums.log_loss += weight * (*most + std::log(sum) - logits[static_cast<std::size_t>(label)]);
    if (most - logits.begin() == label) sums.right += weight;
  }
  return sums;
}

MetricSet::Sums MetricSet::add_values(const MetricBatch& batch) const {
  Sums sums;
  for (std::size_t row = 0; row < batch.labels.size(); ++row) {
    const double error = static_cast<double>(batch.predicted[row]) - batch.labels[row];
    const double weight = batch.weights.empty() ? 1.0 : batch.weights[row];
    sums.weight += weight;
    sums.squared += weight * error * error;
    sums.absolute += weight * std::abs(error);
  }
  return sums;
}

void MetricSet::merge(const MetricSet& later) {
  if (later.rows_ == 0) return;
  require_alike(later.weighted_, later.grouped_, rows_ == 0);
  rows_ += later.rows_;
  not_a_number_ = not_a_number_ || later.not_a_number_;
  sums_.add(later.sums_);
  for (const Sums& batch : later.batches_) {
    numbers_.push_back(std::ssize(numbers_));
    batches_.push_back(batch);
  }
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(ranked_.scores, later.ranked_.scores);
  append(ranked_.labels, later.ranked_.labels);
  append(ranked_.weights, later.ranked_.weights);
  append(ranked_.groups, later.ranked_.groups);
}

bool MetricSet::has(MetricKind kind) const {
  return std::ranges::any_of(metrics_, [&](const Metric& metric) { return metric.kind == kind; });
}

MetricSet::Shared MetricSet::rank_runs(const RunPart& part, comm::Communicator* communicator,
                                       const WaitContext& wait) const {
  Shared ranked;
  if (has(MetricKind::Auc)) ranked.auc = worker::auc(part, communicator, wait);
  if (has(MetricKind::PrAuc)) ranked.pr_auc = worker::average_precision(part, communicator, wait);
  return ranked;
}

/// In the order of all batches.
void MetricSet::share_sums(comm::Communicator& communicator, const WaitContext& wait) {
  constexpr std::int64_t kWidth = sizeof(Sums) / sizeof(double);
  static_assert(sizeof(Sums) == kWidth * sizeof(double));
  std::int64_t most = std::ssize(batches_);
  communicator.all_reduce(&most, &most, 1, DType::Int64, comm::ReduceOp::Max, StreamRef::host(), wait);
  batches_.resize(static_cast<std::size_t>(most));
  numbers_.resize(batches_.size(), INT64_MAX);  // of none
  std::vector<Sums> sums(batches_.size() * static_cast<std::size_t>(communicator.size()));
  std::vector<std::int64_t> numbers(sums.size());
  communicator.all_gather(batches_.data(), sums.data(), most * kWidth, DType::Float64, StreamRef::host(),
                          wait);
  communicator.all_gather(numbers_.data(), numbers.data(), most, DType::Int64, StreamRef::host(), wait);
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t batch) { return numbers[batch]; });
  sums_ = {};
  for (const std::size_t batch : order)
    if (numbers[batch] != INT64_MAX) sums_.add(sums[batch]);
  batches_ = {};
  numbers_ = {};
}

void MetricSet::share(comm::Communicator& communicator, const WaitContext& wait) {
  if (weighted_ || grouped_ || !std::ranges::all_of(metrics_, can_be_shared))
    throw InvalidArgument("metrics: rows with weights or groups are measured by one process");
  share_sums(communicator, wait);
  std::int64_t found[2] = {rows_, not_a_number_ ? 1 : 0};
  communicator.all_reduce(found, found, 2, DType::Int64, comm::ReduceOp::Sum, StreamRef::host(), wait);
  rows_ = found[0];
  not_a_number_ = found[1] > 0;
  shared_ = Shared{};
  if (ranks_ && !not_a_number_)
    shared_ = rank_runs(exchange_runs(score_runs(ranked_.scores, ranked_.labels), communicator, wait),
                        &communicator, wait);
  ranked_ = {};
}

double MetricSet::value_of(const Metric& metric, const Shared& ranked, std::span<const std::size_t> order,
                           std::span<const std::size_t> group_order) const {
  const auto mean = [&](double sum) { return sums_.weight > 0 ? sum / sums_.weight : kUndefined; };
  if (not_a_number_) return kUndefined;
  const bool by_runs = shared_ || ranks_by_runs();
  switch (metric.kind) {
    case MetricKind::Accuracy:
      return mean(sums_.right);
    case MetricKind::LogLoss:
      return mean(sums_.log_loss);
    case MetricKind::Calibration:
      return sums_.observed > 0 ? sums_.promised / sums_.observed : kUndefined;
    case MetricKind::Rmse:
      return std::sqrt(mean(sums_.squared));
    case MetricKind::Mae:
      return mean(sums_.absolute);
    case MetricKind::Auc:
      return by_runs ? ranked.auc : auc(ranked_, order);
    case MetricKind::PrAuc:
      return by_runs ? ranked.pr_auc : average_precision(ranked_, order);
    case MetricKind::GroupAuc:
      return group_auc(ranked_, group_order);
    case MetricKind::PrecisionAtK:
      return precision_at(metric.k, ranked_, group_order);
    case MetricKind::RecallAtK:
      return recall_at(metric.k, ranked_, group_order);
    case MetricKind::NdcgAtK:
      return ndcg_at(metric.k, ranked_, group_order);
  }
  throw Internal("metrics: an unknown kind");
}

std::vector<MetricValue> MetricSet::values() const {
  std::vector<std::size_t> order, group_order;
  Shared ranked = shared_.value_or(Shared{});
  if (!not_a_number_ && !shared_) {  // which has no place in an order
    const auto any = [&](bool by_group) {
      return std::any_of(metrics_.begin(), metrics_.end(), [&](const Metric& metric) {
        return uses_ranks(metric.kind) && is_by_group(metric.kind) == by_group;
      });
    };
    if (any(false) && ranks_by_runs())
      ranked = rank_runs(whole_part(score_runs(ranked_.scores, ranked_.labels)), nullptr, {});
    else if (any(false))
      order = ranked_order(ranked_, false);
    if (any(true)) group_order = ranked_order(ranked_, true);
  }
  std::vector<MetricValue> values;
  for (const Metric& metric : metrics_)
    values.push_back({metric.name(), value_of(metric, ranked, order, group_order)});
  return values;
}

double MetricValues::value(const std::string& metric) const {
  for (const MetricValue& each : values)
    if (each.name == metric) return each.value;
  throw Internal("'" + metric + "' was not measured");
}

std::vector<MetricValue> MetricValues::flat() const {
  std::vector<MetricValue> all = values;
  for (const auto& [task, its] : tasks)
    for (const MetricValue& each : its) all.push_back({each.name + "/" + task, each.value});
  std::erase_if(all, [](const MetricValue& each) { return std::isnan(each.value); });
  return all;
}

std::string metrics_text(std::span<const MetricValue> values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += (text.empty() ? "" : ", ") +
            (std::isnan(value) ? fmt::format("{} undefined", name) : fmt::format("{} {:.4f}", name, value));
  return text;
}

void log_metrics(std::uint64_t step, const MetricValues& measured) {
  log_info("step {}: {}", step, metrics_text(measured.values));
  for (const auto& [task, values] : measured.tasks)
    log_info("step {}: {}: {}", step, task, metrics_text(values));
}

}  // namespace braid::worker
