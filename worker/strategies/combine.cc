#include "worker/strategies/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid::worker {

void adasum_coefficients(std::span<const double> products, std::span<double> coefficients,
                         std::span<double> scratch) {
  const std::size_t world = coefficients.size();
  // Row k: the coefficients of the k-th gradient that is left.
  double* rows = scratch.data();
  std::fill_n(rows, world * world, 0.0);
  for (std::size_t w = 0; w < world; ++w) rows[w * world + w] = 1;
  const auto product = [&](const double* a, const double* b) {
    double sum = 0;
    for (std::size_t i = 0; i < world; ++i) {
      if (a[i] == 0) continue;
      double row = 0;
      for (std::size_t j = 0; j < world; ++j) row += products[i * world + j] * b[j];
      sum += a[i] * row;
    }
    return sum;
  };
  for (std::size_t left = world; left > 1; left = (left + 1) / 2) {
    for (std::size_t k = 0; k + 1 < left; k += 2) {
      double *a = rows + k * world, *b = a + world, *to = rows + k / 2 * world;
      const double ab = product(a, b), aa = product(a, a), bb = product(b, b);
      const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1, of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
      for (std::size_t i = 0; i < world; ++i) to[i] = of_a * a[i] + of_b * b[i];
    }
    if (left % 2 == 1) std::copy_n(rows + (left - 1) * world, world, rows + left / 2 * world);
  }
  std::copy_n(rows, world, coefficients.begin());
}

void combine_sorted(float* values, std::int64_t stride, int world, int trim, std::int64_t count,
                    float* result) {
  const auto row = [&](int w) { return values + w * stride; };
  for (int w = 0; w < world; ++w) {
    float* const x = row(w);
    for (std::int64_t i = 0; i < count; ++i)
      x[i] = x[i] == x[i] ? x[i] : std::numeric_limits<float>::infinity();
  }
  // Odd-even transposition: neighbours change places, whole rows at a time.
  for (int pass = 0; pass < world; ++pass)
    for (int w = pass % 2; w + 1 < world; w += 2) {
      float *const a = row(w), *const b = row(w + 1);
      for (std::int64_t i = 0; i < count; ++i) {
        const float low = a[i] < b[i] ? a[i] : b[i], high = a[i] < b[i] ? b[i] : a[i];
        a[i] = low;
        b[i] = high;
      }
    }
  const int kept = world - 2 * trim;
  std::copy_n(row(trim), count, result);
  for (int w = trim + 1; w < world - trim; ++w) {
    const float* const x = row(w);
    for (std::int64_t i = 0; i < count; ++i) result[i] += x[i];
  }
  if (kept == 1) return;
  const float scale = 1.0F / static_cast<float>(kept);
  for (std::int64_t i = 0; i < count; ++i) result[i] *= scale;
}

}  // namespace braid::worker
