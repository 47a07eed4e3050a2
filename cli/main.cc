// `braid`: one binary for every role and tool.
#include <filesystem>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  std::error_code unknown;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return braid::cli::run_command_line(argc, argv, {unknown ? std::string(argv[0]) : own.string()});
}
