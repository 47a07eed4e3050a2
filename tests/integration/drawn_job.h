// Jobs drawn at random: a model, an optimizer, streams, staging, and a strategy with settings of its own.
// Each is one that the strategy takes. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/run.h"

namespace braid::integration {

/// How a job is run.
struct DrawnRun {
  std::vector<std::string> settings;
  Cluster::Shape shape;

  std::string text() const;
};

struct DrawnJob {
  std::string model;
  std::vector<std::string> settings;  // of all runs
  int cut = 0;                        // where the second run goes on; 0: nowhere
  DrawnRun first, second;

  std::string text() const;
  /// The model's job on made rows for `steps` steps, without the settings of a run.
  Job plain(int steps) const;
};

/// The same job for the same seed. A job that is cut is cut before its last of `steps` steps.
DrawnJob draw_job(std::uint64_t seed, int steps);

/// The number in an environment variable, or `fallback`.
std::uint64_t number_of(const char* variable, std::uint64_t fallback);

}  // namespace braid::integration
