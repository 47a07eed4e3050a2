// The bags of one table on a device: where they lie, and what their sums are multiplied by.
#pragma once

#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/sparse/bag_args.h"

namespace braid::cuda {

struct BagRange {
  std::int64_t begin, end;
};

/// What is known when a program is bound.
struct BagShape {
  BagSizes sizes;
  bool is_id64 = false, is_offset64 = false;
};

inline BagShape bag_shape(const PrepareContext& c, const BagInputs& in, int first) {
  const auto info = [&](int i) -> const OutputInfo& { return c.inputs[static_cast<std::size_t>(i)]; };
  const OutputInfo& ids = info(in.ids(0, first));
  const OutputInfo* offsets = in.ragged ? &info(in.offsets(0, first)) : nullptr;
  return {bag_sizes(in, ids.shape, offsets ? &offsets->shape : nullptr), ids.dtype == DType::Int64,
          offsets && offsets->dtype == DType::Int64};
}

/// Launches take it by value.
template <class T>
struct DeviceBags {
  const void* ids;
  const void* offsets;  // null: bags of `hot`
  const T* weights;     // or null
  std::int64_t count;   // of bags
  std::int64_t n;       // of ids
  std::int32_t hot;
  std::int8_t pooling;
  bool is_id64, is_offset64;

  __device__ std::int64_t id(std::int64_t k) const {
    return is_id64 ? static_cast<const std::int64_t*>(ids)[k] : static_cast<const std::int32_t*>(ids)[k];
  }
  __device__ std::int64_t offset(std::int64_t bag) const {
    return is_offset64 ? static_cast<const std::int64_t*>(offsets)[bag]
                       : static_cast<const std::int32_t*>(offsets)[bag];
  }
  /// Ids that belong to a bag.
  __device__ std::int64_t used() const {
    if (!offsets) return n;
    const std::int64_t end = offset(count);
    return end < 0 ? 0 : end < n ? end : n;
  }
  /// Of a bag; offsets that fall or leave the ids are reported, and such a bag is empty.
  __device__ BagRange range(std::int64_t bag, StepStatus* status, int op) const {
    if (!offsets) return {bag * hot, (bag + 1) * hot};
    const std::int64_t begin = offset(bag), end = offset(bag + 1);
    if (begin >= 0 && begin <= end && end <= n && (bag != 0 || begin == 0)) return {begin, end};
    report(status, op, StatusCode::IndexOutOfRange, bag == 0 && begin != 0 ? begin : end, n);
    return {0, 0};
  }
  /// The bag that id k belongs to. REQUIRES: k < used().
  __device__ std::int64_t bag_of(std::int64_t k) const {
    if (!offsets) return k / hot;
    std::int64_t low = 0;
    for (std::int64_t high = count; high - low > 1;) {
      const std::int64_t middle = (low + high) / 2;
      (offset(middle) <= k ? low : high) = middle;
    }
    return low;
  }
  __device__ bool is_max() const { return pooling == static_cast<int>(Pooling::Max); }
  __device__ T scale(BagRange range) const {
    if (pooling == static_cast<int>(Pooling::Sum) || is_max()) return T(1);
    const bool is_mean = pooling == static_cast<int>(Pooling::Mean);
    T sum = weights ? T(0) : static_cast<T>(range.end - range.begin);
    if (weights)
      for (std::int64_t k = range.begin; k < range.end; ++k)
        sum += is_mean ? weights[k] : weights[k] * weights[k];
    if (sum == T(0)) return T(0);
    return T(1) / (is_mean ? sum : std::sqrt(sum));
  }
};

/// `first`: the input at which those of the table begin.
template <class T>
DeviceBags<T> device_bags(const BagShape& shape, const BagInputs& in, const KernelArgs& a, int first) {
  return {.ids = a.inputs[in.ids(0, first)],
          .offsets = in.ragged ? a.inputs[in.offsets(0, first)] : nullptr,
          .weights = in.weighted ? a.in<T>(in.weights(0, first)) : nullptr,
          .count = shape.sizes.bags,
          .n = shape.sizes.ids,
          .hot = static_cast<std::int32_t>(shape.sizes.hot),
          .pooling = static_cast<std::int8_t>(in.pooling),
          .is_id64 = shape.is_id64,
          .is_offset64 = shape.is_offset64};
}

}  // namespace braid::cuda
