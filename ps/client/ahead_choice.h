// Whether pulls ahead pay. Rows that the round before has changed travel twice, and take the server twice:
// where nearly all rows are such, as those of small tables, a pull in its turn costs half. So a client looks
// at what becomes of its pulls ahead, makes none for a while where most are in vain, and then looks again.
// The values are the same either way. Thread rule: safe from any thread.
#pragma once

#include <cstdint>
#include <mutex>

namespace braid::ps {

class AheadChoice {
 public:
  static constexpr int kLook = 16;                        // pulls that are looked at together
  static constexpr int kRest = 240;                       // pulls in their turn after such that were in vain
  static constexpr std::uint64_t kVain = 3, kVainOf = 4;  // share of repaired rows from which they are

  /// Whether the next pull is to be ahead. `rows`, `repaired`: of all that were, so far.
  bool next(std::uint64_t rows, std::uint64_t repaired);

 private:
  std::mutex mutex_;
  int looked_ = 0, rest_ = 0;              // guarded by mutex_
  std::uint64_t rows_ = 0, repaired_ = 0;  // before these were looked at; guarded by mutex_
};

}  // namespace braid::ps
