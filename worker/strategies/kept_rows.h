// Rows of sparse tables on servers that this worker keeps, whichever way: what becomes of them, for the end
// of a run, metrics and tests. A service of the runtime. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ps/client/cache_plan.h"

namespace braid {
class MetricsRegistry;
}

namespace braid::worker {

class KeptRows : public std::enable_shared_from_this<KeptRows> {
 public:
  virtual ~KeptRows() = default;
  /// Of all tables.
  virtual ps::CacheCounts counts() const = 0;
  /// For people, in a line; empty before the first step.
  virtual std::string text() const = 0;
  /// Steps that used what is here, where some do not.
  virtual std::optional<std::uint64_t> used_steps() const { return std::nullopt; }

  /// Its counts are metrics of the process, as long as it lives.
  void publish(MetricsRegistry& registry) const;
};

}  // namespace braid::worker
