// `braid graph check --train`: what of a graph would be trained, and what keeps it from that: as a job's
// model, up to the program of one step.
#include <fmt/core.h>

#include "base/error.h"
#include "cli/graph_tools.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"
#include "worker/model/graph_model.h"
#include "worker/step/training_program.h"

namespace braid::cli {
namespace {

/// Rows of zeros in the columns that a job would have.
std::shared_ptr<const Table> rows_of_zeros(const std::vector<worker::InputColumn>& columns,
                                           std::int64_t rows) {
  auto table = std::make_shared<Table>();
  table->rows = rows;
  for (const worker::InputColumn& column : columns) {
    std::vector<std::int64_t> dims{rows};
    dims.insert(dims.end(), column.row.dims().begin(), column.row.dims().end());
    table->columns.push_back({column.name, Tensor::zeros(column.dtype, Shape(std::move(dims)))});
  }
  return table;
}

}  // namespace

int check_graph_for_training(const GraphModelFlags& flags, std::int64_t batch) {
  proto::Job job;
  *job.mutable_model()->mutable_graph() = flags.message();
  job.mutable_input()->set_format(proto::Input::SYNTHETIC);
  job.mutable_input()->set_global_batch_size(batch);
  job.mutable_optimizer()->set_learning_rate(1);
  job.set_steps(1);
  worker::fill_job_defaults(job);
  try {
    worker::check_job(job);
    const std::vector<worker::InputColumn> columns = worker::columns_of_placeholders(job);
    worker::GraphModelReport report;
    const ModelGraph model = worker::build_graph_model(job, columns, &report);
    fmt::print("{}", report.text());
    const auto table = rows_of_zeros(columns, batch);
    const Batcher batcher(table, model.columns, worker::training_batches(job, 0, 1));
    Runtime runtime({});
    const worker::Peers peers;
    const auto strategy = worker::make_strategy(job, runtime, peers);
    const worker::TrainingProgram made =
        worker::make_training_program(job, model, batcher, worker::batch_share(job, 0, 1), *strategy);
    fmt::print("a step of {} rows has {} ops: it can be trained\n", batch, made.program->ops.size());
    return kExitSuccess;
  } catch (const InvalidArgument& error) {
    const std::string& why = error.message();
    fmt::print("{}\n", why);
    if (why.find("must be known before") != std::string::npos ||
        why.find("no CPU kernel") != std::string::npos)
      fmt::print(
          "  its size or value follows from data, and those of a step do not change: feed what it gives: "
          "--feed VALUE=COLUMN\n");
    return kExitBadInput;
  }
}

}  // namespace braid::cli
