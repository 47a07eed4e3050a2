#include "worker/strategies/kept_rows.h"

#include "base/metrics.h"

namespace braid::worker {

void KeptRows::publish(MetricsRegistry& registry) const {
  registry.on_collect([&registry, weak = weak_from_this()] {
    const auto its = weak.lock();
    if (!its) return;
    const ps::CacheCounts counts = its->counts();
    const auto rows = [&](const char* op, std::uint64_t total) {
      Counter& counter = registry.counter("braid_row_cache_rows_total",
                                          "Rows of sparse tables that steps have named, by what became of "
                                          "them in the worker's cache.",
                                          {{"op", op}});
      if (const double behind = static_cast<double>(total) - counter.value(); behind > 0) counter.add(behind);
    };
    rows("hit", counts.hits);
    rows("miss", counts.misses);
    rows("repaired", counts.repairs);
    rows("expired", counts.expired);
    rows("evicted", counts.evictions);
    rows("uncached", counts.uncached);
    registry
        .gauge("braid_row_cache_largest_age_steps", "Steps since the oldest row that was used was pulled.",
               {})
        .set(static_cast<double>(counts.largest_age));
    if (const auto used = its->used_steps())
      registry
          .gauge("braid_row_cache_used_steps",
                 "Steps that used the cache: where steps without it take less time, most are made so.", {})
          .set(static_cast<double>(*used));
  });
}

}  // namespace braid::worker
