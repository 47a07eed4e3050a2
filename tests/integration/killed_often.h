// Jobs that are killed again and again, and go on with --resume.
#pragma once

#include "tests/integration/checkpoints.h"

namespace braid::integration {

/// Runs a job of one worker in `directory` whole, then again with `kills` SIGKILLs at random moments behind
/// further and further checkpoints, each followed by --resume. Expects the losses of the whole run behind the
/// last checkpoint, and its last checkpoint to the byte. `job_in` has the job with checkpoints in a folder.
void expect_kills_change_nothing(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                 int steps, int every, int kills = 10);

/// The same killed once behind step `step`, and gone on with as a job of two workers: losses are those of one
/// but for the order of sums.
void expect_more_workers_go_on(const Path& directory, const std::function<Job(const Path&)>& job_in,
                               int step);

}  // namespace braid::integration
