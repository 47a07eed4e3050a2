// Runs of strategy TENSOR whose ranks are threads, and jobs for them. Thread rule: one thread.
#pragma once

#include "tests/worker/strategies/pipeline_runs.h"

namespace braid::worker {

/// Settings of a mesh; layers of any width are cut.
Settings in_mesh(int data, int tensor);

/// The run of data * tensor ranks: losses that all have alike, and the leader's variables, whole.
RankRun run_mesh(const proto::Job& job, std::shared_ptr<const Table> rows, RunStart start = RunStart::New);

/// That of one process is the same but for rounding; of ALLREDUCE where a model with dropout has groups.
void expect_as_one_process(const std::string& job, const std::shared_ptr<const Table>& rows, int data,
                           int tensor, const Settings& settings = {});

/// The text that a plan of the job for so many ranks says.
std::string plan_text(const proto::Job& job, int world, const Table& rows);

/// The error of the first rank that has one; empty: none.
std::string error_of_mesh(const proto::Job& job, int world, const std::shared_ptr<const Table>& rows);

}  // namespace braid::worker
