#include "worker/watch/progress.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/status_line.h"

namespace braid::worker {
namespace {

double interval_of(ProgressMode mode, double wanted_seconds) {
  if (wanted_seconds > 0) return wanted_seconds;
  return mode == ProgressMode::Bar ? 0.2 : 5.0;
}

void write_line(const std::string& text) {
  const std::string line = fmt::format("{:%H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), text);
  above_status_line([&] { std::fputs(line.c_str(), stderr); });
}

/// A terminal that is as wide as its line goes to the next one, some of them at once.
int usable_columns() { return terminal_columns() - 1; }

/// What does not fit is cut off.
std::string fitted(std::string text) {
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(usable_columns(), 0))));
  return text;
}

}  // namespace

ProgressMode progress_mode() {
  const std::string wanted = env_string("BRAID_PROGRESS").value_or("");
  if (wanted == "bar") return ProgressMode::Bar;
  if (wanted == "lines") return ProgressMode::Lines;
  if (wanted == "off") return ProgressMode::Off;
  if (!wanted.empty()) throw InvalidArgument("BRAID_PROGRESS='" + wanted + "': known are bar, lines, off");
  return can_redraw() ? ProgressMode::Bar : ProgressMode::Lines;
}

ProgressClock::ProgressClock(ProgressMode mode, double interval_seconds)
    : interval_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(interval_of(mode, interval_seconds)))),
      drawn_(begin_ - interval_) {}

bool ProgressClock::is_due() {
  const auto now = Clock::now();
  if (now - drawn_ < interval_) return false;
  drawn_ = now;
  return true;
}

double ProgressClock::elapsed_seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

Progress::Progress(ProgressMode mode, std::uint64_t first_step, std::uint64_t total_steps,
                   double interval_seconds)
    : mode_(mode), first_(first_step), clock_(mode, interval_seconds) {
  state_.total = total_steps;
}

Progress::~Progress() { finish(); }

void Progress::update(std::uint64_t step, double loss, std::int64_t examples, double step_seconds) {
  state_.done = step + 1;
  state_.loss = loss;
  examples_ += examples;
  if (mode_ == ProgressMode::Off || (!clock_.is_due() && state_.done != state_.total)) return;
  state_.examples_per_second = step_seconds > 0 ? static_cast<double>(examples_) / step_seconds : 0;
  state_.elapsed_seconds = clock_.elapsed_seconds();
  const auto mine = static_cast<double>(state_.done - first_);
  state_.left_seconds = state_.elapsed_seconds / mine * static_cast<double>(state_.total - state_.done);
  draw();
}

void Progress::set_metric(const std::string& name, double value) {
  state_.metric = fmt::format("{} {:.4f}", name, value);
}

void Progress::draw() const {
  if (mode_ == ProgressMode::Lines) return write_line(progress_text(state_));
  draw_status_line(progress_line(state_, usable_columns(), wants_colour()));
}

void Progress::finish() {
  if (mode_ == ProgressMode::Bar) end_status_line();
}

LoadingProgress::LoadingProgress(ProgressMode mode, std::string what)
    : mode_(mode), what_(std::move(what)), clock_(mode, 0) {
  clock_.is_due();  // the first interval begins
}

LoadingProgress::~LoadingProgress() {
  if (mode_ == ProgressMode::Bar) clear_status_line();
}

void LoadingProgress::update(std::int64_t rows) {
  if (mode_ == ProgressMode::Off || !clock_.is_due()) return;
  const std::string text =
      fmt::format("loading {}  {} rows  {}", what_, count_text(static_cast<double>(rows)),
                  duration_text(clock_.elapsed_seconds()));
  if (mode_ == ProgressMode::Lines) return write_line(text);
  draw_status_line(fitted(text));
}

}  // namespace braid::worker
