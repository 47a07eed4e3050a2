// The op libraries that a job names (runtime.op_libraries). Thread rule: at start-up, before graphs are made.
#pragma once

#include <string>

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Loads one into this process and logs which ops it brings; once, however often it is called. Throws: as
/// load_op_library().
void load_op_library_of_process(const std::string& path);

/// Loads all that the job names, relative to the current directory. Throws: as above.
void load_op_libraries(const proto::Job& job);

}  // namespace braid::worker
