// The command line of `braid` as a function: parses, runs the chosen subcommand, and is the only place where
// an error becomes an exit code. The binary and the Python module have it. Thread rule: the main thread,
// once.
#pragma once

#include <string>
#include <vector>

namespace braid::cli {

/// The exit code. `own`: how this process starts another one with a command line of its own ("braid", or
/// "python", "-m", "braid").
int run_command_line(int argc, const char* const* argv, std::vector<std::string> own);
/// What run_command_line() was given.
const std::vector<std::string>& own_command();

}  // namespace braid::cli
