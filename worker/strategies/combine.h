// How the gradients of several workers become one where that is not their sum; the formulas alone, on one
// block of values of each worker.
//
//   ADASUM        a + b = (1 - <a,b> / 2<a,a>) a + (1 - <a,b> / 2<b,b>) b, of neighbours, then of their
//                 results, ...; one that is left over goes on alone (Maleki et al. 2021, arXiv 2006.02924).
//                 The result is a sum of the workers' gradients with coefficients that follow from their
//                 products <g_i, g_j>, of a variable as a whole.
//   MEDIAN        of each element; of an even number of workers the mean of the two in the middle
//   TRIMMED_MEAN  of each element, without the `trim` smallest and the `trim` largest; both of Yin et al.
//                 2018, arXiv 1803.01498
//
// For the latter two what is not a number counts as infinity. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::worker {

enum class Combination : std::int64_t { Adasum = 1, Median = 2, TrimmedMean = 3 };

/// Coefficients of the workers' gradients in their Adasum. `products`: [world, world], symmetric. `scratch`:
/// 2 * world * world doubles.
void adasum_coefficients(std::span<const double> products, std::span<double> coefficients,
                         std::span<double> scratch);

/// result[i] of values[w * stride + i], w < world, i < count. The values are left in another order.
/// `trim`: of each end; of the median it follows from `world`. REQUIRES: 2 * trim < world.
void combine_sorted(float* values, std::int64_t stride, int world, int trim, std::int64_t count,
                    float* result);

/// How many of `world` values the median leaves out at each end.
constexpr int median_trim(int world) { return (world - 1) / 2; }

}  // namespace braid::worker
