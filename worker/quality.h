// Measures of how well a model predicts, on the host, from fetched predictions.
//   accuracy  share of rows whose largest logit is the label's
//   AUC       area under the ROC curve by ranks, ties counted half (Mann & Whitney 1947):
//             (sum of ranks of positives - P (P + 1) / 2) / (P N)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid::worker {

class Accuracy {
 public:
  /// logits [rows, classes], labels [rows].
  void add(std::span<const float> logits, std::span<const std::int64_t> labels);
  double value() const { return rows_ == 0 ? 0.0 : static_cast<double>(right_) / static_cast<double>(rows_); }

 private:
  std::int64_t right_ = 0, rows_ = 0;
};

class Auc {
 public:
  /// Any monotone score; labels are 0 or 1.
  void add(std::span<const float> scores, std::span<const float> labels);
  /// 0.5 when one of the classes is missing.
  double value() const;

 private:
  std::vector<std::pair<float, bool>> scored_;
};

}  // namespace braid::worker
