// The AUC that no model can pass on generated rows: that of the true probabilities. Ties count by the order
// of labels, as probabilities hardly meet. Thread rule: a value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace braid {

class AucCeiling {
 public:
  void add(double probability, bool positive) {
    scored_.emplace_back(static_cast<float>(probability), positive);
    positives_ += positive ? 1 : 0;
  }
  std::int64_t rows() const { return std::ssize(scored_); }
  std::int64_t positives() const { return positives_; }
  /// 0.5 where all rows have one label. Sorts the rows.
  double auc();

 private:
  std::vector<std::pair<float, bool>> scored_;
  std::int64_t positives_ = 0;
};

}  // namespace braid
