// What a job says about metrics, for the model that it trains. Thread rule: pure functions.
#pragma once

#include <vector>

#include "models/model.h"
#include "worker/metrics/metrics.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// All that is measured; the first one decides. Throws: InvalidArgument for what does not measure the model's
/// kind of prediction, cannot decide, or needs groups that the job does not name.
std::vector<Metric> job_metrics(const proto::Job& job, const ModelGraph& model);

}  // namespace braid::worker
