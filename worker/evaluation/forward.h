// Forward steps of a model over the rows of a table, batch by batch in their order, the last one of however
// many rows are left: what evaluations and predictions have in common. Programs of the same variables are
// made for each number of rows that comes. Thread rule: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/input/schema/table.h"
#include "models/model.h"
#include "worker/strategies/strategy.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// What a batch may take where there is no peer to wait for, only work.
inline constexpr std::chrono::hours kForwardTime{1};

/// How plain forward steps of a job's model are compiled: one stream's work at a time, variables read one by
/// one.
CompileOptions forward_compile_options(const proto::Job& job);
/// Whether the job says in which precision products are computed.
bool has_precision(const proto::Job& job);
/// ", in BF16", or nothing.
std::string precision_text(const proto::Job& job);

/// What its graph predicts of the columns that `model` reads.
class Forward {
 public:
  /// `model` and `runtime` outlive it. `fetches`: values of the model's graph for inference. `shapes` has the
  /// columns, of which rows do not matter; batches are of `batch_rows`.
  Forward(const ModelGraph& model, std::vector<std::string> fetches, Strategy& strategy, Runtime& runtime,
          const CompileOptions& options, const std::shared_ptr<const Table>& shapes, std::int64_t batch_rows);
  ~Forward();

  const Graph& graph() const { return graph_; }
  std::int64_t batch_rows() const { return batch_rows_; }
  /// Makes the program of a full batch, and with it the variables that are not there yet.
  void bind();

  struct Rows {
    std::int64_t batch = 0;  // its number in the table
    std::int64_t first = 0;  // the place of the batch's first row in the table
    std::int64_t count = 0;
    std::span<const Tensor> further;  // of the columns that were asked for beside the model's
    std::span<const Tensor> fetched;
  };
  /// Of a table's batches those whose number mod `world` is `rank`. `goes_on` is asked before each of them.
  struct Turns {
    int rank = 0, world = 1;
    std::function<bool()> goes_on;
  };
  /// Calls visit(rows) for each batch of `table` that is in turn, with the variables' present values; false
  /// where it was not to go on. `batch_time`: how long one batch may take. Throws what a batch, or a function
  /// that is called, threw.
  bool run_turns(const std::shared_ptr<const Table>& table, const std::vector<std::string>& further,
                 std::chrono::nanoseconds batch_time, const Turns& turns,
                 const std::function<void(const Rows&)>& visit);
  /// All batches, until `stop` asks to end it between two.
  bool run(const std::shared_ptr<const Table>& table, const std::vector<std::string>& further,
           std::chrono::nanoseconds batch_time, const std::stop_token& stop,
           const std::function<void(const Rows&)>& visit);
  /// What it predicts of one row of zeros: the types and shapes of the fetches.
  std::vector<Tensor> of_zeros();

 private:
  Instance& instance_for(const Batcher& batcher, std::int64_t rows);
  BatchOptions batches(std::int64_t rows) const;

  const ModelGraph& model_;
  const std::vector<std::string> fetches_;
  Runtime& runtime_;
  const CompileOptions options_;
  const std::shared_ptr<const Table> zeros_;  // one row
  const std::int64_t batch_rows_;
  Graph graph_;
  std::map<std::pair<std::int64_t, std::string>, std::unique_ptr<Instance>>
      instances_;  // by rows, and shapes that rows do not decide
};

}  // namespace braid::worker
