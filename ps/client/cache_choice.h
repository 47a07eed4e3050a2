// Whether a worker's cache of rows pays (EXACT, where a step has the same bits either way). Between processes
// of one host a row that is sent may cost less than its look-up and its second update; over a network it is
// the other way round, and rows that others change tip it either way. So steps are made with and without the
// cache, and what took less time is kept until the next look. Looks come ever more rarely, and in the same
// steps whatever they find: a step's time is that of all workers, who so measure the same ways together.
// Thread rule: one thread at a time.
#pragma once

#include <vector>

namespace braid::ps {

class CacheChoice {
 public:
  static constexpr int kFirstFill = 240, kFill = 64;  // steps with an empty cache, with one that is old
  static constexpr int kLook = 16, kSettle = 4;       // steps that count, and that do not as the others end
  static constexpr int kRest = 1024, kLongestRest = 4096;
  static constexpr double kKeep = 0.98;  // of its time another way takes, at most, to take the place of this

  /// Whether the next step is to use the cache. `seconds`: from the last call to this one.
  bool next(double seconds);

  /// The last look's medians; 0 before.
  double with_seconds() const { return with_seconds_; }
  double without_seconds() const { return without_seconds_; }

 private:
  void decide();

  bool on_ = true;
  int rest_ = 0, next_rest_ = kRest;  // steps until the next look; from it to the one behind it
  int at_ = 0, fill_ = kFirstFill;    // of the look under way
  std::vector<double> with_, without_;
  double with_seconds_ = 0, without_seconds_ = 0;
};

}  // namespace braid::ps
