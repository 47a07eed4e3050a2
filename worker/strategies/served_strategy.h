// A strategy whose ranks each hold a part of the variables, and work for their leader between steps.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/strategies/collective.h"
#include "worker/strategies/rank_service.h"

namespace braid::worker {

/// It asks their service at borders, when it saves, and at the end. Thread rule: that of Strategy.
class ServedStrategy : public CollectiveStrategy {
 public:
  using CollectiveStrategy::CollectiveStrategy;

  std::vector<ShardInfo> save_remote(const std::filesystem::path& directory, std::uint64_t step,
                                     const std::string& job, const WaitContext& wait) override;
  void meet_at_border(const WaitContext& wait) override;
  void finish_steps(const WaitContext& wait) override;
  void shut_down(bool terminated, const WaitContext& wait) override;

 protected:
  /// REQUIRES: start() has been called.
  virtual RankService& service() = 0;
};

}  // namespace braid::worker
