#include "worker/input/job_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"
#include "worker/model/graph_model.h"

namespace braid::worker {
namespace {

/// The model's configuration, with the row shapes of the data's columns.
ModelConfig model_config(const proto::Job& job, const Table& table) {
  ModelConfig config;
  config.hidden.assign(job.model().hidden().begin(), job.model().hidden().end());
  config.embedding_dim = job.model().embedding_dim();
  config.hash_buckets = job.model().hash_buckets();
  config.classes = job.model().classes();
  config.embedding_init = job.model().embedding_init();
  config.experts = job.model().experts();
  if (const proto::Mixture& said = job.model().mixture(); said.experts() > 0)
    config.mixture = {said.experts(), said.choices(), said.capacity_factor(), said.balance(), said.groups()};
  config.bottom.assign(job.model().bottom().begin(), job.model().bottom().end());
  config.cross_layers = job.model().cross_layers();
  config.cross_rank = job.model().cross_rank();
  config.layers = job.model().layers();
  config.heads = job.model().heads();
  config.max_rows = job.model().max_rows();
  config.dropout = job.model().dropout();
  config.tasks.assign(job.model().tasks().begin(), job.model().tasks().end());
  config.class_weights.assign(job.model().class_weights().begin(), job.model().class_weights().end());
  config.sparse_tables = job.model().sparse_tables();
  for (const auto& column : table.columns) {
    if (column.ragged()) {
      const TableField& field = column.fields.front();
      config.fields[column.name.substr(0, column.name.rfind('/'))].push_back(
          {field.name, field.length, field.ids, false, field.table, column.name, column.weights.defined()});
      continue;
    }
    const auto dims = column.data.shape().dims().subspan(1);
    config.columns[column.name] = Shape(std::vector<std::int64_t>(dims.begin(), dims.end()));
    for (const TableField& field : column.fields)
      config.fields[column.name].push_back({field.name, field.length, field.ids, field.filled, field.table});
    if (column.data.dtype() == DType::Int32) config.types[column.name] = DType::Int32;
  }
  return config;
}

/// A column that is read from the data and then by nobody is a mistake in the schema.
void refuse_unread_columns(const proto::Job& job, const ModelGraph& model, const Table& table) {
  const auto is_read = [&](const std::string& output) {
    return output == model.label ||
           std::find(model.columns.begin(), model.columns.end(), output) != model.columns.end();
  };
  std::string unread, reads;
  for (const TableColumn& column : table.columns)
    for (const TableField& field : column.fields)
      if (!is_read(column.name) && field.name != job.evaluation().group_column())
        unread += (unread.empty() ? "'" : ", '") + field.name + "' (output '" + column.name + "')";
  if (unread.empty()) return;
  for (const std::string& column : model.columns) reads += (reads.empty() ? "'" : ", '") + column + "'";
  throw InvalidArgument("job '" + job.name() + "': input.columns: nothing reads " + unread + ": model '" +
                        model_text(job.model()) + "' reads " + reads +
                        "; give a column one of these as its output, or kind SKIP");
}

}  // namespace

ModelGraph job_model(const proto::Job& job, const Table& table, int workers) {
  ModelGraph model;
  if (job.model().has_graph()) {
    for (const TableColumn& column : table.columns)
      if (column.ragged())
        throw InvalidArgument(
            "job '" + job.name() + "': column '" + column.fields.front().name +
            "' is ragged, and model.graph reads columns of a fixed length: give it a length");
    GraphModelReport report;
    model = build_graph_model(job, columns_of_table(table), &report);
    log_info("model.graph: {}", report.summary());
  } else {
    ModelConfig config = model_config(job, table);
    config.several_workers = workers > 1;
    model = build_model(job.model().name(), config);
  }
  if (job.input().format() != proto::Input::CRITEO) refuse_unread_columns(job, model, table);
  return model;
}

namespace {

/// Of a model that predicts probabilities; else none.
std::vector<std::string> probability_labels(const ModelGraph& model) {
  if (model.predicts != Prediction::Probability) return {};
  std::vector<std::string> labels{model.label};
  for (const ModelTask& task : model.tasks) labels.push_back(task.label);
  return labels;
}

struct Outside {
  std::int64_t row = -1;  // from 0; -1: there is none
  double value = 0;
};

/// The first value outside of [0, 1].
template <typename T>
Outside outside(std::span<const T> values, std::int64_t rows) {
  const auto bad = std::ranges::find_if(values, [](T value) { return !(value >= 0 && value <= 1); });
  if (bad == values.end()) return {};
  const std::int64_t width = std::max<std::int64_t>(1, std::ssize(values) / std::max<std::int64_t>(1, rows));
  return {(bad - values.begin()) / width, static_cast<double>(*bad)};
}

/// `place`: of row r, from 0.
void check_probabilities(const Table& table, const std::vector<std::string>& labels, const proto::Job& job,
                         const std::function<std::string(std::int64_t)>& place) {
  for (const std::string& label : labels) {
    const TableColumn* const column = table.find(label);
    if (!column || column->ragged()) continue;
    Outside bad;
    if (column->data.dtype() == DType::Float32) bad = outside(column->data.data<float>(), table.rows);
    if (column->data.dtype() == DType::Int64) bad = outside(column->data.data<std::int64_t>(), table.rows);
    if (bad.row < 0) continue;
    throw InvalidArgument(fmt::format(
        "column '{}' has the label {} in {}, but model '{}' predicts a probability, whose labels are from 0 "
        "to 1; {}",
        column->fields.empty() ? label : column->fields.front().name, bad.value, place(bad.row),
        model_text(job.model()),
        job.model().has_graph() ? "of a model of values say evaluation.metric RMSE"
                                : "`positive` of a column of kind LABEL makes 0 and 1 of texts"));
  }
}

/// Looks at the labels of what is read.
class CheckedBlocks : public BlockSource {
 public:
  CheckedBlocks(std::shared_ptr<BlockSource> source, std::vector<std::string> labels, const proto::Job& job)
      : source_(std::move(source)), labels_(std::move(labels)), job_(job) {}
  const std::vector<DataBlock>& blocks() const override { return source_->blocks(); }
  std::shared_ptr<const Table> columns() const override { return source_->columns(); }
  std::shared_ptr<const Table> read(std::span<const BlockPart> parts) override {
    std::shared_ptr<const Table> table = source_->read(parts);
    check_probabilities(*table, labels_, job_, [&](std::int64_t row) {
      for (const BlockPart& part : parts) {
        if (row < part.rows) return source_->describe(part.block);
        row -= part.rows;
      }
      return source_->describe(parts.back().block);
    });
    return table;
  }
  std::string describe(std::size_t block) const override { return source_->describe(block); }
  std::uint64_t fingerprint() const override { return source_->fingerprint(); }
  FileReadTotals reads() const override { return source_->reads(); }

 private:
  const std::shared_ptr<BlockSource> source_;
  const std::vector<std::string> labels_;
  const proto::Job job_;
};

}  // namespace

void check_labels(const proto::Job& job, const ModelGraph& model, const Table& table) {
  check_probabilities(table, probability_labels(model), job,
                      [](std::int64_t row) { return fmt::format("row {}", row + 1); });
}

std::shared_ptr<BlockSource> with_checked_labels(const proto::Job& job, const ModelGraph& model,
                                                 std::shared_ptr<BlockSource> source) {
  std::vector<std::string> labels = probability_labels(model);
  if (!source || labels.empty()) return source;
  return std::make_shared<CheckedBlocks>(std::move(source), std::move(labels), job);
}

}  // namespace braid::worker
