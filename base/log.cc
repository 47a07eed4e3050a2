#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/status_line.h"

namespace braid {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      break;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("braid");
    const char* wanted = std::getenv("BRAID_LOG");
    auto level = wanted ? spdlog::level::from_str(wanted) : spdlog::level::info;
    if (level == spdlog::level::off && std::string_view(wanted) != "off")
      level = spdlog::level::info;  // unknown
    made->set_level(level);
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *instance;
}

/// Decided for each line, like the status line's: the environment and where standard error goes may change
/// after the first use of the logger. Under the status line's lock, as the sink's own does not cover it.
void choose_colour() {
  dynamic_cast<spdlog::sinks::stderr_color_sink_mt&>(*logger().sinks().front())
      .set_color_mode(wants_colour() ? spdlog::color_mode::automatic : spdlog::color_mode::never);
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void set_log_role(std::string role) { logger().set_pattern("%H:%M:%S.%e %^%l%$ [" + role + "] %v"); }

void log_line(LogLevel level, std::string_view message) {
  above_status_line([&] {
    choose_colour();
    logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
  });
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

}  // namespace braid
