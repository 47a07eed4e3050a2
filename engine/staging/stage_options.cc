#include "engine/staging/stage_options.h"

#include <array>
#include <utility>

#include "base/thread_limit.h"
#include "engine/staging/stage_pools.h"

namespace braid {
namespace {

constexpr std::array<std::pair<TimeoutPolicy, std::string_view>, 3> kPolicies = {{
    {TimeoutPolicy::Error, "ERROR"},
    {TimeoutPolicy::Drop, "DROP"},
    {TimeoutPolicy::Wait, "WAIT"},
}};

/// Clocks count nanoseconds in 64 bits.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24) * 36525;

}  // namespace

std::optional<TimeoutPolicy> timeout_policy_from_name(std::string_view name) {
  for (const auto& [policy, text] : kPolicies)
    if (text == name) return policy;
  return std::nullopt;
}

std::string_view timeout_policy_name(TimeoutPolicy policy) {
  for (const auto& [known, text] : kPolicies)
    if (known == policy) return text;
  return "?";
}

void check_stage_options(const StageOptions& options, const StageSession& session) {
  const auto require = [&](bool good, const std::string& what) {
    if (!good) throw InvalidArgument("stage '" + options.name + "': " + what);
  };
  const auto at_least_1 = [&](const char* parameter, int value, bool may_be_auto) {
    require(value >= 1 || (may_be_auto && value == StageOptions::kAuto),
            std::string(parameter) + " must be at least 1" + (may_be_auto ? " or AUTO" : "") + ", got " +
                std::to_string(value));
  };
  at_least_1("capacity", options.capacity, true);
  at_least_1("num_threads", options.num_threads, true);
  require(options.num_threads <= kMostThreads, "num_threads must be at most " + std::to_string(kMostThreads) +
                                                   ", got " + std::to_string(options.num_threads));
  at_least_1("num_clients", options.num_clients, false);
  at_least_1("max_ignored_in_a_row", options.max_ignored_in_a_row, false);
  require(options.timeout_millis.count() > 0,
          "timeout_millis must be positive, got " + std::to_string(options.timeout_millis.count()));
  require(options.timeout_millis <= kLongestTimeout,
          "timeout_millis must be at most " + std::to_string(kLongestTimeout.count()) +
              " (a hundred years), got " + std::to_string(options.timeout_millis.count()) +
              "; on_timeout WAIT has no limit");
  require(options.ignored_backoff.count() >= 0, "the back-off must not be negative");
  for (const ErrorCode closed : options.closed_exception_types)
    for (const ErrorCode ignored : options.ignored_exception_types)
      require(closed != ignored, std::string(error_code_name(closed)) +
                                     " is both in closed_exception_types and in ignored_exception_types");

  const int pools = session.pools ? session.pools->size() : 0;
  const int pool = options.stage_subgraph_thread_pool_id;
  if (options.use_stage_subgraph_thread_pool) {
    require(pools > 0,
            "use_stage_subgraph_thread_pool is set, but no session_stage_subgraph_thread_pool is declared");
    require(pool >= 0 && pool < pools, "stage_subgraph_thread_pool_id must be in [0, " +
                                           std::to_string(pools - 1) + "], got " + std::to_string(pool));
  } else {
    require(pool == 0, "stage_subgraph_thread_pool_id is " + std::to_string(pool) +
                           ", but use_stage_subgraph_thread_pool is not set");
  }

  const int stream = options.stage_subgraph_stream_id;
  require(stream >= 0, "stage_subgraph_stream_id must not be negative, got " + std::to_string(stream));
  if (stream == 0) return;
  require(session.stage_multi_stream,
          "stage_subgraph_stream_id is " + std::to_string(stream) + ", but stage_multi_stream is not set");
  require(stream < session.streams, "stage_subgraph_stream_id must be in [0, " +
                                        std::to_string(session.streams - 1) + "], got " +
                                        std::to_string(stream));
}

}  // namespace braid
