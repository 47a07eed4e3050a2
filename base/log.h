// Logging to standard error, one line a call, with time, level and the process's role ("worker 1").
// Standard output is for results. Thread rule: safe from any thread.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace braid {

enum class LogLevel { Debug, Info, Warning, Error, Off };

/// Lines below `level` are dropped. The default is Info, or what the environment variable BRAID_LOG names
/// (debug, info, warning, error, off).
void set_log_level(LogLevel level);

/// Put in front of every line from now on, e.g. "worker 1". REQUIRES: called before threads log.
void set_log_role(std::string role);

void log_line(LogLevel level, std::string_view message);
bool log_enabled(LogLevel level);

#define BRAID_DEFINE_LOG(name, level)                                              \
  template <class... Args>                                                         \
  void name(fmt::format_string<Args...> format, Args&&... args) {                  \
    if (log_enabled(LogLevel::level))                                              \
      log_line(LogLevel::level, fmt::format(format, std::forward<Args>(args)...)); \
  }
BRAID_DEFINE_LOG(log_debug, Debug)
BRAID_DEFINE_LOG(log_info, Info)
BRAID_DEFINE_LOG(log_warning, Warning)
BRAID_DEFINE_LOG(log_error, Error)
#undef BRAID_DEFINE_LOG

}  // namespace braid
