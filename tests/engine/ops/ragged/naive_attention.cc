#include "tests/engine/ops/ragged/naive_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace braid::testing {

bool NaiveAttention::sees(std::int64_t row, std::int64_t i, std::int64_t j) const {
  const auto at = static_cast<std::size_t>(row);
  const std::int64_t length = offsets[at + 1] - offsets[at];
  const std::int64_t history = length - (targets.empty() ? 0 : targets[at]);
  if (i == j) return true;
  if (j >= history) return false;
  const auto place = [&](std::int64_t x) {
    x = std::min(x, history);
    return context > 0 ? std::max<std::int64_t>(x - context + 1, 0) : x;
  };
  if (context > 0 && i < context && i < history) return true;
  const std::int64_t distance = place(i) - place(j);
  if (window > 0 && std::abs(distance) > window) return false;
  return !causal || i >= history || distance > 0;
}

NaiveAttention::Result NaiveAttention::run(const std::vector<double>& q, const std::vector<double>& k,
                                           const std::vector<double>& v,
                                           const std::vector<double>& d_out) const {
  Result to{std::vector<double>(v.size()), std::vector<double>(q.size()), std::vector<double>(k.size()),
            std::vector<double>(v.size())};
  const auto batch = static_cast<std::int64_t>(offsets.size()) - 1;
  std::int64_t longest = 1;
  for (std::int64_t b = 0; b < batch; ++b)
    longest =
        std::max(longest, offsets[static_cast<std::size_t>(b) + 1] - offsets[static_cast<std::size_t>(b)]);
  const double n = static_cast<double>(max_length > 0 ? max_length : longest);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t first = offsets[static_cast<std::size_t>(b)];
    const std::int64_t length = offsets[static_cast<std::size_t>(b) + 1] - first;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = [&](std::int64_t i, std::int64_t width) {
        return static_cast<std::size_t>(((first + i) * heads + h) * width);
      };
      for (std::int64_t i = 0; i < length; ++i) {
        std::vector<double> s(static_cast<std::size_t>(length)), a(s.size()), da(s.size()), ds(s.size());
        double sum = 0, dot = 0;
        for (std::int64_t j = 0; j < length; ++j) {
          if (!sees(b, i, j)) continue;
          const auto c = static_cast<std::size_t>(j);
          for (std::int64_t e = 0; e < qk; ++e)
            s[c] += scale * q[at(i, qk) + static_cast<std::size_t>(e)] *
                    k[at(j, qk) + static_cast<std::size_t>(e)];
          a[c] = softmax ? std::exp(s[c]) : s[c] / (1 + std::exp(-s[c])) / n;
          sum += a[c];
          for (std::int64_t e = 0; e < this->v; ++e)
            da[c] += d_out[at(i, this->v) + static_cast<std::size_t>(e)] *
                     v[at(j, this->v) + static_cast<std::size_t>(e)];
        }
        for (std::size_t j = 0; softmax && j < a.size(); ++j) dot += (a[j] /= sum) * da[j];
        for (std::int64_t j = 0; j < length; ++j) {
          if (!sees(b, i, j)) continue;
          const auto c = static_cast<std::size_t>(j);
          const double sigmoid = 1 / (1 + std::exp(-s[c]));
          ds[c] = scale * (softmax ? a[c] * (da[c] - dot) : da[c] * sigmoid * (1 + s[c] * (1 - sigmoid)) / n);
          for (std::int64_t e = 0; e < this->v; ++e) {
            to.out[at(i, this->v) + static_cast<std::size_t>(e)] +=
                a[c] * v[at(j, this->v) + static_cast<std::size_t>(e)];
            to.dv[at(j, this->v) + static_cast<std::size_t>(e)] +=
                a[c] * d_out[at(i, this->v) + static_cast<std::size_t>(e)];
          }
          for (std::int64_t e = 0; e < qk; ++e) {
            to.dq[at(i, qk) + static_cast<std::size_t>(e)] +=
                ds[c] * k[at(j, qk) + static_cast<std::size_t>(e)];
            to.dk[at(j, qk) + static_cast<std::size_t>(e)] +=
                ds[c] * q[at(i, qk) + static_cast<std::size_t>(e)];
          }
        }
      }
    }
  }
  return to;
}

}  // namespace braid::testing
