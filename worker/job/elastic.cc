#include "worker/job/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "proto/job.pb.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kMostWorkers = 1024;
constexpr double kWaitSeconds = 120;

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

int least_workers(const proto::Elastic& elastic) { return std::max(1, elastic.min_workers()); }

/// What keeps a part of the job's state on one worker alone, which is lost with it.
std::string kept_apart(const proto::Strategy& strategy) {
  if (strategy.compression().kind() != proto::Compression::NONE) return "strategy.compression";
  if (strategy.shard() != proto::Strategy::NOTHING) return "strategy.shard";
  if (strategy.average_every_steps() > 0) return "strategy.average_every_steps";
  return {};
}

/// Under parameter servers workers come and go where none waits for another and none keeps rows to itself.
std::string objection_under_servers(const proto::Job& job) {
  const proto::Strategy& strategy = job.strategy();
  const proto::Elastic& elastic = strategy.elastic();
  if (strategy.consistency() != proto::Strategy::ASP || job.input().shard() != proto::Input::DYNAMIC)
    return "strategy.elastic under PS is for strategy.consistency ASP with input.shard DYNAMIC: then no "
           "worker "
           "waits for another, and what a lost one had not done is given to others";
  if (elastic.max_workers() == 0)
    return "strategy.elastic.max_workers is needed under PS: a worker's batch has global_batch_size / "
           "max_workers rows, however many take part";
  if (elastic.min_workers() > 1)
    return fmt::format("strategy.elastic.min_workers is {}: under PS with ASP no worker waits for others",
                       elastic.min_workers());
  return {};
}

/// Workers that hold parts of the tables change over a checkpoint, which all write and read together.
std::string objection_to_parts(const proto::Job& job) {
  if (!spreads_state(job)) return {};
  if (job.strategy().backend() != proto::Strategy::RING)
    return "strategy.elastic under HYBRID needs strategy.backend RING";
  if (job.checkpoint().directory().empty())
    return "strategy.elastic under HYBRID needs checkpoint.directory, which all workers see: a worker's rows "
           "are on no other one";
  if (job.checkpoint().every_seconds() > 0)
    return "strategy.elastic under HYBRID does not go with checkpoint.every_seconds: all workers write a "
           "checkpoint together, after a step that all know; set checkpoint.every_steps";
  return {};
}

}  // namespace

bool spreads_state(const proto::Job& job) {
  return job.strategy().has_elastic() && job.strategy().kind() == proto::Strategy::HYBRID;
}

std::optional<int> open_places(const proto::Job& job) {
  if (!job.strategy().has_elastic() || job.strategy().kind() != proto::Strategy::PS) return std::nullopt;
  return job.strategy().elastic().max_workers();
}

std::optional<ElasticLimits> elastic_limits(const proto::Job& job) {
  if (!job.strategy().has_elastic() || job.strategy().kind() == proto::Strategy::PS) return std::nullopt;
  const proto::Elastic& elastic = job.strategy().elastic();
  ElasticLimits limits;
  limits.min_workers = least_workers(elastic);
  limits.max_workers = static_cast<int>(
      std::min({elastic.max_workers() > 0 ? std::int64_t{elastic.max_workers()} : kMostWorkers, kMostWorkers,
                std::max<std::int64_t>(job.input().global_batch_size(), 1)}));
  limits.wait = to_ms(elastic.wait_seconds() > 0 ? elastic.wait_seconds() : kWaitSeconds);
  limits.silence = to_ms(job.strategy().deadline_seconds());
  return limits;
}

std::string objection_to_elastic(const proto::Job& job) {
  const proto::Strategy& strategy = job.strategy();
  if (!strategy.has_elastic()) return {};
  if (strategy.kind() == proto::Strategy::PS) return objection_under_servers(job);
  const proto::Elastic& elastic = strategy.elastic();
  const int least = least_workers(elastic);
  if (strategy.kind() != proto::Strategy::ALLREDUCE && strategy.kind() != proto::Strategy::HYBRID)
    return fmt::format(
        "strategy.elastic is for strategy.kind ALLREDUCE, where every worker holds all variables, for HYBRID "
        "and for PS; with {} use braid launch --max-restarts, which goes on from the newest checkpoint",
        proto::Strategy::Kind_Name(strategy.kind()));
  if (std::string why = objection_to_parts(job); !why.empty()) return why;
  if (strategy.backend() == proto::Strategy::MPI)
    return "strategy.elastic needs strategy.backend RING or NCCL: MPI ends all ranks with one";
  if (const std::string what = kept_apart(strategy); !what.empty())
    return "strategy.elastic does not go with " + what + ", whose state is of one worker alone";
  if (strategy.reduction() == proto::Strategy::TRIMMED_MEAN && 2 * std::int64_t{strategy.trim()} >= least)
    return fmt::format("strategy.trim is {}: strategy.elastic.min_workers must be above {}, and is {}",
                       strategy.trim(), 2 * strategy.trim(), least);
  if (elastic.max_workers() > 0 && elastic.max_workers() < least)
    return fmt::format("strategy.elastic.max_workers is {}, below min_workers, {}", elastic.max_workers(),
                       least);
  if (job.input().global_batch_size() > 0 && least > job.input().global_batch_size())
    return fmt::format(
        "strategy.elastic.min_workers is {}, and a step has {} rows (input.global_batch_size) to share",
        least, job.input().global_batch_size());
  if (job.input().shard() != proto::Input::ALL)
    return "strategy.elastic needs input.shard ALL: rows that each worker keeps for itself are lost with it";
  if (job.input().has_follow())
    return "strategy.elastic does not go with input.follow: workers that come do not know the files";
  return {};
}

}  // namespace braid::worker
