#include "engine/input/generators/auc_ceiling.h"

#include <algorithm>

namespace braid {

double AucCeiling::auc() {
  std::sort(scored_.begin(), scored_.end());
  double ranks = 0;
  for (std::size_t i = 0; i < scored_.size(); ++i)
    if (scored_[i].second) ranks += static_cast<double>(i + 1);
  const auto p = static_cast<double>(positives_), n = static_cast<double>(rows() - positives_);
  return p == 0 || n == 0 ? 0.5 : (ranks - p * (p + 1) / 2) / (p * n);
}

}  // namespace braid
