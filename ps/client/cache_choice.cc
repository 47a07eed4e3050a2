#include "ps/client/cache_choice.h"

#include <algorithm>

namespace braid::ps {
namespace {

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

bool CacheChoice::next(double seconds) {
  if (rest_ > 0) {
    --rest_;
    return on_;
  }
  // A look: filling, so many with, and so many without behind a few that do not count. The time is of the
  // step before.
  const int with_end = fill_ + kLook, without_begin = with_end + kSettle;
  if (at_ > fill_ && at_ <= with_end) with_.push_back(seconds);
  if (at_ > without_begin) without_.push_back(seconds);
  if (std::ssize(without_) < kLook) return at_++ < with_end;
  decide();
  return on_;
}

void CacheChoice::decide() {
  with_seconds_ = median(with_);
  without_seconds_ = median(without_);
  with_.clear();
  without_.clear();
  on_ = on_ ? without_seconds_ > kKeep * with_seconds_ : with_seconds_ < kKeep * without_seconds_;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kLongestRest);
  at_ = 0;
  fill_ = kFill;
}

}  // namespace braid::ps
