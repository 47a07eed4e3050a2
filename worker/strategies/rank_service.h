// What the ranks of a job do for their leader between steps, where each holds a part of the variables: it
// asks, and the others, who have come to the same border, answer until it lets them go on. Thread rule: one
// thread at a time, no step in flight. Throws: what the communicator throws.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

#include "base/checkpoint.h"
#include "base/wait_context.h"

namespace braid::worker {

class RankService {
 public:
  virtual ~RankService() = default;

  // On the leader.
  /// Each rank writes its part into the checkpoint's directory, which all see. Result: their files.
  virtual std::vector<ShardInfo> save(const std::filesystem::path& directory, const WaitContext& wait) = 0;
  virtual void release(const WaitContext& wait) = 0;

  // On the others.
  /// Until the leader has released them. `patience`: how long it may let them wait for its next request.
  virtual void serve(std::chrono::nanoseconds patience) = 0;
};

}  // namespace braid::worker
