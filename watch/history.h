// A run's curves: how loss, speed and metrics went since it began, in a bounded number of points. When there
// is no room every second point goes, and new ones come half as often. Thread rule: safe from any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "watch/status.h"

namespace braid::watch {

class History {
 public:
  explicit History(std::size_t most_points = 600) : most_(most_points < 4 ? 4 : most_points) {}

  /// Called every second or so while the process trains.
  void add(const Status& status);
  /// {"time": [...], "step": [...], "loss": [...], "examples_per_second": [...], "learning_rate": [...],
  /// "busy": [...], "input": [...], "metrics": {"auc": [[step, value], ...]}}; null where there is none.
  std::string to_json() const;

 private:
  struct Point {
    double time, step, loss, rate, learning_rate, busy, input;
  };
  struct Measured {
    std::string metric;
    std::vector<std::pair<double, double>> values;  // step, value
  };

  const std::size_t most_;
  mutable std::mutex mu_;
  std::vector<Point> points_;  // guarded by mu_, as what follows
  std::vector<Measured> metrics_;
  std::size_t every_ = 1, skipped_ = 0;
};

}  // namespace braid::watch
