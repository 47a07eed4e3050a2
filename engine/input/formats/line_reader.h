// What the readers of rows share: lines of text, records of TFRecord files, bad records counted
// against a limit, and this worker's share of the rows. Private to engine/input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/formats/readers.h"

namespace braid {

class ByteSource;
class ExampleReader;
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

constexpr std::int64_t kAllRows = INT64_MAX;

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

/// The next line of a file of any length, without its line end and the file's byte order mark.
class LineSource {
 public:
  explicit LineSource(const FilePiece& piece);
  ~LineSource();
  /// Until the next call. False at the end.
  bool next(std::string_view& line);
  /// Of that line, from 1.
  std::int64_t number() const { return number_; }

 private:
  bool more();

  std::unique_ptr<ByteSource> source_;  // null when all of it was read
  std::vector<char> buffer_;
  std::string_view text_;  // what is not given yet, in the buffer
  std::int64_t number_ = 0;
};

/// Returns what is wrong with a record, or an empty text.
using TfRecordVisit = std::function<std::string(std::string_view record, const TfRecordReader& reader)>;

/// Calls `visit` for each record of a TFRecord file; those that it refuses and those whose CRC is wrong count
/// as bad.
void for_each_tfrecord(const std::filesystem::path& file, BadRecords& bad, const TfRecordVisit& visit);

/// One record of those; false at the end of the file. `bad` becomes whether it was a bad one.
bool visit_tfrecord(TfRecordReader& reader, const std::filesystem::path& file, BadRecords& bad,
                    const TfRecordVisit& visit, bool& is_bad);

/// Which of the rows of all files this worker keeps, and how many there are.
class RowShard {
 public:
  explicit RowShard(const ReadOptions& options)
      : rank_(options.rank), world_(options.world), progress_(options.progress) {}
  bool takes_next() {
    if (progress_ && rows_ % kProgressRows == 0) progress_(rows_);
    return rows_++ % world_ == rank_;
  }
  std::int64_t count() const { return rows_; }

 private:
  static constexpr std::int64_t kProgressRows = 1024;

  std::int64_t rank_, world_;
  std::function<void(std::int64_t)> progress_;
  std::int64_t rows_ = 0;
};

/// The first value of a feature as text, for keys and groups; empty where there is none.
std::string first_text(const ExampleReader& example, const std::string& name);

/// What a stream of rows keeps beside the columns: bad records, shards, keys and groups.
class RowBook {
 public:
  explicit RowBook(const ReadOptions& options)
      : options_(options), bad_(options.max_bad_records), shard_(options) {}

  const ReadOptions& options() const { return options_; }
  BadRecords& bad() { return bad_; }
  /// What follows is of this piece.
  void begin(const FilePiece& piece) {
    skip_ = piece.skip;
    take_ = piece.take;
    lines_before_ = piece.lines_before;
  }
  bool takes_next() {
    if (skip_ > 0) return --skip_, false;
    if (take_ <= 0) return false;
    --take_;
    return shard_.takes_next();
  }
  /// Whether nothing of the piece is taken any more.
  bool ended() const { return take_ <= 0; }
  /// The line's number in the file, of one in the piece.
  std::int64_t line(std::int64_t in_piece) const { return lines_before_ + in_piece; }
  bool has_keys() const { return !options_.key_column.empty(); }
  bool has_groups() const { return !options_.group_column.empty(); }
  /// Of the next row of the table. REQUIRES: for every row, or for none.
  void add_key(std::string_view key) { keys_.emplace_back(key); }
  void add_group(std::string_view text);
  /// The row that comes next is none of the file's: it stands for a bad record.
  void add_bad(std::int64_t row);

  /// Adds all that to the table of a builder.
  std::shared_ptr<Table> finish(std::shared_ptr<Table> table);

 private:
  const ReadOptions options_;
  BadRecords bad_;
  RowShard shard_;
  std::int64_t skip_ = 0, take_ = kAllRows, lines_before_ = 0;  // of the present piece
  std::vector<std::string> keys_;
  std::vector<std::int64_t> groups_, bad_rows_;
};

/// Throws: InvalidArgument ("'<file>' has no column '<name>'; its columns: a, b").
[[noreturn]] void refuse_column(const std::string& name, const std::filesystem::path& file,
                                const std::vector<std::string>& known);

}  // namespace braid
