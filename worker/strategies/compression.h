// Compression of gradients on the wire, the arithmetic alone. Each encoder takes x = gradient + error of a
// rank, and leaves in `x` what it did not send: decode(encode(x)) + error = x up to rounding (error feedback:
// Karimireddy et al. 2019, arXiv 1901.09847).
//
//   INT8       blocks of b elements: scale = max |x| / 127, q = round(x / scale)
//   TOP_K      the k elements of the largest |x|; of equal ones the first
//   POWER_SGD  a matrix x [n, m] as p q^T: p = orthonormal(sum over ranks of x q), q = sum of x^T p
//              (Vogels et al. 2019, arXiv 1905.13727)
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::worker {

/// What `count` elements become: a scale for each block of `block`, then a byte each.
constexpr std::int64_t int8_bytes(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block * static_cast<std::int64_t>(sizeof(float)) + count;
}
/// Encodes x into int8_bytes() at `to`, and leaves the error in x. A block with an element that is no number
/// decodes to NaN.
void encode_int8(float* x, std::int64_t count, std::int64_t block, std::byte* to);
/// to[i] += what is encoded.
void add_int8(const std::byte* from, std::int64_t count, std::int64_t block, float* to);

/// The k largest of x as (place, value) pairs at `places` and `values`; the others stay in x as they are,
/// these become 0. `order`: scratch of `count`. REQUIRES: 0 < k <= count < 2^31.
void take_largest(float* x, std::int64_t count, std::int64_t k, std::int32_t* order, std::int32_t* places,
                  float* values);

/// Makes the columns of p [n, r] orthonormal, one after another (modified Gram-Schmidt); a column that
/// depends on those before it becomes 0.
void orthonormalize(float* p, std::int64_t n, std::int64_t r);

/// The rank of what a matrix becomes; 0: it is sent as it is, since that is not more.
constexpr std::int64_t power_rank(std::int64_t n, std::int64_t m, std::int64_t rank) {
  const std::int64_t r = rank < n ? (rank < m ? rank : m) : (n < m ? n : m);
  return r * (n + m) < n * m ? r : 0;
}

}  // namespace braid::worker
