// What a stream of values is like, in one pass and bounded memory: moments, the number of different values,
// and the commonest words. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// Mean, standard deviation (of a population, divisor n) and skewness by Welford's and Terriberry's updates.
/// NaN and infinities make all of them NaN.
class Moments {
 public:
  void add(double value);
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double deviation() const;
  /// 0 where all values are equal.
  double skewness() const;

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, second_ = 0, third_ = 0;
};

/// How many different hashes were added: exact up to kExact, then an estimate from the smallest ones (k
/// minimum values; its standard error is 1 / sqrt(kExact), 1.6 %).
class DistinctCounter {
 public:
  static constexpr std::size_t kExact = 4096;
  /// REQUIRES: hashes are uniform over 64 bits, as stable_hash() makes them.
  void add(std::uint64_t hash);
  std::int64_t count() const;
  bool exact() const { return !overflowed_; }

 private:
  std::set<std::uint64_t> smallest_;
  bool overflowed_ = false;
};

/// How often each word came; given up when there are more than kMost different ones.
class WordCounter {
 public:
  static constexpr std::size_t kMost = 64;
  void add(std::string_view word);
  bool too_many() const { return too_many_; }
  /// Empty when there were too many.
  const std::map<std::string, std::int64_t, std::less<>>& counts() const { return counts_; }

 private:
  std::map<std::string, std::int64_t, std::less<>> counts_;
  bool too_many_ = false;
};

/// Quantiles of a stream of numbers: exact up to kBuffer values, then from a sample of them that is spread
/// over the ranks, which are right within about 1 % of the number of values. Memory grows with its logarithm.
class QuantileSketch {
 public:
  static constexpr std::size_t kBuffer = 2048;
  void add(double value);
  std::int64_t count() const { return count_; }
  /// The value below which a share of the values lies, in [0, 1]; NaN where there are none.
  double at(double share) const;

 private:
  void compact(std::size_t level);

  std::int64_t count_ = 0;
  std::vector<std::vector<double>> levels_;  // a value of level l stands for 2^l
  std::vector<bool> odd_;                    // which half of a level goes up next
};

}  // namespace braid
