// Settings of a job that nothing reads as long as others are as they are, such as the momentum of SGD: each
// is said in a warning, by its name and with the reason. Settings that contradict others are refused instead
// (check_job). Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "worker/job/settings.h"

namespace braid::worker {

/// "staging.capacity has no effect: staging.enabled is false". `job` is as it was written, without defaults.
std::vector<std::string> unused_fields(const proto::Job& job);

/// Takes fields away that are as the defaults make them and that nothing reads, so that a job that is printed
/// and kept has no such warnings. `job` is with its defaults.
void clear_unused_defaults(proto::Job& job);

/// The settings of a device, where the job computes on the host; before, that may not be decided. Stream
/// groups share the limit of memory on the host, too. REQUIRES: the job's device is resolved.
std::vector<std::string> unused_device_fields(const proto::Job& job, SettingsFor purpose);

}  // namespace braid::worker
