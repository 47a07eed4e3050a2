// TFRecord files: records of any bytes, framed as
//   u64 length (little endian)   u32 masked CRC-32C of the length   data[length]   u32 the same of data
// plain, or the whole file as gzip or zlib, which the reader finds out by itself. Both CRCs are checked.
// Format: tensorflow.org, "TFRecord and tf.train.Example", "TFRecords format details".
// Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/files/byte_source.h"
#include "engine/input/files/file_piece.h"

namespace braid {

class TfRecordReader {
 public:
  /// Throws: InvalidArgument (cannot open: path, reason).
  explicit TfRecordReader(const std::filesystem::path& file);
  /// Of a piece of a file; numbers and offsets are those in the whole.
  explicit TfRecordReader(const FilePiece& piece);
  ~TfRecordReader();

  /// The next record, until the next call; nullopt at the end of the file. Throws: DataLoss("'<file>' record
  /// <n> at byte <offset>: <what>"), numbers from 1, offset in the inflated bytes. After a wrong CRC of data
  /// the reader stands behind that record; after any other damage can_go_on() is false, as nothing says where
  /// the next record begins.
  std::optional<std::string_view> next();

  bool can_go_on() const { return !lost_; }
  /// Of the record that next() gave or refused last.
  std::int64_t number() const { return number_; }
  std::uint64_t offset() const { return record_at_; }
  /// Where the next one begins.
  std::uint64_t next_offset() const { return next_at_; }
  /// All bytes of the record that next() gave, or refused for the CRC of its data, last; until the next call.
  std::span<const char> frame() const { return {buffer_.data() + begin_ - frame_bytes_, frame_bytes_}; }
  Compression compression() const { return source_->compression(); }

 private:
  bool fill(std::uint64_t count);
  [[noreturn]] void fail(const std::string& what, bool lost);

  std::filesystem::path file_;
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;  // [begin_, end_) is read and not yet given
  std::size_t begin_ = 0, end_ = 0;
  std::size_t frame_bytes_ = 0;
  std::uint64_t record_at_ = 0;  // where the present record begins
  std::uint64_t next_at_ = 0;    // where the next one does
  std::int64_t number_ = 0;
  bool lost_ = false;
};

/// Whether `head`, the first 12 bytes of a file, begin a plain TFRecord file.
bool looks_like_tfrecord(std::span<const char> head);
/// The same for a file of any packing. Throws: InvalidArgument (cannot open), DataLoss (damaged packing).
bool is_tfrecord_file(const std::filesystem::path& file);

/// Appends a record with its frame.
void append_tfrecord(std::string_view record, std::string& to);

class TfRecordWriter {
 public:
  /// Writes to a temporary name beside `file`. Throws: InvalidArgument (cannot be written there).
  explicit TfRecordWriter(std::filesystem::path file, Compression compression = Compression::None);
  ~TfRecordWriter();  // what was not finished is removed
  TfRecordWriter(const TfRecordWriter&) = delete;
  TfRecordWriter& operator=(const TfRecordWriter&) = delete;

  /// Throws: Unavailable (disk: path, reason).
  void write(std::string_view record);
  /// Writes the rest and gives the file its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
