#include "cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace braid::cli {

void check_output_file(const std::string& option, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(option + " " + file + ": " + why);
  };
  const auto folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (file.empty()) refuse("needs the name of a file");
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    refuse("there is no directory '" + folder.string() + "'");
  if (std::filesystem::is_directory(file, ignored)) refuse("is a directory");
  // The file is renamed into it when it is whole. Found out now, and not behind the work.
  if (const std::string into = folder.empty() ? "." : folder.string(); ::access(into.c_str(), W_OK) != 0)
    refuse("cannot write into '" + into + "': " + std::strerror(errno));
}

}  // namespace braid::cli
