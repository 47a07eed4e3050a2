// Switches by the negative names that they had: `no_tf32: true` is `tf32: false` now. Job files and --set may
// still have them; what reads the job knows the new ones alone. Thread rule: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Puts the new field in the place of each old one, which wins, and has a warning for each that says what to
/// write. `source` stands in front.
std::vector<std::string> take_new_names(proto::Job& job, std::string_view source);

/// Throws: InvalidArgument where the job says one thing by the old name and another by the new one.
void check_old_names(const proto::Job& job, std::string_view source);

}  // namespace braid::worker
