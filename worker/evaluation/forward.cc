#include "worker/evaluation/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/step/training_program.h"

namespace braid::worker {
namespace {

std::shared_ptr<const Table> one_row_of_zeros(const Table& shapes) {
  auto one = std::make_shared<Table>();
  one->rows = 1;
  for (const TableColumn& column : shapes.columns) {
    if (column.ragged()) {
      TableColumn empty = column;
      empty.data = Tensor(column.data.dtype(), Shape{0});
      empty.offsets = Tensor::zeros(DType::Int64, Shape{2});
      if (column.weights.defined()) empty.weights = Tensor(DType::Float32, Shape{0});
      one->columns.push_back(std::move(empty));
      continue;
    }
    Shape shape = column.data.shape();
    shape.set_dim(0, 1);
    one->columns.push_back({column.name, Tensor::zeros(column.data.dtype(), shape), column.scale});
  }
  return one;
}

/// Whoever writes them behind each other must not find more or fewer.
void check_rows(const std::vector<std::string>& names, const std::vector<Tensor>& values, std::int64_t rows) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Shape& shape = values[i].shape();
    if (shape.rank() > 0 && shape[0] == rows) continue;
    throw InvalidArgument(fmt::format(
        "what '{}' predicts has shape {} for a batch of {} rows: its first dimension must be the rows; name "
        "another value (model.graph.prediction), or reshape it",
        names[i], shape.to_string(), rows));
  }
}

}  // namespace

CompileOptions forward_compile_options(const proto::Job& job) {
  CompileOptions options = training_compile_options(job);
  options.steps_in_flight = 1;
  options.batch_siblings = BatchSiblings::Off;
  return options;
}

bool has_precision(const proto::Job& job) {
  return job.runtime().precision() != proto::Runtime::AS_TF32_SAYS;
}

std::string precision_text(const proto::Job& job) {
  return has_precision(job) ? ", in " + proto::Runtime::Precision_Name(job.runtime().precision()) : "";
}

Forward::Forward(const ModelGraph& model, std::vector<std::string> fetches, Strategy& strategy,
                 Runtime& runtime, const CompileOptions& options, const std::shared_ptr<const Table>& shapes,
                 std::int64_t batch_rows)
    : model_(model),
      fetches_(std::move(fetches)),
      runtime_(runtime),
      options_(options),
      zeros_(one_row_of_zeros(*shapes)),
      batch_rows_(std::max<std::int64_t>(batch_rows, 1)),
      graph_(import_graph(model.inference ? *model.inference : *model.graph, "model")) {
  strategy.rewrite_inference(graph_);
}

Forward::~Forward() = default;

void Forward::bind() { instance_for(Batcher(zeros_, model_.columns, batches(1)), batch_rows_); }

std::vector<Tensor> Forward::of_zeros() {
  std::vector<Tensor> fetched;
  run(zeros_, {}, kForwardTime, {},
      [&](const Rows& rows) { fetched.assign(rows.fetched.begin(), rows.fetched.end()); });
  return fetched;
}

BatchOptions Forward::batches(std::int64_t rows) const {
  BatchOptions options;
  options.global_batch = std::min(batch_rows_, rows);
  options.shuffle = false;
  options.keep_remainder = true;
  return options;
}

Instance& Forward::instance_for(const Batcher& batcher, std::int64_t rows) {
  CompileRequest request;
  std::string shapes;
  for (std::size_t c = 0; c < model_.columns.size(); ++c) {
    request.feeds.push_back({model_.columns[c], batcher.dtype(c), batcher.shape(c, rows)});
    if (c == 0 || batcher.ragged(c)) shapes += request.feeds.back().shape.to_string();
  }
  auto& instance = instances_[{rows, shapes}];
  if (!instance) {
    request.fetches = fetches_;
    instance = std::make_unique<Instance>(compile(graph_, request, options_), runtime_);
  }
  return *instance;
}

bool Forward::run(const std::shared_ptr<const Table>& table, const std::vector<std::string>& further,
                  std::chrono::nanoseconds batch_time, const std::stop_token& stop,
                  const std::function<void(const Rows&)>& visit) {
  return run_turns(table, further, batch_time, Turns{0, 1, [&] { return !stop.stop_requested(); }}, visit);
}

bool Forward::run_turns(const std::shared_ptr<const Table>& table, const std::vector<std::string>& further,
                        std::chrono::nanoseconds batch_time, const Turns& turns,
                        const std::function<void(const Rows&)>& visit) {
  if (table->rows == 0) return true;
  std::vector<std::string> columns = model_.columns;
  columns.insert(columns.end(), further.begin(), further.end());
  Batcher batcher(table, columns, batches(table->rows));
  const auto fed = static_cast<std::ptrdiff_t>(model_.columns.size());
  Rows rows;
  for (std::int64_t b = turns.rank; b < batcher.batches_per_epoch(); b += turns.world) {
    if (!turns.goes_on()) return false;
    const Batch batch = batcher.make(static_cast<std::uint64_t>(b));
    StepRequest step;
    step.params.step = static_cast<std::uint64_t>(b);
    step.feeds.assign(batch.tensors.begin(), batch.tensors.begin() + fed);
    step.keep_alive = batch.block;
    const StepResult result =
        instance_for(batcher, batch.rows).run(std::move(step), WaitContext::with_timeout(batch_time));
    rows.batch = b;
    rows.first = b * batches(table->rows).global_batch;
    rows.count = batch.rows;
    rows.further = std::span(batch.tensors).subspan(static_cast<std::size_t>(fed));
    rows.fetched = result.fetches;
    check_rows(fetches_, result.fetches, batch.rows);
    visit(rows);
  }
  return true;
}

}  // namespace braid::worker
