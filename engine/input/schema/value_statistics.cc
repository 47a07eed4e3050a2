#include "engine/input/schema/value_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

void QuantileSketch::add(double value) {
  if (std::isnan(value)) return;
  ++count_;
  if (levels_.empty()) {
    levels_.emplace_back();
    odd_.push_back(false);
  }
  levels_[0].push_back(value);
  for (std::size_t level = 0; level < levels_.size() && levels_[level].size() >= kBuffer; ++level)
    compact(level);
}

/// Every second value of the sorted level goes up, first those of even places, then of odd ones.
void QuantileSketch::compact(std::size_t level) {
  if (level + 1 == levels_.size()) {
    levels_.emplace_back();
    odd_.push_back(false);
  }
  std::vector<double> values = std::exchange(levels_[level], {});
  std::sort(values.begin(), values.end());
  for (std::size_t i = odd_[level] ? 1 : 0; i < values.size(); i += 2)
    levels_[level + 1].push_back(values[i]);
  odd_[level] = !odd_[level];
}

double QuantileSketch::at(double share) const {
  std::vector<std::pair<double, std::int64_t>> values;
  std::int64_t total = 0;
  for (std::size_t level = 0; level < levels_.size(); ++level)
    for (const double value : levels_[level]) {
      values.emplace_back(value, std::int64_t{1} << level);
      total += std::int64_t{1} << level;
    }
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const auto wanted = static_cast<std::int64_t>(std::floor(share * static_cast<double>(total - 1)));
  std::int64_t before = 0;
  for (const auto& [value, weight] : values) {
    before += weight;
    if (before > wanted) return value;
  }
  return values.back().first;
}

}  // namespace braid
