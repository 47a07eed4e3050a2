#include "engine/input/field_reader.h"

#include <algorithm>

namespace braid {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

FieldReader::FieldReader(std::string_view text, char separator, std::string_view comment)
    : text_(without_byte_order_mark(text)), comment_(comment), separator_(separator) {}

bool FieldReader::next() {
  while (at_ < text_.size()) {
    const std::size_t begin = at_;
    std::size_t end = std::min(text_.find('\n', begin), text_.size());
    at_ = end + 1;
    line_ = ++lines_;
    if (end > begin && text_[end - 1] == '\r') --end;
    if (end == begin || (!comment_.empty() && text_.substr(begin, end - begin).starts_with(comment_)))
      continue;
    split(begin, end);
    return true;
  }
  return false;
}

/// The record that begins at `at`, on a line that ends at `end`; a quoted field may go on behind it.
void FieldReader::split(std::size_t at, std::size_t end) {
  const std::size_t next_line = at_;
  fields_.clear();
  unquoted_.clear();
  problem_.clear();
  const char* const text = text_.data();
  for (;; ++at) {
    while (at < end && text[at] == ' ' && separator_ != ' ') ++at;
    if (at < end && text[at] == '"') {
      at = quoted(at, end);
      if (!problem_.empty()) {
        at_ = next_line;
        lines_ = line_;
        return;
      }
    } else {
      const std::size_t begin = at;
      while (at < end && text[at] != separator_) ++at;
      std::size_t last = at;
      while (last > begin && text[last - 1] == ' ') --last;
      fields_.emplace_back(text + begin, last - begin);
    }
    if (at >= end) return;  // a separator at the end is followed by an empty field
  }
}

/// A field from its opening quote on; the place behind it.
std::size_t FieldReader::quoted(std::size_t at, std::size_t& end) {
  const auto name = [&] { return "field " + std::to_string(fields_.size() + 1); };
  const std::size_t begin = at + 1;
  bool doubled = false;
  std::size_t close = text_.find('"', begin);
  while (close != std::string_view::npos && close + 1 < text_.size() && text_[close + 1] == '"') {
    doubled = true;
    close = text_.find('"', close + 2);
  }
  if (close == std::string_view::npos) {
    problem_ = "the quote of " + name() + " is not closed";
    return at;
  }
  std::string_view field = text_.substr(begin, close - begin);
  if (close > end) {
    lines_ += std::count(field.begin(), field.end(), '\n');
    end = std::min(text_.find('\n', close), text_.size());
    at_ = end + 1;
    if (text_[end - 1] == '\r') --end;
  }
  if (doubled) {
    std::string& plain = unquoted_.emplace_back();
    for (std::size_t i = 0; i < field.size(); ++i) {
      plain.push_back(field[i]);
      if (field[i] == '"') ++i;
    }
    field = plain;
  }
  for (at = close + 1; at < end && text_[at] == ' ' && separator_ != ' ';) ++at;
  if (at < end && text_[at] != separator_) {
    problem_ = name() + " goes on behind its closing quote";
    return at;
  }
  fields_.push_back(field);
  return at;
}

}  // namespace braid
