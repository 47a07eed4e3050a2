// Which evaluation of a run is the best so far, and whether it is time to stop: the metric has not improved
// for so many evaluations in a row, or has come as far as it was to. A metric that is not defined is no
// improvement. What it knows goes into checkpoints as text, so that a resumed run decides as an uninterrupted
// one. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace braid::worker {

struct EarlyStoppingOptions {
  bool higher_is_better = true;
  std::uint32_t patience = 0;  // 0: never for want of improvement
  double min_delta = 0;
  std::optional<double> target = {};
};

class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options) : options_(options) {}

  /// Result: whether it is the best so far.
  bool add(std::uint64_t step, double value);
  /// Why training is to stop, for people; empty: it is not.
  std::string reason() const;

  struct Best {
    std::uint64_t step = 0;
    double value = 0;
  };
  const std::optional<Best>& best() const { return best_; }

  /// "waited=<n> best=<hexadecimal float> at=<step> reference=<hexadecimal float> at=<step>".
  std::string state() const;
  /// Throws: DataLoss when it is none.
  void restore(const std::string& state);

 private:
  bool is_better(double value, double than) const;

  EarlyStoppingOptions options_;
  std::optional<Best> best_;
  std::optional<Best> reference_;  // what an improvement is more than min_delta better than
  std::uint32_t waited_ = 0;       // evaluations in a row without improvement
};

}  // namespace braid::worker
