#include "engine/input/formats/field_reader.h"

#include <algorithm>

#include "engine/input/files/byte_source.h"

namespace braid {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

FieldReader::FieldReader(std::string_view text, char separator, std::string_view comment)
    : text_(without_byte_order_mark(text)),
      comment_(comment),
      separator_(separator),
      dropped_(text.size() - text_.size()) {}

FieldReader::FieldReader(std::unique_ptr<ByteSource> source, char separator, std::string_view comment)
    : source_(std::move(source)), comment_(comment), separator_(separator) {
  more();
  const std::size_t size = text_.size();
  text_ = without_byte_order_mark(text_);
  dropped_ = size - text_.size();
}

std::uint64_t FieldReader::offset() const { return dropped_ + std::min(at_, text_.size()); }

FieldReader::~FieldReader() = default;
FieldReader::FieldReader(FieldReader&&) noexcept = default;

/// Drops what is behind the reader and takes as much again; false where there is nothing more.
bool FieldReader::more() {
  if (!source_) return false;
  constexpr std::size_t kLeast = std::size_t{1} << 18;
  const std::string_view rest = text_.substr(std::min(at_, text_.size()));
  const std::size_t kept = rest.size(), step = std::max(kLeast, kept);
  if (rest.data() != buffer_.data()) std::copy(rest.begin(), rest.end(), buffer_.begin());
  buffer_.resize(kept + step);
  const std::size_t got = source_->read(std::span(buffer_).subspan(kept));
  if (got < step) source_.reset();
  dropped_ += text_.size() - kept;
  text_ = {buffer_.data(), kept + got};
  at_ = 0;
  return got > 0;
}

bool FieldReader::next() {
  for (;;) {
    const std::size_t begin = at_;
    const std::int64_t lines = lines_;
    std::size_t end = text_.find('\n', std::min(begin, text_.size()));
    if (end == std::string_view::npos) {
      if (more()) continue;
      if (at_ >= text_.size()) return false;
      if (at_ != begin) continue;  // the buffer has moved
      end = text_.size();
    }
    at_ = end + 1;
    line_ = ++lines_;
    if (end > begin && text_[end - 1] == '\r') --end;
    if (end == begin || (!comment_.empty() && text_.substr(begin, end - begin).starts_with(comment_)))
      continue;
    if (split(begin, end)) return true;
    at_ = begin;
    lines_ = lines;
    more();
  }
}

/// The record that begins at `at`, on a line that ends at `end`; a quoted field may go on behind it. False
/// when it goes on behind the buffer.
bool FieldReader::split(std::size_t at, std::size_t end) {
  const std::size_t next_line = at_;
  fields_.clear();
  unquoted_.clear();
  problem_.clear();
  starved_ = false;
  const char* const text = text_.data();
  for (;; ++at) {
    while (at < end && text[at] == ' ' && separator_ != ' ') ++at;
    if (at < end && text[at] == '"') {
      at = quoted(at, end);
      if (starved_) return false;
      if (!problem_.empty()) {
        at_ = next_line;
        lines_ = line_;
        return true;
      }
    } else {
      const std::size_t begin = at;
      while (at < end && text[at] != separator_) ++at;
      std::size_t last = at;
      while (last > begin && text[last - 1] == ' ') --last;
      fields_.emplace_back(text + begin, last - begin);
    }
    if (at >= end) return true;  // a separator at the end is followed by an empty field
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
  // What follows the last byte of the buffer might double the quote.
  starved_ = source_ && (close == std::string_view::npos || close + 1 == text_.size());
  if (starved_) return at;
  if (close == std::string_view::npos) {
    problem_ = "the quote of " + name() + " is not closed";
    return at;
  }
  std::string_view field = text_.substr(begin, close - begin);
  if (close > end) {
    const std::size_t line_end = text_.find('\n', close);
    starved_ = source_ && line_end == std::string_view::npos;
    if (starved_) return at;
    lines_ += std::count(field.begin(), field.end(), '\n');
    end = std::min(line_end, text_.size());
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
