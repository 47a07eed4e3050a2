// The log (base/log.h) in a file, too. Thread rule: safe from any thread.
#pragma once

#include <filesystem>

namespace braid {

/// Keeps the latest lines in memory, for a file that cannot be written yet.
void keep_log_lines();
/// Lines also go to the end of that file from now on, with the date, those that were kept first. Makes its
/// directory. Throws: Unavailable when it cannot be opened.
void log_to_file(const std::filesystem::path& file);

}  // namespace braid
