#include "worker/evaluation/predict_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/data_file.h"
#include "proto/job.pb.h"
#include "worker/evaluation/forward.h"
#include "worker/evaluation/forward_job.h"
#include "worker/evaluation/prediction_file.h"
#include "worker/evaluation/rows_to_predict.h"
#include "worker/input/data.h"
#include "worker/input/input_files.h"
#include "worker/input/job_model.h"
#include "worker/input/open_rows.h"

namespace braid::worker {
namespace {

/// Of what the model offers, what is written: probabilities, the class and the probabilities of all, or
/// values.
std::vector<std::string> written_outputs(const ModelGraph& model) {
  std::vector<std::string> outputs;
  for (const ModelOutput& output : model.outputs)
    if (!output.name.ends_with("logit") && !output.name.ends_with("logits")) outputs.push_back(output.name);
  return outputs;
}

std::int64_t width_of(const Tensor& value) {
  return value.shape().rank() < 2 ? 1 : value.shape()[value.shape().rank() - 1];
}

class Predictions {
 public:
  Predictions(const proto::Job& job, const PredictCommand& command, const ModelGraph& model,
              std::vector<std::string> outputs)
      : command_(command),
        outputs_(std::move(outputs)),
        words_(class_words(job, command.data_dir, model.label)) {}

  /// The rows of one batch of `table`.
  void add(const Table& table, const Forward::Rows& rows) {
    if (!file_) create(rows.fetched);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t place = rows.first + r;
      const bool bad = std::binary_search(table.bad_rows.begin(), table.bad_rows.end(), place);
      values_.clear();
      for (const Tensor& value : rows.fetched)
        if (!bad) add_values(value, r);
      if (command_.key.empty())
        file_->add(std::to_string(rows_), values_);
      else
        file_->add(table.keys[static_cast<std::size_t>(place)], values_);
      ++rows_;
    }
  }
  /// `any`: the outputs for any row, as there may have been none.
  void finish(const std::function<std::vector<Tensor>()>& any) {
    if (!file_) create(any());
    file_->finish();
  }
  std::int64_t rows() const { return rows_; }

 private:
  void create(std::span<const Tensor> fetched) {
    std::vector<PredictedColumn> columns;
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      std::string name = outputs_[o];
      std::replace(name.begin(), name.end(), '/', '_');
      const bool is_class = fetched[o].dtype() == DType::Int64;
      if (is_class) {
        columns.push_back({name, true, words_});
        continue;
      }
      const std::int64_t width = width_of(fetched[o]);
      if (fetched[o].shape().rank() < 2 || (width == 1 && name == "value")) {
        columns.push_back({name});
        continue;
      }
      if (name.ends_with("probabilities")) name.replace(name.size() - 13, 13, "probability");
      for (std::int64_t i = 0; i < width; ++i) columns.push_back({fmt::format("{}_{}", name, i)});
    }
    file_ = PredictionFile::create(command_.output, command_.key.empty() ? "row" : command_.key, columns);
  }

  void add_values(const Tensor& value, std::int64_t row) {
    const auto width = static_cast<std::size_t>(width_of(value)),
               first = static_cast<std::size_t>(row) * width;
    if (value.dtype() == DType::Int64) {
      values_.push_back(static_cast<double>(value.data<std::int64_t>()[first]));
      return;
    }
    for (const float each : value.data<float>().subspan(first, width)) values_.push_back(each);
  }

  const PredictCommand& command_;
  const std::vector<std::string> outputs_;
  const std::vector<std::string> words_;  // of classes
  std::unique_ptr<PredictionFile> file_;
  std::vector<double> values_;
  std::int64_t rows_ = 0;
};

/// The files of --in.
std::vector<std::filesystem::path> checked_inputs(const proto::Job& job, const PredictCommand& command) {
  if (!reads_files(job))
    throw InvalidArgument("job '" + job.name() + "' reads no files (input.format " +
                          proto::Input::Format_Name(job.input().format()) +
                          "); --set input.format=CSV reads them with its columns");
  std::vector<std::filesystem::path> inputs = files_of_option("--in", command.inputs);
  for (const auto& input : inputs) {
    if (input == "-" || !scheme_of(input.native()).empty()) continue;
    if (std::error_code other; std::filesystem::equivalent(input, command.output, other))
      throw InvalidArgument("--out '" + command.output.string() + "' is one of the inputs");
  }
  return inputs;
}

}  // namespace

int run_predict(const proto::Job& asked, const PredictCommand& command) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::filesystem::path> inputs = checked_inputs(asked, command);
  const ForwardJob forward(asked);
  const proto::Job& job = *forward.job;
  // What is a label is known when the model is, which needs the columns: of no files.
  const std::shared_ptr<const Table> shapes =
      with_graph_columns(job, empty_rows(job, command.data_dir, inputs));
  const ModelGraph model = job_model(job, *shapes);
  const std::vector<std::string> outputs = written_outputs(model);
  ReadOptions read;
  read.max_bad_records = command.max_bad_records;
  read.key_column = command.key;
  read.ignored = columns_apart(model, outputs);
  read.keep_bad_records = true;
  const auto rows = open_rows(job, command.data_dir, "--in", inputs, read);

  const std::int64_t batch = job.evaluation().batch_size();
  Forward steps(model, outputs, *forward.strategy, *forward.runtime, forward_compile_options(job), shapes,
                batch);
  steps.bind();
  restore_variables(command.checkpoint, job.seed(), steps.graph(), *forward.runtime);
  Predictions predictions(job, command, model, outputs);
  std::int64_t bad = 0;
  for (bool more = true; more;) {
    const std::shared_ptr<const Table> table =
        completed(rows->next(rows_at_once(batch)), *shapes, read.ignored);
    more = table->rows > 0;
    bad = table->skipped;
    steps.run(table, {}, kForwardTime, {}, [&](const Forward::Rows& part) { predictions.add(*table, part); });
  }
  predictions.finish([&] { return steps.of_zeros(); });
  if (bad > 0) log_warning("input: {} bad records have no prediction", bad);
  log_info("{}: {} rows, predicted by step {} of {}{}", command.output.string(), predictions.rows(),
           command.checkpoint.meta.step, command.checkpoint.directory.string(), precision_text(job));
  if (command.output == "-") return kExitSuccess;  // which has the rows alone
  nlohmann::ordered_json out;
  out["job"] = job.name();
  out["step"] = command.checkpoint.meta.step;
  out["checkpoint"] = command.checkpoint.directory.string();
  if (has_precision(job)) out["precision"] = proto::Runtime::Precision_Name(job.runtime().precision());
  out["rows"] = predictions.rows();
  out["bad_records"] = bad;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  out["seconds"] = seconds;
  fmt::print("result: {}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return kExitSuccess;
}

}  // namespace braid::worker
