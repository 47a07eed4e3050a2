// Copies a box of elements between two places that walk memory with strides: the one loop behind transpose,
// slice, pad, concat, split, pack, tile, reverse and broadcast. Made in `prepare` (axes are merged and
// ordered there), run over the pool. Strides are in elements; a source stride of 0 repeats, a negative one
// walks back. REQUIRES: no two elements of the box have one destination.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/ir/shape.h"

namespace braid {

struct BoxAxis {
  std::int64_t size = 1;
  std::int64_t src_stride = 0;
  std::int64_t dst_stride = 0;
};

class BoxCopy {
 public:
  static constexpr int kMaxAxes = 16;

  /// `axes` outermost first. Throws: InvalidArgument for more than kMaxAxes that do not merge, or an element
  /// size other than 1, 2, 4, 8.
  BoxCopy(std::vector<BoxAxis> axes, std::int64_t src_offset, std::int64_t dst_offset,
          std::size_t element_bytes);

  /// `src` and `dst` are the bases that the offsets count from.
  void run(ThreadPool& pool, const void* src, void* dst) const;

  /// The walk itself, for kernels of other devices: axes outermost first, none when there is nothing to copy.
  std::span<const BoxAxis> axes() const { return {axes_.data(), static_cast<std::size_t>(rank_)}; }
  /// Whether the last two axes are contiguous in src and in dst, respectively.
  bool transposed() const { return transposed_; }
  std::int64_t elements() const { return elements_; }
  std::int64_t src_offset() const { return src_offset_; }
  std::int64_t dst_offset() const { return dst_offset_; }
  std::size_t element_bytes() const { return element_bytes_; }

 private:
  template <class T>
  void run_typed(ThreadPool& pool, const T* src, T* dst) const;
  template <class T>
  void copy_rows(std::int64_t begin, std::int64_t end, const T* src, T* dst) const;
  template <class T>
  void copy_planes(std::int64_t begin, std::int64_t end, const T* src, T* dst) const;

  std::array<BoxAxis, kMaxAxes> axes_{};
  int rank_ = 0;             // 0: nothing to copy
  bool transposed_ = false;  // the last two axes are contiguous in src and in dst, respectively
  std::int64_t elements_ = 0;
  std::int64_t src_offset_;
  std::int64_t dst_offset_;
  std::size_t element_bytes_;
};

/// Row-major strides of a static shape.
std::vector<std::int64_t> row_major_strides(const Shape& shape);

}  // namespace braid
