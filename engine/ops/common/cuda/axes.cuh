// Axes of a tensor as a kernel's argument: from an index among their combinations to an offset.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::cuda {

struct DeviceAxes {
  static constexpr int kMax = 8;
  static constexpr std::int64_t kNarrow = std::int64_t{1} << 32;
  int count = 0;
  std::int64_t narrow = kNarrow;  // indices below it are taken apart in 32 bits
  std::int64_t size[kMax];        // innermost first
  std::int64_t stride[kMax];

  /// Adds an axis outside of the others; those of size 1 are left out. False when there are too many.
  bool add(std::int64_t axis_size, std::int64_t axis_stride) {
    if (axis_size == 1) return true;
    if (count == kMax) return false;
    if (count > 0 && size[count - 1] >= kNarrow) narrow = 0;
    size[count] = axis_size;
    stride[count++] = axis_stride;
    return true;
  }

  __device__ std::int64_t offset(std::int64_t index) const {
    if (count == 0) return 0;
    if (count == 1) return index * stride[0];
    std::int64_t sum = 0;
    // Divisions of 32 bits where they do: those of 64 are many instructions.
    if (index < narrow) {
      auto rest = static_cast<std::uint32_t>(index);
      for (int a = 0; a + 1 < count; ++a) {
        const auto length = static_cast<std::uint32_t>(size[a]);
        const std::uint32_t next = rest / length;
        sum += static_cast<std::int64_t>(rest - next * length) * stride[a];
        rest = next;
      }
      return sum + static_cast<std::int64_t>(rest) * stride[count - 1];
    }
    for (int a = 0; a + 1 < count; ++a) {
      const std::int64_t next = index / size[a];
      sum += (index - next * size[a]) * stride[a];
      index = next;
    }
    return sum + index * stride[count - 1];
  }
};

}  // namespace braid::cuda
