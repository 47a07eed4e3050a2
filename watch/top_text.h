// What the lines of `braid top` are put together from: sizes and times as text, colours, cells that fit a
// width. Thread rule: pure functions. Its texts have no control characters but those of colours, if what it
// gets has none.
#pragma once

#include <string>
#include <vector>

namespace braid::watch {

constexpr double kMebibyte = 1024.0 * 1024, kGibibyte = 1024 * kMebibyte;

/// In a colour of the terminal ("\x1b[32m"), if `on` and not empty.
std::string painted(const std::string& text, const char* colour, bool on);
/// Cut to `width` columns; colours take none.
std::string cut(const std::string& line, int width);
/// Columns that a line takes.
int width_of(const std::string& line);

std::string share_text(double share);   // "12%"
std::string bytes_text(double bytes);   // "640k", "1.2M", "3.4G"
std::string time_text(double seconds);  // "0.12ms", "45ms", "1.2s", "34s"
std::string number_text(double value);  // a loss

/// Cells of a row, of which the most important fit.
class TextRow {
 public:
  /// `rank`: a higher one goes first when there is no room.
  void add(std::string text, int width, int rank, bool left = false) {
    cells_.push_back({std::move(text), width, rank, left, nullptr});
  }
  void colour_last(const char* colour) { cells_.back().colour = colour; }
  std::string fit(int columns, bool colour) const;

 private:
  struct Cell {
    std::string text;
    int width;
    int rank;
    bool left;
    const char* colour;
  };
  std::vector<Cell> cells_;
};

}  // namespace braid::watch
