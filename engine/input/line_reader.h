// Splits text into lines and fields for the text formats, and counts bad records against a limit. Private to
// engine/input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// Calls visit(line, number) for each line without its line end (LF or CRLF); numbers count from 1.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line, ++number);
    begin = end + 1;
  }
}

/// Cuts `line` at `separator`; quotes ("a,b", doubled inside) are honoured when the field begins with one.
/// Surrounding blanks go.
void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields,
                  std::string& unquoted);

/// Counts records that were refused; the one past the limit throws.
class BadRecords {
 public:
  explicit BadRecords(std::int64_t limit) : limit_(limit) {}
  /// Throws DataLoss("'<file>' line <n>: <what>") when more than the limit were seen, else logs the first
  /// few.
  void add(const std::filesystem::path& file, std::int64_t line, const std::string& what);
  std::int64_t count() const { return count_; }

 private:
  std::int64_t limit_;
  std::int64_t count_ = 0;
};

}  // namespace braid
