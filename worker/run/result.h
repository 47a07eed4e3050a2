// What the last line of a run says. Thread rule: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace braid::worker {

struct TrainResult {
  std::string job;
  std::uint64_t steps = 0;      // finished in this run
  std::uint64_t last_step = 0;  // steps in the variables
  double loss = 0;              // of the last step
  ModelMetric metric = ModelMetric::None;
  std::optional<double> quality;  // accuracy or AUC on the test data; of several tasks the mean
  std::vector<std::pair<std::string, double>> tasks;  // and of each
  std::int64_t examples = 0;                          // consumed by all workers
  double seconds = 0;             // of the steps, without evaluations and checkpoints between them
  double input_wait_seconds = 0;  // the loop waiting for its next batch
  int exit = 0;

  std::string to_json() const;
};

}  // namespace braid::worker
