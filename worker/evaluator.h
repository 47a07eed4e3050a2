// Runs the forward graph over the test table and measures it. Programs for the full and the remainder batch
// share the trained variables. Thread rule: one thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/input/table.h"
#include "models/model.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

struct Quality {
  double value = 0;                                   // the model's metric; of several tasks their mean
  std::vector<std::pair<std::string, double>> tasks;  // of a model of several
};

class Evaluator {
 public:
  /// `model` and `runtime` outlive the evaluator.
  Evaluator(const ModelGraph& model, Strategy& strategy, Runtime& runtime, const CompileOptions& options,
            std::shared_ptr<const Table> test, std::int64_t batch_rows);
  ~Evaluator();

  /// Makes the program of a full batch, and with it the variables that are not there yet.
  void bind();

  /// The model's metric over the whole table, with the variables' present values; nothing when `stop` asks to
  /// end it between two batches. `batch_time`: how long one batch may take. Throws what a batch threw.
  std::optional<Quality> run(std::chrono::nanoseconds batch_time, const std::stop_token& stop);

 private:
  Instance& instance_for(std::int64_t rows);

  const ModelGraph& model_;
  Runtime& runtime_;
  CompileOptions options_;
  std::shared_ptr<const Table> test_;
  std::int64_t full_batch_;
  Batcher batcher_;
  std::vector<ModelTask> tasks_;            // one without a name where the model has no tasks
  std::vector<std::size_t> label_columns_;  // of each
  Graph graph_;
  std::map<std::int64_t, std::unique_ptr<Instance>> instances_;  // by rows
};

}  // namespace braid::worker
