// The lines that this process logs, of all levels, for tests of what it says about its peers. Thread rule:
// one at a time in a process; text() from any thread.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/log_file.h"
#include "tests/support/eventually.h"

namespace braid::comm {

class KeptLog {
 public:
  KeptLog() : file_(std::filesystem::temp_directory_path() / ("kept-log-" + std::to_string(::getpid()))) {
    std::filesystem::remove(file_);
    log_to_file(file_);
    set_log_level(LogLevel::Debug);  // of refusals only one a second is a warning
  }
  ~KeptLog() {
    set_log_level(LogLevel::Info);
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  KeptLog(const KeptLog&) = delete;
  KeptLog& operator=(const KeptLog&) = delete;

  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }
  /// Whether a line has `words`, and `more` behind them, in the end.
  bool comes_to_say(std::string_view words, std::string_view more) const {
    return eventually([&] {
      std::istringstream lines(text());
      for (std::string line; std::getline(lines, line);)
        if (const auto at = line.find(words);
            at != std::string::npos && line.find(more, at) != std::string::npos)
          return true;
      return false;
    });
  }

 private:
  const std::filesystem::path file_;
};

}  // namespace braid::comm
