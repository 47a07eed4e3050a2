// CSV and TSV text, one record of fields after the other, as RFC 4180 has it: a field that begins with a
// quote ends with the next single one; separators and line ends between them belong to it, a doubled quote
// stands for one. Blanks around a field go, a byte order mark too; lines end with LF or CRLF, the last one
// may lack it. Empty lines, and lines that begin with `comment`, are no records. Private to engine/input.
// Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class ByteSource;

class FieldReader {
 public:
  /// `text` and `comment` stay where they are.
  FieldReader(std::string_view text, char separator, std::string_view comment = {});
  /// The same of a file of any length: what is held of it is a few records. (Behind a quote that is not
  /// closed it is all of the rest, which has to be looked through.)
  FieldReader(std::unique_ptr<ByteSource> source, char separator, std::string_view comment = {});
  ~FieldReader();
  FieldReader(FieldReader&&) noexcept;
  FieldReader(const FieldReader&) = delete;

  /// Goes to the next record; false at the end.
  bool next();
  /// Of the present record, until the next call.
  const std::vector<std::string_view>& fields() const { return fields_; }
  /// The line where it begins, from 1.
  std::int64_t line() const { return line_; }
  /// Where the next record begins, of all bytes; of the end, how many there are.
  std::uint64_t offset() const;
  /// What is wrong with its quotes, or an empty text. The line behind its first one is the next record then,
  /// so that a stray quote costs one line.
  const std::string& problem() const { return problem_; }

 private:
  bool more();
  bool split(std::size_t at, std::size_t end);
  std::size_t quoted(std::size_t at, std::size_t& end);

  std::unique_ptr<ByteSource> source_;  // null when all of it was read
  std::vector<char> buffer_;            // what text_ shows, where there was a source
  bool starved_ = false;                // the record goes on behind the buffer
  std::string_view text_, comment_;
  char separator_;
  std::uint64_t dropped_ = 0;  // bytes before text_
  std::size_t at_ = 0;         // where the next line begins
  std::int64_t lines_ = 0;     // lines before that
  std::int64_t line_ = 0;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields with doubled quotes, of the present record
  std::string problem_;
};

/// `text` behind its byte order mark, if it has one.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace braid
