#include "watch/top_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "watch/top_view.h"

namespace braid::watch {
namespace {

const char* const kReset = "\x1b[0m";

struct Cause {
  const char* name;
  char letter;
  const char* colour;
  const char* says;
};
constexpr std::array<Cause, 8> kCauses{{{"busy", '#', "\x1b[32m", "busy"},
                                        {"input", 'i', "\x1b[33m", "input"},
                                        {"pull", 'p', "\x1b[35m", "pull"},
                                        {"push", 'u', "\x1b[35m", "push"},
                                        {"comm", 'c', "\x1b[34m", "comm"},
                                        {"compute", 's', "\x1b[36m", "stream"},
                                        {"space", 'f', "\x1b[36m", "full"},
                                        {"idle", '.', "\x1b[2m", "idle"}}};

}  // namespace

std::string painted(const std::string& text, const char* colour, bool on) {
  return on && !text.empty() ? colour + text + kReset : text;
}

std::string cut(const std::string& line, int width) {
  std::string out;
  int at = 0;
  bool coloured = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      const std::size_t end = line.find('m', i);
      if (end == std::string::npos) break;
      out += line.substr(i, end + 1 - i);
      coloured = line.substr(i, end + 1 - i) != kReset;
      i = end;
      continue;
    }
    if (at == width) break;
    out += line[i];
    ++at;
  }
  return coloured ? out + kReset : out;
}

std::string share_text(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string bytes_text(double bytes) {
  if (bytes >= kGibibyte) return fmt::format("{:.1f}G", bytes / kGibibyte);
  if (bytes >= kMebibyte) return fmt::format("{:.1f}M", bytes / kMebibyte);
  return fmt::format("{:.0f}k", bytes / 1024);
}

std::string time_text(double seconds) {
  if (seconds >= 10) return fmt::format("{:.0f}s", seconds);
  if (seconds >= 1) return fmt::format("{:.1f}s", seconds);
  return seconds >= 0.01 ? fmt::format("{:.0f}ms", 1e3 * seconds) : fmt::format("{:.2f}ms", 1e3 * seconds);
}

std::string number_text(double value) {
  return std::fabs(value) < 1e5 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

int width_of(const std::string& line) {
  int width = 0;
  for (std::size_t i = 0; i < line.size(); ++i)
    if (line[i] == '\x1b')
      i = std::min(line.find('m', i), line.size());
    else
      ++width;
  return width;
}

std::string TextRow::fit(int columns, bool colour) const {
  std::vector<bool> takes(cells_.size(), false);
  int used = 0;
  for (int rank = 0; rank < 20; ++rank)
    for (std::size_t i = 0; i < cells_.size(); ++i)
      if (cells_[i].rank == rank && used + cells_[i].width + (used > 0 ? 1 : 0) <= columns) {
        takes[i] = true;
        used += cells_[i].width + (used > 0 ? 1 : 0);
      }
  std::string line;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!takes[i]) continue;
    const Cell& cell = cells_[i];
    std::string text = cut(cell.text, cell.width);
    const auto width = static_cast<std::size_t>(cell.width);
    text = cell.left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
    if (!line.empty()) line += ' ';
    line += cell.colour ? painted(text, cell.colour, colour) : text;
  }
  return line;
}

std::string plain_text(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = '?';
  return out;
}

std::string short_count(double count) {
  if (!(std::fabs(count) < 1e15)) return "?";
  if (count >= 1e9) return fmt::format("{:.2f}G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e5) return fmt::format("{:.0f}k", count / 1e3);
  if (count >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return count < 10 && count > 0 ? fmt::format("{:.1f}", count) : fmt::format("{:.0f}", count);
}

std::string stream_bar(const Stream& stream, int width, bool colour) {
  std::vector<double> shares(kCauses.size(), 0.0);
  shares[0] = stream.busy;
  for (const auto& [name, share] : stream.wait) {
    std::size_t at = kCauses.size() - 1;  // a cause that is new here looks idle
    for (std::size_t c = 1; c < kCauses.size(); ++c)
      if (name == kCauses[c].name) at = c;
    shares[at] += share;
  }
  // Ends of the parts are rounded, so that they always fill the bar.
  std::string bar;
  double sum = 0;
  int drawn = 0;
  for (std::size_t c = 0; c < kCauses.size(); ++c) {
    sum = c + 1 == kCauses.size() ? 1.0 : std::min(1.0, sum + shares[c]);
    const int end = static_cast<int>(std::lround(sum * width));
    const std::string part(static_cast<std::size_t>(std::max(0, end - drawn)), kCauses[c].letter);
    bar += painted(part, kCauses[c].colour, colour);
    drawn = std::max(drawn, end);
  }
  return bar;
}

std::string bar_legend(bool colour) {
  std::string text;
  for (const Cause& cause : kCauses)
    text += (text.empty() ? "" : "  ") + painted(std::string(1, cause.letter), cause.colour, colour) + " " +
            cause.says;
  return text;
}

}  // namespace braid::watch
