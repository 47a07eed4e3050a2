// What a job says of the rounds of its servers, as these are told it. Thread rule: pure functions.
#pragma once

#include "ps/client/ps_client.h"

namespace braid::proto {
class Job;
class Strategy;
}  // namespace braid::proto

namespace braid::worker {

/// SSP without staleness is BSP.
ps::Consistency consistency_of(const proto::Strategy& strategy);
/// Throws: InvalidArgument for a quorum of more than `world` workers.
ps::TimedRule timed_rule(const proto::Job& job, int world);

}  // namespace braid::worker
