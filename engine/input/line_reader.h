// What the readers of rows share: lines of text, records of TFRecord files, bad records counted
// against a limit, and this worker's share of the rows. Private to engine/input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/readers.h"

namespace braid {

class TfRecordReader;

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

/// Counts records that were refused; the one past the limit throws.
class BadRecords {
 public:
  explicit BadRecords(std::int64_t limit) : limit_(limit) {}
  /// Throws DataLoss("'<file>' line <n>: <what>") when more than the limit were seen, else logs the first
  /// few.
  void add(const std::filesystem::path& file, std::int64_t line, const std::string& what);
  /// The same with a text that has its place.
  void add(const std::string& text);
  std::int64_t count() const { return count_; }

 private:
  std::int64_t limit_;
  std::int64_t count_ = 0;
};

/// Returns what is wrong with a record, or an empty text.
using TfRecordVisit = std::function<std::string(std::string_view record, const TfRecordReader& reader)>;

/// Calls `visit` for each record of a TFRecord file; those that it refuses and those whose CRC is wrong count
/// as bad.
void for_each_tfrecord(const std::filesystem::path& file, BadRecords& bad, const TfRecordVisit& visit);

/// Which of the rows of all files this worker keeps, and how many there are.
class RowShard {
 public:
  explicit RowShard(const ReadOptions& options)
      : rank_(options.rank), world_(options.world), progress_(options.progress) {}
  bool takes_next() {
    if (progress_ && rows_ % kProgressRows == 0) progress_(rows_);
    return rows_++ % world_ == rank_;
  }
  std::shared_ptr<const Table> count_into(std::shared_ptr<Table> table) const {
    table->rows_of_all = rows_;
    return table;
  }

 private:
  static constexpr std::int64_t kProgressRows = 1024;

  std::int64_t rank_, world_;
  std::function<void(std::int64_t)> progress_;
  std::int64_t rows_ = 0;
};

}  // namespace braid
