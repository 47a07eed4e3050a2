// Jobs that are killed again and again, and go on with --resume.
#pragma once

#include <functional>
#include <vector>

#include "tests/integration/checkpoints.h"

namespace braid::integration {

/// Runs a job of one worker in `directory` whole, then again with `kills` SIGKILLs at random moments behind
/// further and further checkpoints, each followed by --resume. Expects the losses of the whole run behind the
/// last checkpoint, and its last checkpoint to the byte. `job_in` has the job with checkpoints in a folder.
void expect_kills_change_nothing(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                 int steps, int every, int kills = 10);

/// The same killed behind step `step`, gone on with as a job of workers[0] workers, killed `step` steps
/// further, and so on; the last is run to its end. Losses are those of one worker but for the order of sums.
void expect_other_workers_go_on(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                int step, const std::vector<int>& workers = {2, 4, 1});

/// The same with a job whose sums are exact (count_model.h), killed once a number of workers[1...], in turn:
/// all losses that any of the runs has logged, and the table of the last checkpoint, are to the bit those of
/// a whole run of one worker.
void expect_the_bits_of_one_worker(const Path& directory, const std::function<Job(const Path&)>& job_in,
                                   int step, const std::vector<int>& workers);

}  // namespace braid::integration
