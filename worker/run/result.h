// What the last line of a run says. Thread rule: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/metrics/metrics.h"

namespace braid {
class Error;
}
namespace braid::proto {
class Job;
}

namespace braid::worker {

struct TrainResult {
  std::string job;
  std::uint64_t steps = 0;               // finished in this run
  std::uint64_t last_step = 0;           // steps in the variables
  double loss = 0;                       // of the last step
  std::optional<MetricValues> measured;  // of the last evaluation
  struct Best {
    std::uint64_t step = 0;
    std::string metric;  // the one that decides
    double value = 0;
    std::string checkpoint;  // its directory; empty: there is none of that step
  };
  std::optional<Best> best;   // of several evaluations
  std::string stopped_early;  // why; empty: it was not
  std::optional<std::int64_t>
      dropped_tokens;  // of this worker in this run, where a model has experts: choices
  std::optional<std::uint64_t> skipped_steps;  // in this run, where the loss is scaled: gradients overflowed
  std::int64_t examples = 0;                   // consumed by all workers
  double seconds = 0;                        // of the steps, without evaluations and checkpoints between them
  double input_wait_seconds = 0;             // the loop waiting for its next batch
  std::optional<double> padding_share = {};  // of the room for ragged columns' values
  int exit = 0;

  std::string to_json() const;
};

/// The result of a run that was asked to stop while it waited for its peers, where `error` ended the wait.
TrainResult stopped_before_steps(const proto::Job& job, const Error& error);
/// Of a worker that has come to an elastic job, and for which there was no place until its end.
TrainResult never_taken_in(const proto::Job& job);

}  // namespace braid::worker
