// The bags of one table on the CPU: where they lie, and what their sums are multiplied by.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/sparse/bag_args.h"

namespace braid {

template <class T, class I, class O>
struct BagParts {
  const I* ids;
  const O* offsets;  // null: bags of `hot`
  const T* weights;  // or null
  BagSizes sizes;
  Pooling pooling;

  std::int64_t begin(std::int64_t bag) const {
    return offsets ? static_cast<std::int64_t>(offsets[bag]) : bag * sizes.hot;
  }
  std::int64_t end(std::int64_t bag) const { return begin(bag + 1); }
  /// Ids that belong to a bag.
  std::int64_t used() const { return offsets ? begin(sizes.bags) : sizes.ids; }
  T weight(std::int64_t k) const { return weights ? weights[k] : T(1); }

  T scale(std::int64_t bag) const {
    if (pooling == Pooling::Sum || pooling == Pooling::Max) return T(1);
    T sum = 0;
    if (!weights) {
      sum = static_cast<T>(end(bag) - begin(bag));
    } else {
      for (std::int64_t k = begin(bag); k < end(bag); ++k)
        sum += pooling == Pooling::Mean ? weights[k] : weights[k] * weights[k];
    }
    if (sum == T(0)) return T(0);
    return T(1) / (pooling == Pooling::Mean ? sum : std::sqrt(sum));
  }

  /// Throws: InvalidArgument "<place>: offsets ..." unless they rise from 0 and stay within the ids.
  void check_offsets(const std::string& place) const {
    if (!offsets) return;
    if (offsets[0] != 0)
      throw InvalidArgument(fmt::format("{}: offsets begin with {}, not with 0", place, offsets[0]));
    for (std::int64_t b = 0; b < sizes.bags; ++b)
      if (offsets[b + 1] < offsets[b] || static_cast<std::int64_t>(offsets[b + 1]) > sizes.ids)
        throw InvalidArgument(fmt::format("{}: offsets[{}] = {} falls, or is above the {} ids", place, b + 1,
                                          offsets[b + 1], sizes.ids));
  }
};

}  // namespace braid
