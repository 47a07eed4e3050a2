#include "worker/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "base/env.h"
#include "base/error.h"

namespace braid::worker {

using Clock = std::chrono::steady_clock;

namespace {

/// What cannot be written, as when a log is on a full disk, is not worth the run.
void write(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Mode Progress::choose_mode() {
  const std::string wanted = env_string("BRAID_PROGRESS").value_or("");
  if (wanted == "bar") return Mode::Bar;
  if (wanted == "lines") return Mode::Lines;
  if (wanted == "off") return Mode::Off;
  if (!wanted.empty()) throw InvalidArgument("BRAID_PROGRESS='" + wanted + "': known are bar, lines, off");
  return isatty(STDERR_FILENO) ? Mode::Bar : Mode::Lines;
}

Progress::Progress(Mode mode, std::uint64_t first_step, std::uint64_t total_steps, double interval_seconds)
    : mode_(mode), first_(first_step), total_(total_steps), begin_(Clock::now()) {
  const double fallback = mode_ == Mode::Bar ? 0.2 : 1.0;
  interval_ = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(interval_seconds > 0 ? interval_seconds : fallback));
  drawn_ = begin_ - interval_;  // the first step is shown at once
}

void Progress::update(std::uint64_t step, double loss, std::int64_t examples) {
  done_ = step + 1;
  examples_ += examples;
  if (mode_ == Mode::Off) return;
  const auto now = Clock::now();
  if (now - drawn_ < interval_ && done_ != total_) return;
  drawn_ = now;
  draw(loss);
}

void Progress::draw(double loss) {
  const double seconds = std::chrono::duration<double>(drawn_ - begin_).count();
  const double rate = seconds > 0 ? static_cast<double>(examples_) / seconds : 0;
  const auto mine = static_cast<double>(done_ - first_);
  const double left = mine > 0 ? seconds / mine * static_cast<double>(total_ - done_) : 0;
  if (mode_ == Mode::Lines) {
    write(fmt::format("step {}/{}  loss {:.4f}  {:.0f} examples/s  {} left\n", done_, total_, loss, rate,
                      duration_text(left)));
    return;
  }
  constexpr int kWidth = 30;
  const int full =
      total_ == 0 ? 0 : static_cast<int>(static_cast<double>(done_) / static_cast<double>(total_) * kWidth);
  std::string bar(static_cast<std::size_t>(full), '#');
  bar.resize(kWidth, '.');
  write(fmt::format("\r[{}] {}/{}  loss {:.4f}  {:.0f} examples/s  {} left\x1b[K", bar, done_, total_, loss,
                    rate, duration_text(left)));
  open_line_ = true;
}

void Progress::finish() {
  if (open_line_) write("\n");
  open_line_ = false;
}

}  // namespace braid::worker
