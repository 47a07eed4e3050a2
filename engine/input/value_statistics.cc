#include "engine/input/value_statistics.h"

#include <cmath>

namespace braid {

void Moments::add(double value) {
  const auto before = static_cast<double>(count_++);
  const auto n = static_cast<double>(count_);
  const double delta = value - mean_, step = delta / n, product = delta * step * before;
  mean_ += step;
  third_ += product * step * (n - 2) - 3 * step * second_;
  second_ += product;
}

double Moments::deviation() const {
  return count_ > 0 ? std::sqrt(second_ / static_cast<double>(count_)) : 0;
}

double Moments::skewness() const {
  const double deviation = this->deviation();
  return deviation > 0 ? third_ / static_cast<double>(count_) / (deviation * deviation * deviation) : 0;
}

void DistinctCounter::add(std::uint64_t hash) {
  if (smallest_.size() == kExact && hash >= *smallest_.rbegin()) {
    overflowed_ = overflowed_ || hash > *smallest_.rbegin();
    return;
  }
  if (smallest_.insert(hash).second && smallest_.size() > kExact) {
    smallest_.erase(std::prev(smallest_.end()));
    overflowed_ = true;
  }
}

std::int64_t DistinctCounter::count() const {
  if (!overflowed_) return static_cast<std::int64_t>(smallest_.size());
  const double share = std::ldexp(static_cast<double>(*smallest_.rbegin()), -64);
  return std::llround(static_cast<double>(kExact - 1) / share);
}

void WordCounter::add(std::string_view word) {
  if (too_many_) return;
  const auto at = counts_.find(word);
  if (at != counts_.end()) {
    ++at->second;
  } else if (counts_.size() < kMost) {
    counts_.emplace(std::string(word), 1);
  } else {
    too_many_ = true;
    counts_.clear();
  }
}

}  // namespace braid
