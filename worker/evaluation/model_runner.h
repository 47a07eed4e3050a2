// A job's model run forwards over rows in memory, with values that the caller has: what an embedding program
// evaluates and predicts with. Thread rule: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/input/schema/table.h"
#include "worker/metrics/metrics.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

class ModelRunner {
 public:
  /// `shapes` has the columns, of any rows. Throws: as job_model().
  ModelRunner(const proto::Job& job, const std::shared_ptr<const Table>& shapes);
  ~ModelRunner();
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  /// The variables have these values from now on; those that are not there begin as the model says.
  void set_values(const std::map<std::string, Tensor>& values);
  std::map<std::string, Tensor> values() const;
  std::vector<std::string> outputs() const;  // that the model offers

  /// With the metrics of the job. Throws: InvalidArgument (no rows).
  MetricValues evaluate(const std::shared_ptr<const Table>& rows, const std::stop_token& stop = {});
  /// One tensor an output, of all rows. Columns of labels need not be there.
  std::vector<Tensor> predict(const std::shared_ptr<const Table>& rows,
                              const std::vector<std::string>& outputs, const std::stop_token& stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::worker
