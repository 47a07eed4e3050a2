// Files that a command writes at its end are looked at before its work begins. Thread rule: pure function.
#pragma once

#include <string>

namespace braid::cli {

/// Throws: InvalidArgument naming the option when `file` is a directory, or is to be in one that is not
/// there.
void check_output_file(const std::string& option, const std::string& file);

}  // namespace braid::cli
