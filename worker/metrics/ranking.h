// Measures of how well scores order rows of two classes. Rows of one score are a tie, and no measure depends
// on the order of the rows inside of it. What the rows do not say is NaN: of one class only there is no AUC.
// Thread rule: pure functions.
//
//   AUC            share of the pairs (positive, negative) that are in order, ties half, pairs counted by the
//                  product of their weights (Mann & Whitney 1947)
//   PR AUC         average precision, sum over thresholds t of (R_t - R_(t-1)) P_t; not interpolated
//   group AUC      mean of the groups' AUC by their weight, which without weights is their number of rows
//                  (Zhou et al. 2018, "Deep interest network"); groups of one class count nothing
//   precision@k    positives among the k best rows of a group, over k; the mean over all groups
//   recall@k       the same over the positives of the group; the mean over groups that have one
//   NDCG@k         sum over places i <= k of y_i / log2(i + 1), over that of the best order; the mean over
//                  groups that have a positive. A place in a tie has the tie's mean y, as scikit-learn has it
//                  (McSherry & Najork 2008)
// Weights are those of rows: the measures at k do not use them. Where there are no groups all rows are one.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace braid::worker {

/// What the rows do not say.
inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

/// Columns of equal length; `weights` and `groups` may be empty.
struct RankedRows {
  std::vector<float> scores;
  std::vector<std::uint8_t> labels;  // 0 or 1
  std::vector<float> weights;
  std::vector<std::int64_t> groups;

  double weight(std::size_t row) const { return weights.empty() ? 1.0 : weights[row]; }
};

/// Rows by group, then by score, best first. REQUIRES: no score is NaN.
std::vector<std::size_t> ranked_order(const RankedRows& rows, bool by_group);

/// `order`: of ranked_order(rows, false).
double auc(const RankedRows& rows, std::span<const std::size_t> order);
double average_precision(const RankedRows& rows, std::span<const std::size_t> order);

/// `order`: of ranked_order(rows, true), where there are groups.
double group_auc(const RankedRows& rows, std::span<const std::size_t> order);
double precision_at(std::int64_t k, const RankedRows& rows, std::span<const std::size_t> order);
double recall_at(std::int64_t k, const RankedRows& rows, std::span<const std::size_t> order);
double ndcg_at(std::int64_t k, const RankedRows& rows, std::span<const std::size_t> order);

}  // namespace braid::worker
