#include "engine/ops/common/home_swap.h"

#include <algorithm>
#include <utility>

namespace braid {

PreparedKernel host_home_swap(const PrepareContext& c, HomeSwapSpec spec) {
  PreparedKernel kernel;
  kernel.run = [spec = std::move(spec), pool = &c.pool](const KernelArgs& a) {
    const HomeBlock block = home_block(spec.layout, spec.memory, a.params->step);
    constexpr std::int64_t kRows = 1024, kIds = 8192;
    pool->parallel_range(block.counts[1], kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const HomeSwap swap = block.swaps[i];
        auto at = static_cast<std::size_t>(i) * spec.layout.width;
        for (std::size_t piece = 0; piece < spec.widths.size(); ++piece) {
          const auto width = static_cast<std::size_t>(spec.widths[piece]);
          float* const row = a.var<float>(spec.variable(swap.table, static_cast<int>(piece))) +
                             static_cast<std::size_t>(swap.slot) * width;
          std::copy_n(row, width, block.out + at);
          std::copy_n(block.in + at, width, row);
          at += width;
        }
      }
    });
    for (std::size_t list = 0; list < spec.ids.size(); ++list) {
      const auto* const places = spec.places(a, list);
      auto* const rows = a.out<std::int32_t>(static_cast<int>(list));
      pool->parallel_range(spec.ids[list], kIds, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) rows[i] = places[i] < 0 ? -1 : block.slots[places[i]];
      });
    }
    *a.out<float>(static_cast<int>(spec.ids.size())) = 0;
  };
  return kernel;
}

}  // namespace braid
