// What a person sees of bytes that a program writes to a terminal: a small emulator. Knows what status lines
// use: text, wrapping at the right edge, CR, LF, "erase to the end of the line", colours. Anything else is an
// error.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class Terminal {
 public:
  explicit Terminal(int columns) : columns_(static_cast<std::size_t>(columns)) {}

  void write(std::string_view bytes) {
    for (const char c : bytes) put(c);
  }
  /// All rows so far, also those that have scrolled away, without blanks at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> rows = rows_;
    for (std::string& row : rows) row.resize(row.find_last_not_of(' ') + 1);
    return rows;
  }
  /// Rows that were longer than the terminal is wide.
  int wraps() const { return wraps_; }
  bool has_seen_colour() const { return colour_; }

 private:
  void put(char c) {
    if (!escape_.empty()) return escaped(c);
    if (c == '\x1b') {
      escape_ = c;
    } else if (c == '\r') {
      at_ = 0;
    } else if (c == '\n') {
      new_row();  // which begins in the same column; a terminal's driver sends a CR, too
    } else {
      if (at_ == columns_) {
        ++wraps_;
        new_row();
        at_ = 0;
      }
      std::string& row = rows_.back();
      row.resize(std::max(row.size(), at_ + 1), ' ');
      row[at_++] = c;
    }
  }
  void new_row() { rows_.emplace_back(); }
  void escaped(char c) {
    escape_ += c;
    if (escape_.size() == 2 || (c >= '0' && c <= '9') || c == ';') return;
    if (escape_ == "\x1b[K")
      rows_.back().resize(std::min(rows_.back().size(), at_));
    else if (c == 'm')
      colour_ = true;
    else
      ADD_FAILURE() << "unknown escape code " << escape_.substr(1);
    escape_.clear();
  }

  const std::size_t columns_;
  std::vector<std::string> rows_{""};
  std::size_t at_ = 0;
  std::string escape_;
  int wraps_ = 0;
  bool colour_ = false;
};

}  // namespace braid
