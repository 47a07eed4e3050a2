// What of a job decides the bits of a run that goes on, beside its variables: it is written into checkpoints,
// and a job that differs is told what differs. Learning rates, schedules, steps, streams, precision,
// strategies and numbers of processes are not among it: users change them in the middle of a run. Thread
// rule: values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/checkpoint.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// The attribute of checkpoints that has the job's seed.
inline constexpr const char* kResumedSeed = "resumed/seed";

/// Model, optimizers, seed and order of the input, as attributes of a checkpoint.
std::map<std::string, std::string> resumed_attributes(const proto::Job& job);

/// "seed was 4 and is 5", ... of the job; nothing of attributes that the checkpoint does not have, as one of
/// another program.
std::vector<std::string> job_changes(const CheckpointMeta& meta, const proto::Job& job);

/// The same of the fields of two cursors of an input, "ticket=30 rows=400 batch=64", but for what says where
/// it is, and for its seed unless `of_seed`.
std::vector<std::string> cursor_changes(const std::string& was, const std::string& is, bool of_seed = true);

}  // namespace braid::worker
