// What the fields of a job's input say together that cannot be meant, for check_job(). Thread rule: pure
// function.
#pragma once

namespace braid::proto {
class Job;
}

namespace braid::worker {

class JobChecker;

/// Throws: InvalidArgument.
void check_input(const proto::Job& job, const JobChecker& check);

}  // namespace braid::worker
