#include "worker/metrics/early_stopping.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace braid::worker {

bool EarlyStopping::is_better(double value, double than) const {
  return options_.higher_is_better ? value > than : value < than;
}

bool EarlyStopping::add(std::uint64_t step, double value) {
  if (std::isnan(value)) {
    ++waited_;
    return false;
  }
  const double by = options_.higher_is_better ? options_.min_delta : -options_.min_delta;
  if (!reference_ || is_better(value, reference_->value + by)) {
    reference_ = Best{step, value};
    waited_ = 0;
  } else {
    ++waited_;
  }
  if (best_ && !is_better(value, best_->value)) return false;
  best_ = Best{step, value};
  return true;
}

std::string EarlyStopping::reason() const {
  if (options_.target && best_ && !is_better(*options_.target, best_->value))
    return fmt::format("{:.6g} has reached the target of {:.6g}", best_->value, *options_.target);
  if (options_.patience == 0 || waited_ < options_.patience) return {};
  return fmt::format("no improvement in {} evaluation{}", waited_, waited_ == 1 ? "" : "s");
}

std::string EarlyStopping::state() const {
  if (!best_ || !reference_) return fmt::format("waited={}", waited_);
  return fmt::format("waited={} best={:a} at={} reference={:a} at={}", waited_, best_->value, best_->step,
                     reference_->value, reference_->step);
}

void EarlyStopping::restore(const std::string& state) {
  unsigned waited = 0;
  unsigned long long best_step = 0, reference_step = 0;
  double best = 0, reference = 0;
  const int found = std::sscanf(state.c_str(), "waited=%u best=%la at=%llu reference=%la at=%llu", &waited,
                                &best, &best_step, &reference, &reference_step);
  if (found != 1 && found != 5)
    throw DataLoss("'" + state + "' in the checkpoint is not a record of evaluations");
  waited_ = waited;
  if (found == 1) return;
  best_ = Best{best_step, best};
  reference_ = Best{reference_step, reference};
}

}  // namespace braid::worker
