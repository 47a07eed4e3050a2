#include "worker/evaluator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "worker/quality.h"

namespace braid::worker {
namespace {

BatchOptions evaluation_batches(std::int64_t rows) {
  BatchOptions options;
  options.global_batch = rows;
  options.shuffle = false;
  options.keep_remainder = true;
  return options;
}

}  // namespace

Evaluator::Evaluator(const ModelGraph& model, Strategy& strategy, Runtime& runtime,
                     const CompileOptions& options, std::shared_ptr<const Table> test,
                     std::int64_t batch_rows)
    : model_(model),
      runtime_(runtime),
      options_(options),
      test_(std::move(test)),
      full_batch_(std::min(batch_rows, std::max<std::int64_t>(test_->rows, 1))),
      batcher_(test_, model.columns, evaluation_batches(full_batch_)),
      tasks_(model.tasks) {
  if (tasks_.empty()) tasks_.push_back({"", model.prediction, model.label});
  for (const ModelTask& task : tasks_)
    label_columns_.push_back(static_cast<std::size_t>(
        std::find(model.columns.begin(), model.columns.end(), task.label) - model.columns.begin()));
  graph_ = import_graph(model.inference ? *model.inference : *model.graph, "model");
  strategy.rewrite_inference(graph_);
}

Evaluator::~Evaluator() = default;

void Evaluator::bind() { instance_for(full_batch_); }

Instance& Evaluator::instance_for(std::int64_t rows) {
  auto& instance = instances_[rows];
  if (!instance) {
    CompileRequest request;
    for (std::size_t c = 0; c < model_.columns.size(); ++c)
      request.feeds.push_back({model_.columns[c], batcher_.dtype(c), batcher_.shape(c, rows)});
    for (const ModelTask& task : tasks_) request.fetches.push_back(task.prediction);
    instance = std::make_unique<Instance>(compile(graph_, request, options_), runtime_);
  }
  return *instance;
}

std::optional<Quality> Evaluator::run(std::chrono::nanoseconds batch_time, const std::stop_token& stop) {
  std::vector<Accuracy> accuracy(tasks_.size());
  std::vector<Auc> auc(tasks_.size());
  for (std::int64_t b = 0; b < batcher_.batches_per_epoch(); ++b) {
    if (stop.stop_requested()) return std::nullopt;
    Batch batch = batcher_.make(static_cast<std::uint64_t>(b));
    StepRequest step;
    step.params.step = static_cast<std::uint64_t>(b);
    step.feeds = batch.tensors;
    step.keep_alive = batch.block;
    const StepResult result =
        instance_for(batch.rows).run(std::move(step), WaitContext::with_timeout(batch_time));
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const Tensor& label = batch.tensors[label_columns_[t]];
      const auto predicted = result.fetches[t].data<float>();
      if (model_.metric == ModelMetric::Accuracy)
        accuracy[t].add(predicted, std::as_const(label).data<std::int64_t>());
      if (model_.metric == ModelMetric::Auc) auc[t].add(predicted, std::as_const(label).data<float>());
    }
  }
  Quality quality;
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    const double value = model_.metric == ModelMetric::Accuracy ? accuracy[t].value() : auc[t].value();
    quality.value += value / static_cast<double>(tasks_.size());
    if (!model_.tasks.empty()) quality.tasks.emplace_back(tasks_[t].name, value);
  }
  return quality;
}

}  // namespace braid::worker
