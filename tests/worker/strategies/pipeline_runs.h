// Runs of pipelines whose ranks are threads, and jobs for them. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/methods/ranks.h"

namespace braid::worker {

using Settings = std::vector<std::string>;
Settings operator+(Settings a, const Settings& b);

/// Settings of a pipeline, and of the run of one process that it is compared with.
Settings pipelined(int micro_batches, const char* schedule = "ONE_F_ONE_B");
Settings accumulated(int parts);
/// Stages by patterns.
Settings stages(const std::vector<std::string>& patterns);

/// A job of this model (fields of `model`), of batches of 24 rows.
std::string pipeline_job(const std::string& model, int steps,
                         const std::string& optimizer = "kind: ADAM learning_rate: 0.01");

/// Of all ranks together, whose losses are the same and whose variables are each on one of them.
RankRun together(const std::vector<RankRun>& runs);
RankRun run_pipeline(const proto::Job& job, int world, std::shared_ptr<const Table> rows,
                     RunStart start = RunStart::New);
/// The error of the first rank that has one; empty: none.
std::string error_of_pipeline(const proto::Job& job, int world, const std::shared_ptr<const Table>& rows);

/// x [rows, 8], numbers in (-1, 1), and y [rows].
std::shared_ptr<const Table> made_vectors(int rows);

/// A graph as the model of a job. Its rows are made_vectors().
class GraphJob {
 public:
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, {-1, 8});

  /// The graph with the mean of the squares of `out` [?, n] as its loss.
  std::string text(const Output& out, int steps);

 private:
  TempDir directory_;
};

}  // namespace braid::worker
