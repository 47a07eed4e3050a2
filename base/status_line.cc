#include "base/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

namespace braid {
namespace {

constexpr const char* kErase = "\r\x1b[K";

struct Line {
  std::recursive_mutex mutex;  // what is written above may log, too
  std::string text;            // guarded by mutex; empty: there is none
};

/// Lives as long as the process: logs are written at its very end.
Line& line() {
  static Line& line = *new Line;
  return line;
}

/// Columns that the text takes: ASCII, and escape codes that take none.
int width_of(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      ++width;
      continue;
    }
    while (i < text.size() && text[i] != 'm') ++i;
  }
  return width;
}

/// What cannot be written, as when a log is on a full disk, is not worth the run.
void write(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

int terminal_columns(int fallback) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return fallback;
}

bool can_redraw() {
  const std::string_view type = variable("TERM");
  return ::isatty(STDERR_FILENO) == 1 && !type.empty() && type != "dumb";
}

bool wants_colour() { return can_redraw() && variable("NO_COLOR").empty(); }

void draw_status_line(std::string text) {
  const std::lock_guard lock(line().mutex);
  // In one piece, so that no half of a line is seen.
  write(kErase + text);
  line().text = std::move(text);
}

void end_status_line() {
  const std::lock_guard lock(line().mutex);
  if (line().text.empty()) return;
  write("\n");
  line().text.clear();
}

void clear_status_line() {
  const std::lock_guard lock(line().mutex);
  if (line().text.empty()) return;
  write(kErase);
  line().text.clear();
}

void above_status_line(const std::function<void()>& write_above) {
  const std::lock_guard lock(line().mutex);
  const std::string text = std::exchange(line().text, {});
  if (text.empty()) return write_above();
  write(kErase);
  write_above();
  // The terminal may have become narrower; then the line comes back when it is drawn anew.
  if (width_of(text) < terminal_columns()) draw_status_line(text);
}

}  // namespace braid
