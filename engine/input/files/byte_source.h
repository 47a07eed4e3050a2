// The bytes of a file from front to back, unpacked on the way: gzip (several members too), zlib, zstd and lz4
// streams are told from plain data by their first bytes, not by the file's name. Position in errors is that
// of the inflated bytes. Private to engine/input. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace braid {

/// How a file is packed.
enum class Compression { None, Gzip, Zlib, Zstd, Lz4 };
const char* compression_name(Compression compression);

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `out` as far as there are bytes; less than its size only at the end. Throws: DataLoss (damaged or
  /// truncated data: file and byte), Unavailable (the disk).
  virtual std::size_t read(std::span<char> out) = 0;
  virtual Compression compression() const = 0;
  /// Bytes that read() will still give, where that is known: plain files.
  virtual std::uint64_t bytes_left_at_most() const = 0;
};

/// Says whether a file that begins with `head` (its first 12 bytes, or fewer) is plain, whatever else its
/// first bytes look like.
using IsPlain = bool (*)(std::span<const char> head);

/// Throws: InvalidArgument (missing, a directory, no permission). Without `is_plain` a zlib header counts as
/// text, as its two bytes may begin any file.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, IsPlain is_plain = nullptr);

}  // namespace braid
