#include "worker/evaluation/model_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/ops/state/variable_init.h"
#include "proto/job.pb.h"
#include "worker/evaluation/evaluator.h"
#include "worker/evaluation/forward_job.h"
#include "worker/evaluation/job_metrics.h"
#include "worker/evaluation/rows_to_predict.h"
#include "worker/input/job_model.h"
#include "worker/run/fed_steps.h"

namespace braid::worker {
namespace {

std::int64_t batch_rows(const proto::Job& job) {
  return job.evaluation().batch_size() > 0 ? job.evaluation().batch_size() : job.input().global_batch_size();
}

/// Rows of batches, one behind the other.
struct Column {
  Tensor all;
  std::size_t filled = 0;

  void add(const Tensor& part, std::int64_t rows_of_all) {
    if (!all.defined()) {
      Shape shape = part.shape();
      if (shape.rank() == 0) throw InvalidArgument("a prediction has no rows");
      shape.set_dim(0, rows_of_all);
      all = Tensor(part.dtype(), shape);
    }
    std::memcpy(all.raw() + filled, part.raw(), part.bytes());
    filled += part.bytes();
  }
};

}  // namespace

struct ModelRunner::Impl {
  Impl(const proto::Job& asked, std::shared_ptr<const Table> s)
      : forward(asked), shapes(std::move(s)), model(job_model(*forward.job, *shapes)) {}

  /// What a graph's variables hold, where the caller has said nothing.
  void begin(const Graph& graph) {
    for (const VariableInfo& variable : list_variables(graph)) {
      Tensor* const memory = forward.runtime->variables().find(variable.name);
      if (!memory) continue;
      const auto own = model.initial.find(variable.name);
      if (own != model.initial.end())
        forward.runtime->variables().write(variable.name, own->second);
      else
        initialize_variable(graph.node(variable.handle), forward.job->seed(), *memory);
    }
  }

  Evaluator& evaluator() {
    if (!evaluator_) {
      evaluator_ = std::make_unique<Evaluator>(model, job_metrics(*forward.job, model), *forward.strategy,
                                               *forward.runtime, forward_compile_options(*forward.job),
                                               shapes, batch_rows(*forward.job));
      evaluator_->bind();
      give(evaluator_->graph());
    }
    return *evaluator_;
  }
  Forward& forwards(const std::vector<std::string>& outputs) {
    auto& found = forwards_[outputs];
    if (!found) {
      found =
          std::make_unique<Forward>(model, outputs, *forward.strategy, *forward.runtime,
                                    forward_compile_options(*forward.job), shapes, batch_rows(*forward.job));
      found->bind();
      give(found->graph());
    }
    return *found;
  }
  void give(const Graph& graph) {
    begin(graph);
    for (const auto& [name, value] : values)
      if (forward.runtime->variables().contains(name)) forward.runtime->variables().write(name, value);
  }

  ForwardJob forward;
  const std::shared_ptr<const Table> shapes;
  const ModelGraph model;
  std::map<std::string, Tensor> values;  // that the caller has given
  std::unique_ptr<Evaluator> evaluator_;
  std::map<std::vector<std::string>, std::unique_ptr<Forward>> forwards_;  // by outputs
};

ModelRunner::ModelRunner(const proto::Job& job, const std::shared_ptr<const Table>& shapes)
    : impl_(std::make_unique<Impl>(job, shapes)) {}
ModelRunner::~ModelRunner() = default;

void ModelRunner::set_values(const std::map<std::string, Tensor>& values) {
  impl_->values = values;
  for (const auto& [name, value] : values)
    if (impl_->forward.runtime->variables().contains(name))
      impl_->forward.runtime->variables().write(name, value);
}

std::map<std::string, Tensor> ModelRunner::values() const {
  impl_->forwards({impl_->model.prediction});
  return copy_values(impl_->forward.runtime->variables());
}

std::vector<std::string> ModelRunner::outputs() const {
  std::vector<std::string> names;
  for (const ModelOutput& output : impl_->model.outputs) names.push_back(output.name);
  return names;
}

MetricValues ModelRunner::evaluate(const std::shared_ptr<const Table>& rows, const std::stop_token& stop) {
  const auto measured = impl_->evaluator().run(rows, kForwardTime, stop);
  if (!measured) throw Cancelled("the evaluation was asked to stop");
  if (measured->rows == 0) throw InvalidArgument("there are no rows to evaluate");
  return *measured;
}

std::vector<Tensor> ModelRunner::predict(const std::shared_ptr<const Table>& rows,
                                         const std::vector<std::string>& outputs,
                                         const std::stop_token& stop) {
  const std::vector<std::string> apart = columns_apart(impl_->model, outputs);
  for (const std::string& column : impl_->model.columns)
    if (!rows->find(column) && std::find(apart.begin(), apart.end(), column) == apart.end())
      throw InvalidArgument("the model reads '" + column + "', which the rows do not have");
  std::vector<Column> columns(outputs.size());
  const bool whole = impl_->forwards(outputs).run(completed(rows, *impl_->shapes, apart), {}, kForwardTime,
                                                  stop, [&](const Forward::Rows& batch) {
                                                    for (std::size_t i = 0; i < columns.size(); ++i)
                                                      columns[i].add(batch.fetched[i], rows->rows);
                                                  });
  if (!whole) throw Cancelled("the prediction was asked to stop");
  std::vector<Tensor> result;
  for (Column& column : columns) result.push_back(std::move(column.all));
  return result;
}

}  // namespace braid::worker
