// Which files a job, or an option of a command, means by the names that it gives: files, directories,
// patterns, names of stores, or "-". Reads none of them. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Whether rows come from files, and are not made.
bool reads_files(const proto::Job& job);

/// input.train_files. Throws: InvalidArgument (one that is not there).
std::vector<std::filesystem::path> train_files(const proto::Job& job, const std::filesystem::path& data_dir);

/// input.test_files. Throws: InvalidArgument (none, or one that is not there).
std::vector<std::filesystem::path> test_files(const proto::Job& job, const std::filesystem::path& data_dir);

/// The files that an option names as a job does: files, directories, patterns, names of stores, or "-";
/// relative to the current directory. Throws: InvalidArgument (nothing is there).
std::vector<std::filesystem::path> files_of_option(const std::string& option,
                                                   const std::vector<std::filesystem::path>& names);

}  // namespace braid::worker
