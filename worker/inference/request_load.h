// Clients that put a session under load: each a thread that sends one request after another, all beginning at
// the same time. Latency is what a client sees, the time in line included. Thread rule: one thread calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/inference/inference_session.h"

namespace braid::worker {

struct LoadOptions {
  int clients = 1;
  std::uint64_t requests = 1;                                   // of each client
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // of each request
  std::optional<int> pool = {};                                 // that runs them all
};

struct LoadResult {
  double seconds = 0;                       // from the first request to the last answer
  std::vector<double> latencies;            // of answered requests, sorted
  std::uint64_t late = 0;                   // DeadlineExceeded, or answered behind it
  std::uint64_t refused = 0;                // the line was full
  std::uint64_t different = 0;              // answers that are not the expected ones, bit by bit
  std::vector<StreamGroups::Stats> groups;  // of this load
  std::vector<std::vector<Tensor>>
      answers;  // the last ones, by element of `feeds`; empty where there is none

  std::uint64_t answered() const { return latencies.size(); }
  double per_second() const { return seconds > 0 ? static_cast<double>(answered()) / seconds : 0; }
  /// The latency that a share of the requests did not exceed (nearest rank), in seconds; 0 when there is
  /// none.
  double percentile(double share) const;
};

/// Client c sends feeds[(c * requests + i) % n]. Requests that are late or refused are counted; any other
/// error ends the load and is thrown. `expected`, unless empty, has an answer for each of `feeds`.
LoadResult run_load(InferenceSession& session, const std::vector<std::vector<Tensor>>& feeds,
                    const LoadOptions& options, const std::vector<std::vector<Tensor>>& expected = {});

/// Requests a second, latencies, and how busy each group was: lines for people.
std::string format_load(const LoadResult& result, std::int64_t batch);
/// The same as one JSON object.
std::string load_json(const LoadResult& result, std::int64_t batch, const InferenceOptions& options,
                      int clients);

}  // namespace braid::worker
