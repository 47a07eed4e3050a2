#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/log_file.h"
#include "base/status_line.h"
#include "base/thread_log.h"

namespace braid {
namespace {

constexpr const char* kPattern = "%H:%M:%S.%e %^%l%$ %v";

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
    made->set_pattern(kPattern);
    return made;
  }();
  return *instance;
}

constexpr std::size_t kKeptLines = 1000;

thread_local std::string repeats_as;  // of this thread; empty: its lines are its own

struct OtherSinks {
  std::string pattern = kPattern;
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> kept;  // null: none
};

OtherSinks& other_sinks() {
  static OtherSinks sinks;
  return sinks;
}

/// Decided for each line, like the status line's: the environment and where standard error goes may change
/// after the first use of the logger. Under the status line's lock, as the sink's own does not cover it.
void choose_colour() {
  dynamic_cast<spdlog::sinks::stderr_color_sink_mt&>(*logger().sinks().front())
      .set_color_mode(wants_colour() ? spdlog::color_mode::automatic : spdlog::color_mode::never);
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void set_log_role(std::string role) {
  other_sinks().pattern = "%H:%M:%S.%e %^%l%$ [" + role + "] %v";
  logger().set_pattern(other_sinks().pattern);
}

void keep_log_lines() {
  above_status_line([] {
    OtherSinks& sinks = other_sinks();
    if (sinks.kept) return;
    sinks.kept = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kKeptLines);
    sinks.kept->set_pattern(sinks.pattern);
    logger().sinks().push_back(sinks.kept);
  });
}

void log_to_file(const std::filesystem::path& file) {
  std::shared_ptr<spdlog::sinks::basic_file_sink_mt> sink;
  try {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
  } catch (const spdlog::spdlog_ex& error) {
    throw Unavailable(fmt::format("log: {}", error.what()));
  }
  above_status_line([&] {
    OtherSinks& sinks = other_sinks();
    auto& all = logger().sinks();
    sink->set_pattern("%Y-%m-%d " + sinks.pattern);
    if (sinks.kept) {
      for (const spdlog::details::log_msg_buffer& line : sinks.kept->last_raw()) sink->log(line);
      sinks.kept = nullptr;
    }
    all.resize(1);  // the one of standard error
    all.push_back(sink);
    logger().flush_on(spdlog::level::trace);
  });
}

void repeat_log_as(std::string name) { repeats_as = std::move(name); }

void log_line(LogLevel level, std::string_view message) {
  std::string named;
  if (!repeats_as.empty()) {
    if (level == LogLevel::Info) level = LogLevel::Debug;
    if (!log_enabled(level)) return;
    named = fmt::format("{}: {}", repeats_as, message);
    message = named;
  }
  above_status_line([&] {
    choose_colour();
    logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
  });
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

}  // namespace braid
