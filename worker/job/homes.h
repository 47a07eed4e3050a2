// Whether workers are the homes of servers' rows (docs/design/parameter_server.md). Thread rule: pure
// function.
#pragma once

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Whether several workers are each the home of a part of the rows that servers hold, if the model allows it:
/// their hosts have a connection beside the job's communicator then.
bool has_homes_of_rows(const proto::Job& job, int world);

}  // namespace braid::worker
