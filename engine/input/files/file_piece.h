// A part of a file that a reader of rows reads in place of the whole, as a block of a stream is. Thread rule:
// a value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/input/files/byte_source.h"
#include "engine/input/files/file_reads.h"

namespace braid {

struct FilePiece {
  FilePiece() = default;
  FilePiece(std::filesystem::path whole) : file(std::move(whole)) {}  // NOLINT: a path is its whole file

  std::filesystem::path file;
  std::uint64_t begin = 0, end = std::numeric_limits<std::uint64_t>::max();  // of its bytes
  std::uint64_t header_end = 0;   // bytes [0, header_end) are read before them: a line of names
  std::int64_t lines_before = 0;  // lines, or records, of the file before `begin`, without the header's
  std::int64_t skip = 0;          // so many records of it are passed over
  std::int64_t take = std::numeric_limits<std::int64_t>::max();  // and so many read then
  std::optional<std::uint32_t> crc = {};                         // of bytes [begin, end), where it is known

  std::shared_ptr<FileReads> reads =
      {};  // of a piece that is not whole: how it is read; null: as data_file.h does
  std::shared_ptr<const std::string> bytes = {};  // those of the file, of one that is only held in memory

  bool is_whole() const { return end == std::numeric_limits<std::uint64_t>::max(); }
};

inline std::vector<FilePiece> whole_files(const std::vector<std::filesystem::path>& files) {
  return {files.begin(), files.end()};
}

/// Its bytes. Throws: as open_bytes(); DataLoss (it is shorter than it was, or its CRC is another one).
std::unique_ptr<ByteSource> open_piece(const FilePiece& piece, IsPlain is_plain = nullptr);

}  // namespace braid
