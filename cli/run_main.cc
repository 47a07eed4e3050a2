#include "cli/run_main.h"

#include <csignal>
#include <filesystem>
#include <string>

#include "base/descriptors.h"
#include "cli/command_line.h"

namespace braid {

int run_main(int argc, char** argv) {
  // A write beyond the limit of a file's size (`ulimit -f`) fails with a reason, as one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  std::error_code unknown;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return cli::run_command_line(argc, argv, {unknown ? std::string(argv[0]) : own.string()});
}

}  // namespace braid
