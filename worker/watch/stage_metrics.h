// What a stage counts, as metrics of the process (docs/user/metrics.md): brought up to date whenever the
// registry is rendered. Thread rule: built and destroyed by one thread; the rest happens on the HTTP thread.
#pragma once

#include <memory>
#include <string>

#include "base/metrics.h"
#include "engine/staging/stage.h"

namespace braid::worker {

class StageMetrics {
 public:
  /// `stage` outlives it; `registry` outlives the process's last render().
  StageMetrics(MetricsRegistry& registry, const Stage& stage);
  ~StageMetrics();  // takes the last values
  StageMetrics(const StageMetrics&) = delete;
  StageMetrics& operator=(const StageMetrics&) = delete;

 private:
  struct Source;
  const std::shared_ptr<Source> source_;
};

}  // namespace braid::worker
