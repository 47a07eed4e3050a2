#include "worker/watch/progress_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace braid::worker {
namespace {

constexpr int kWidestBar = 30, kNarrowestBar = 6;

int percent_of(const ProgressState& state) {
  if (state.total == 0) return 0;
  return static_cast<int>(100.0 * static_cast<double>(state.done) / static_cast<double>(state.total));
}

std::string bar_of(const ProgressState& state, int width, bool colour) {
  const double share =
      state.total == 0 ? 0 : static_cast<double>(state.done) / static_cast<double>(state.total);
  const auto full = static_cast<std::size_t>(share * width);
  std::string done(full, '#'), open(static_cast<std::size_t>(width) - full, '.');
  if (colour) done = "\x1b[32m" + done + "\x1b[0m";
  return "[" + done + open + "]";
}

/// Loss and metric are short for any value: "loss 0.4321", "loss 1.2e+09".
std::string loss_text(double loss) {
  return std::fabs(loss) < 1e5 ? fmt::format("loss {:.4f}", loss) : fmt::format("loss {:.3g}", loss);
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(std::clamp(seconds, 0.0, 3.6e8) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string count_text(double count) {
  std::string text = fmt::format("{:.0f}", count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string progress_line(const ProgressState& state, int columns, bool colour) {
  // In the order in which they stand; `rank` is the one in which they get their room.
  struct Part {
    std::string text;
    int rank;
    bool shown = false;
  };
  std::vector<Part> parts{
      {fmt::format("{}/{}", state.done, state.total), 6},
      {loss_text(state.loss), 2},
      {state.metric, 3},
      {count_text(state.examples_per_second) + " examples/s", 4},
      {duration_text(state.elapsed_seconds) + " elapsed", 5},
      {duration_text(state.left_seconds) + " left", 1},
  };
  std::string line = fmt::format("{:3}%", percent_of(state));
  int room = columns - static_cast<int>(line.size());
  constexpr int kBarFrame = 3;  // a space and the brackets
  int bar = 0;
  for (int rank = 1; rank <= 6; ++rank) {
    if (rank == 3 && room >= kNarrowestBar + kBarFrame) {
      bar = kNarrowestBar;
      room -= bar + kBarFrame;
    }
    auto& part = *std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.rank == rank; });
    const int needed = static_cast<int>(part.text.size()) + 2;
    if (part.text.empty()) continue;
    if (needed > room) break;  // what is less important has no room that this one has not
    part.shown = true;
    room -= needed;
  }
  if (bar > 0) line += " " + bar_of(state, bar + std::clamp(room, 0, kWidestBar - kNarrowestBar), colour);
  for (const Part& part : parts)
    if (part.shown) line += "  " + part.text;
  return line;
}

std::string progress_text(const ProgressState& state) {
  std::string text =
      fmt::format("step {}/{} ({}%)  {}", state.done, state.total, percent_of(state), loss_text(state.loss));
  if (!state.metric.empty()) text += "  " + state.metric;
  return text + fmt::format("  {} examples/s  {} elapsed  {} left", count_text(state.examples_per_second),
                            duration_text(state.elapsed_seconds), duration_text(state.left_seconds));
}

}  // namespace braid::worker
