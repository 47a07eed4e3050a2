// What a job's checkpoint directory holds, to compare runs. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/integration/run.h"

namespace braid::integration {

/// Every file of a directory, by name, byte for byte.
using Files = std::map<std::string, std::string>;
Files files_in(const Path& directory);

/// Floats by the name of their variable or slot; a row of a servers' sparse table as "table[key]".
using Values = std::map<std::string, std::vector<float>>;

/// Overrides of a job that checkpoint into `root` every `every_steps` steps, and keep the two newest.
std::vector<std::string> checkpoints_in(const Path& root, int every_steps);

/// The steps of the whole checkpoints, oldest first.
std::vector<std::uint64_t> checkpointed_steps(const Path& root);
Files files_of_newest(const Path& root);

/// The newest checkpoint's, whichever number of servers wrote it. A table of which every row is there is
/// whole, however the workers held it: the plan of a HYBRID job is measured, and may be another in its next
/// run.
Values values_of_newest(const Path& root);

}  // namespace braid::integration
