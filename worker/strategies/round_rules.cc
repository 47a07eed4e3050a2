#include "worker/strategies/round_rules.h"

#include <string>

#include "base/error.h"
#include "proto/job.pb.h"

namespace braid::worker {

ps::Consistency consistency_of(const proto::Strategy& strategy) {
  switch (strategy.consistency()) {
    case proto::Strategy::ASP:
      return ps::Consistency::Asp;
    case proto::Strategy::SSP:
      return strategy.staleness() == 0 ? ps::Consistency::Bsp : ps::Consistency::Ssp;
    case proto::Strategy::TIMED:
      return ps::Consistency::Timed;
    default:
      return ps::Consistency::Bsp;
  }
}

ps::TimedRule timed_rule(const proto::Job& job, int world) {
  const proto::Timed& from = job.strategy().timed();
  if (static_cast<int>(from.quorum()) > world)
    throw InvalidArgument("strategy.timed.quorum is " + std::to_string(from.quorum()) + ", but there are " +
                          std::to_string(world) + " workers");
  ps::TimedRule rule;
  rule.timeout_ms = from.timeout_millis();
  rule.quorum = from.quorum() == 0 ? world : static_cast<int>(from.quorum());
  rule.late = from.late() == proto::Timed::NEXT ? ps::TimedRule::Late::Next : ps::TimedRule::Late::Drop;
  rule.late_scale = static_cast<float>(from.late_scale());
  rule.max_late_share = from.max_late_share();
  return rule;
}

}  // namespace braid::worker
