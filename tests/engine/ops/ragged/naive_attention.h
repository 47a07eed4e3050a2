// Ragged attention as its definition reads, in float64, with a matrix of all scores: what the op is compared
// with. Written apart from the op: who sees whom follows from places, as the HSTU reference has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braid::testing {

struct NaiveAttention {
  std::int64_t heads = 1, qk = 1, v = 1;
  std::vector<std::int64_t> offsets = {}, targets = {};  // targets: empty, or of each row
  bool softmax = false, causal = true;
  std::int64_t window = 0, context = 0, max_length = 0;
  double scale = 1;

  struct Result {
    std::vector<double> out, dq, dk, dv;
  };
  /// q, k [n, heads, qk]; v, d_out [n, heads, v].
  Result run(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
             const std::vector<double>& d_out) const;
  bool sees(std::int64_t row, std::int64_t i, std::int64_t j) const;
};

}  // namespace braid::testing
