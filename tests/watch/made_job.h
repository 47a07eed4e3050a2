// Jobs as their processes would tell them, for tests of what reads them. Thread rule: pure functions.
#pragma once

#include "watch/job_status.h"

namespace braid::watch {

/// A worker that computes for 0.9 of its time on two streams that overlap well, and has a pull and push lane.
Status made_worker(int index);
Status made_server(int index);
/// All answer.
JobStatus made_job(int workers, int servers);

}  // namespace braid::watch
