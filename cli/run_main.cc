#include "cli/run_main.h"

#include <filesystem>
#include <string>

#include "cli/command_line.h"

namespace braid {

int run_main(int argc, char** argv) {
  std::error_code unknown;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return cli::run_command_line(argc, argv, {unknown ? std::string(argv[0]) : own.string()});
}

}  // namespace braid
