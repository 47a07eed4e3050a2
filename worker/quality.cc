#include "worker/quality.h"

#include <algorithm>

namespace braid::worker {

void Accuracy::add(std::span<const float> logits, std::span<const std::int64_t> labels) {
  if (labels.empty()) return;
  const std::size_t classes = logits.size() / labels.size();
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto* begin = logits.data() + row * classes;
    right_ += std::max_element(begin, begin + classes) - begin == labels[row];
  }
  rows_ += static_cast<std::int64_t>(labels.size());
}

void Auc::add(std::span<const float> scores, std::span<const float> labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) scored_.emplace_back(scores[i], labels[i] > 0.5F);
}

double Auc::value() const {
  auto sorted = scored_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double positives = 0, rank_sum = 0;
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin;
    double positives_here = 0;
    for (; end < sorted.size() && sorted[end].first == sorted[begin].first; ++end)
      positives_here += sorted[end].second;
    rank_sum +=
        positives_here * (static_cast<double>(begin + end + 1) / 2);  // mean rank of the tie, ranks from 1
    positives += positives_here;
    begin = end;
  }
  const double negatives = static_cast<double>(sorted.size()) - positives;
  if (positives == 0 || negatives == 0) return 0.5;
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace braid::worker
