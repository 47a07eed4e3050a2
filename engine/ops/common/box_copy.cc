#include "engine/ops/common/box_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace braid {
namespace {

constexpr std::int64_t kGrain = 65536;  // elements a block
constexpr std::int64_t kTile = 32;      // side of a square that is transposed in the first-level cache

/// Drops axes of size 1 and joins neighbours that both sides walk as one.
std::vector<BoxAxis> merged(const std::vector<BoxAxis>& axes) {
  std::vector<BoxAxis> result;
  for (const BoxAxis& axis : axes) {
    if (axis.size == 1) continue;
    if (!result.empty() && result.back().src_stride == axis.src_stride * axis.size &&
        result.back().dst_stride == axis.dst_stride * axis.size) {
      result.back() = {result.back().size * axis.size, axis.src_stride, axis.dst_stride};
    } else {
      result.push_back(axis);
    }
  }
  if (result.empty()) result.push_back({1, 1, 1});
  return result;
}

/// Moves the axis that is contiguous in the source next to the last, which is contiguous in the destination.
/// False when the box is not of that kind.
bool order_for_transposition(std::vector<BoxAxis>& axes) {
  if (axes.size() < 2 || axes.back().dst_stride != 1 || axes.back().src_stride == 1) return false;
  auto it = std::find_if(axes.begin(), axes.end(), [](const BoxAxis& a) { return a.src_stride == 1; });
  if (it == axes.end() || it->size < 4 || axes.back().size < 4) return false;
  std::rotate(it, it + 1, axes.end() - 1);
  return true;
}

}  // namespace

BoxCopy::BoxCopy(std::vector<BoxAxis> axes, std::int64_t src_offset, std::int64_t dst_offset,
                 std::size_t element_bytes)
    : src_offset_(src_offset), dst_offset_(dst_offset), element_bytes_(element_bytes) {
  if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4 && element_bytes != 8)
    throw InvalidArgument(fmt::format("elements of {} bytes cannot be copied one by one", element_bytes));
  elements_ = 1;
  for (const BoxAxis& axis : axes) elements_ *= axis.size;
  if (elements_ == 0) return;
  axes = merged(axes);
  if (axes.size() > kMaxAxes)
    throw InvalidArgument(fmt::format("a copy has at most {} axes, got {}", kMaxAxes, axes.size()));
  transposed_ = order_for_transposition(axes);
  rank_ = static_cast<int>(axes.size());
  std::copy(axes.begin(), axes.end(), axes_.begin());
}

void BoxCopy::run(ThreadPool& pool, const void* src, void* dst) const {
  if (elements_ == 0) return;
  switch (element_bytes_) {
    case 1:
      return run_typed(pool, static_cast<const std::uint8_t*>(src), static_cast<std::uint8_t*>(dst));
    case 2:
      return run_typed(pool, static_cast<const std::uint16_t*>(src), static_cast<std::uint16_t*>(dst));
    case 4:
      return run_typed(pool, static_cast<const std::uint32_t*>(src), static_cast<std::uint32_t*>(dst));
    default:
      return run_typed(pool, static_cast<const std::uint64_t*>(src), static_cast<std::uint64_t*>(dst));
  }
}

template <class T>
void BoxCopy::run_typed(ThreadPool& pool, const T* src, T* dst) const {
  src += src_offset_;
  dst += dst_offset_;
  if (!transposed_) {
    pool.parallel_range(elements_, kGrain,
                        [&](std::int64_t begin, std::int64_t end) { copy_rows(begin, end, src, dst); });
    return;
  }
  // A unit is a band of kTile source-contiguous lines of one plane.
  const BoxAxis& lines = axes_[static_cast<std::size_t>(rank_ - 2)];
  const BoxAxis& inner = axes_[static_cast<std::size_t>(rank_ - 1)];
  const std::int64_t bands = (lines.size + kTile - 1) / kTile;
  const std::int64_t planes = elements_ / (lines.size * inner.size);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kTile * inner.size));
  pool.parallel_range(planes * bands, grain,
                      [&](std::int64_t begin, std::int64_t end) { copy_planes(begin, end, src, dst); });
}

/// Elements [begin, end) of the box in its row-major order.
template <class T>
void BoxCopy::copy_rows(std::int64_t begin, std::int64_t end, const T* src, T* dst) const {
  const int last = rank_ - 1;
  const BoxAxis inner = axes_[static_cast<std::size_t>(last)];
  std::array<std::int64_t, kMaxAxes> at{};
  std::int64_t column = begin % inner.size;
  std::int64_t rest = begin / inner.size;
  for (int a = last - 1; a >= 0; --a) {
    const BoxAxis& axis = axes_[static_cast<std::size_t>(a)];
    at[static_cast<std::size_t>(a)] = rest % axis.size;
    src += rest % axis.size * axis.src_stride;
    dst += rest % axis.size * axis.dst_stride;
    rest /= axis.size;
  }
  while (begin < end) {
    const std::int64_t n = std::min(inner.size - column, end - begin);
    const T* s = src + column * inner.src_stride;
    T* d = dst + column * inner.dst_stride;
    if (inner.src_stride == 1 && inner.dst_stride == 1) {
      std::memcpy(d, s, static_cast<std::size_t>(n) * sizeof(T));
    } else {
      for (std::int64_t i = 0; i < n; ++i) d[i * inner.dst_stride] = s[i * inner.src_stride];
    }
    begin += n;
    column = 0;
    for (int a = last - 1; a >= 0; --a) {
      const BoxAxis& axis = axes_[static_cast<std::size_t>(a)];
      src += axis.src_stride;
      dst += axis.dst_stride;
      if (++at[static_cast<std::size_t>(a)] < axis.size) break;
      src -= axis.size * axis.src_stride;
      dst -= axis.size * axis.dst_stride;
      at[static_cast<std::size_t>(a)] = 0;
    }
  }
}

template <class T>
void BoxCopy::copy_planes(std::int64_t begin, std::int64_t end, const T* src, T* dst) const {
  const BoxAxis lines = axes_[static_cast<std::size_t>(rank_ - 2)];
  const BoxAxis inner = axes_[static_cast<std::size_t>(rank_ - 1)];
  const std::int64_t bands = (lines.size + kTile - 1) / kTile;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const T* s = src;
    T* d = dst;
    std::int64_t rest = unit / bands;
    for (int a = rank_ - 3; a >= 0; --a) {
      const BoxAxis& axis = axes_[static_cast<std::size_t>(a)];
      s += rest % axis.size * axis.src_stride;
      d += rest % axis.size * axis.dst_stride;
      rest /= axis.size;
    }
    const std::int64_t first = unit % bands * kTile;
    const std::int64_t last = std::min(lines.size, first + kTile);
    for (std::int64_t j = 0; j < inner.size; j += kTile) {
      const std::int64_t j_end = std::min(inner.size, j + kTile);
      for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t k = j; k < j_end; ++k) d[i * lines.dst_stride + k] = s[i + k * inner.src_stride];
    }
  }
}

std::vector<std::int64_t> row_major_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()));
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace braid
