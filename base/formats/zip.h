// ZIP archives as far as .npz needs them: stored and deflated entries, sizes beyond 4 GiB (ZIP64), CRC-32
// checked. Format: PKWARE, APPNOTE.TXT 6.3.x, sections 4.3 and 4.5.3. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace braid {

struct ZipEntry {
  std::string name;
  std::uint64_t bytes = 0;         // inflated
  std::uint64_t packed_bytes = 0;  // in the archive
  std::uint64_t header_at = 0;
  std::uint32_t crc = 0;
  int method = 0;  // 0 stored, 8 deflated
};

class ZipReader {
 public:
  /// Reads the directory. Throws: InvalidArgument (cannot open), DataLoss (not a ZIP archive, truncated:
  /// what).
  explicit ZipReader(const std::filesystem::path& file);
  ~ZipReader();
  const std::vector<ZipEntry>& entries() const;
  /// Throws: DataLoss (damage: entry, what), InvalidArgument (encrypted, another method).
  std::vector<std::byte> read(const ZipEntry& entry) const;
  /// Where the bytes of a stored entry lie in the file. Throws also: InvalidArgument (it is deflated).
  std::uint64_t stored_at(const ZipEntry& entry) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ZipWriter {
 public:
  /// Writes to a temporary name beside `file`. Throws: Unavailable (cannot be written there).
  explicit ZipWriter(std::filesystem::path file);
  ~ZipWriter();  // what was not finished is removed
  /// Appends an entry of the bytes of `parts` one after the other, stored. Throws: InvalidArgument (a name
  /// that is there already or is not UTF-8), Unavailable (disk).
  void add(const std::string& name, std::span<const std::span<const std::byte>> parts);
  /// Writes the directory, syncs, and gives the file its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
