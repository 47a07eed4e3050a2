#include "worker/evaluation/evaluate_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/evaluation/evaluator.h"
#include "worker/evaluation/forward_job.h"
#include "worker/evaluation/job_metrics.h"
#include "worker/input/data.h"
#include "worker/input/input_files.h"
#include "worker/input/job_model.h"
#include "worker/input/open_rows.h"
#include "worker/metrics/metrics_json.h"

namespace braid::worker {
namespace {

/// Rows that were made, once; or those of files, part by part.
struct Rows {
  std::shared_ptr<const Table> shapes;
  Evaluator::NextRows next;
  std::shared_ptr<std::int64_t> bad = std::make_shared<std::int64_t>(0);
};

Rows rows_of(const proto::Job& job, const EvaluateCommand& command) {
  Rows rows;
  if (command.inputs.empty() && !reads_files(job)) {
    rows.shapes = load_data(job, command.data_dir, true).test;
    if (!rows.shapes)
      throw InvalidArgument("job '" + job.name() +
                            "' has no test rows: set input.generator.test_rows, or give --in FILE");
    rows.next = [left = rows.shapes]() mutable { return std::exchange(left, nullptr); };
    return rows;
  }
  ReadOptions read;
  read.max_bad_records = command.max_bad_records.value_or(job.input().max_bad_records());
  read.group_column = job.evaluation().group_column();
  const auto files =
      command.inputs.empty() ? test_files(job, command.data_dir) : files_of_option("--in", command.inputs);
  const std::shared_ptr<RowStream> stream = open_rows(job, command.data_dir, "--in", files, read);
  rows.shapes = stream->next(0);
  rows.next = [stream, part = rows_at_once(job.evaluation().batch_size()), bad = rows.bad] {
    std::shared_ptr<const Table> table = stream->next(part);
    *bad = table->skipped;
    return table;
  };
  return rows;
}

std::string value_text(double value) {
  return std::isnan(value) ? "undefined" : fmt::format("{:.6f}", value);
}

void print_table(const MetricValues& measured) {
  std::string head = fmt::format("{:<20}", "metric");
  if (measured.tasks.empty()) head += fmt::format("{:>14}", "value");
  for (const auto& [task, values] : measured.tasks) head += fmt::format("{:>14}", task);
  if (!measured.tasks.empty()) head += fmt::format("{:>14}", "mean");
  fmt::print("{}\n", head);
  for (std::size_t m = 0; m < measured.values.size(); ++m) {
    std::string line = fmt::format("{:<20}", measured.values[m].name);
    for (const auto& [task, values] : measured.tasks)
      line += fmt::format("{:>14}", value_text(values[m].value));
    fmt::print("{}{:>14}\n", line, value_text(measured.values[m].value));
  }
}

}  // namespace

int run_evaluate(const proto::Job& asked, const EvaluateCommand& command) {
  const auto begin = std::chrono::steady_clock::now();
  const ForwardJob forward(asked);
  const proto::Job& job = *forward.job;
  const Rows rows = rows_of(job, command);
  const ModelGraph model = job_model(job, *rows.shapes);
  Evaluator evaluator(model, job_metrics(job, model), *forward.strategy, *forward.runtime,
                      forward_compile_options(job), rows.shapes, job.evaluation().batch_size());
  evaluator.bind();
  restore_variables(command.checkpoint, job.seed(), evaluator.graph(), *forward.runtime);
  const auto measured = evaluator.run(rows.next, kForwardTime, {});
  if (!measured || measured->rows == 0) throw InvalidArgument("the test files have no records");
  if (*rows.bad > 0) log_warning("input: {} bad records were skipped", *rows.bad);

  fmt::print("{} rows, step {} of {}{}\n", measured->rows, command.checkpoint.meta.step,
             command.checkpoint.directory.string(), precision_text(job));
  print_table(*measured);
  nlohmann::ordered_json out;
  out["job"] = job.name();
  out["step"] = command.checkpoint.meta.step;
  out["checkpoint"] = command.checkpoint.directory.string();
  if (has_precision(job)) out["precision"] = proto::Runtime::Precision_Name(job.runtime().precision());
  out["rows"] = measured->rows;
  out["bad_records"] = *rows.bad;
  out.update(nlohmann::ordered_json::parse(metrics_json(*measured)));
  out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("result: {}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return kExitSuccess;
}

}  // namespace braid::worker
