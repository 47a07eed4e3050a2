// What strategy.elastic says: how many workers a job needs and takes, and how long too few wait for others.
// Thread rule: values.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace braid::proto {
class Job;
}

namespace braid::worker {

struct ElasticLimits {
  int min_workers = 1;
  int max_workers = 1;  // no more than rows in a step
  /// That fewer than min_workers wait for others.
  std::chrono::milliseconds wait{120'000};
  /// That the others wait for a worker that is still connected and says nothing.
  std::chrono::milliseconds silence{60'000};
};

/// Nothing where workers that are lost end the job. REQUIRES: check_job() took it.
std::optional<ElasticLimits> elastic_limits(const proto::Job& job);

/// Whether each worker of that elastic job holds a part of its state that no other has. The next world's
/// workers hold other parts, which they read from a checkpoint then.
bool spreads_state(const proto::Job& job);

/// How many workers may take part at a time in an elastic job whose workers wait for nobody (PS with ASP and
/// input.shard DYNAMIC): each that comes takes a free place. Nothing in every other job.
std::optional<int> open_places(const proto::Job& job);

/// Why the job cannot be elastic, by field; empty: it can, or is not meant to be.
std::string objection_to_elastic(const proto::Job& job);

}  // namespace braid::worker
