#include "base/formats/sorted_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "base/formats/snappy.h"

namespace braid {
namespace {

// footer := metaindex handle, index handle (varints offset, size), padded to 40 bytes, magic
// block  := entries, restart offsets:u32*, their number:u32; then type:u8 (0 plain, 1 snappy), masked CRC of
// both:u32 entry  := shared:varint, unshared:varint, value size:varint, unshared key bytes, value
constexpr std::size_t kFooter = 48, kTrailer = 5;
constexpr std::uint64_t kTableMagic = 0xDB4775248B80FB57ULL;
constexpr std::size_t kTableBlockBytes = 4096;
constexpr int kRestartInterval = 16;

struct Handle {
  std::uint64_t offset = 0, size = 0;
};

Handle read_handle(WireReader& in) {
  Handle handle;
  handle.offset = in.read_varint();
  handle.size = in.read_varint();
  return handle;
}

Handle read_handle(std::string_view bytes) {
  WireReader in(bytes);
  if (in.at_end()) throw DataLoss("an empty handle of a block");
  return read_handle(in);
}

class TableReader {
 public:
  explicit TableReader(const std::filesystem::path& file) : file_(file), bytes_(read_file(file)) {}

  SortedPairs read() {
    if (bytes_.size() < kFooter) fail(fmt::format("{} bytes are too few for a table", bytes_.size()));
    const std::string_view footer = std::string_view(bytes_).substr(bytes_.size() - kFooter);
    std::uint64_t magic = 0;
    std::memcpy(&magic, footer.data() + kFooter - sizeof(magic), sizeof(magic));
    if (magic != kTableMagic)
      fail("not a LevelDB table, or a truncated one: its last 8 bytes are not the magic number");
    SortedPairs pairs, index;
    try {
      WireReader handles(footer.substr(0, kFooter - sizeof(magic)));
      read_handle(handles);  // of the metaindex, which has nothing that is needed
      read_block(read_handle(handles), index);
      for (const auto& [last_key, handle] : index) read_block(read_handle(handle), pairs);
    } catch (const DataLoss& e) {
      fail(e.message());
    }
    for (std::size_t i = 1; i < pairs.size(); ++i)
      if (pairs[i].first <= pairs[i - 1].first) fail("its keys do not ascend");
    return pairs;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataLoss("'" + file_.string() + "': " + what);
  }

  void read_block(const Handle& handle, SortedPairs& out) const {
    const std::uint64_t room = bytes_.size() - kFooter;
    if (handle.offset > room || handle.size > room - handle.offset ||
        room - handle.offset - handle.size < kTrailer)
      throw DataLoss(
          fmt::format("a block of {} bytes at byte {} is beyond the end", handle.size, handle.offset));
    const std::string_view block = std::string_view(bytes_).substr(handle.offset, handle.size);
    const char* trailer = block.data() + block.size();
    std::uint32_t stored = 0;
    std::memcpy(&stored, trailer + 1, sizeof(stored));
    if (crc32c_mask(crc32c(std::as_bytes(std::span(block.data(), block.size() + 1)))) != stored)
      throw DataLoss(fmt::format("the block at byte {} does not match its CRC", handle.offset));
    try {
      if (trailer[0] == 0)
        read_entries(block, out);
      else if (trailer[0] == 1)
        read_entries(snappy_unpack(block), out);
      else
        throw DataLoss(fmt::format("packing {} is not known", static_cast<int>(trailer[0])));
    } catch (const DataLoss& e) {
      throw DataLoss(fmt::format("the block at byte {}: {}", handle.offset, e.message()));
    }
  }

  static void read_entries(std::string_view block, SortedPairs& out) {
    std::uint32_t restarts = 0;
    if (block.size() < sizeof(restarts)) throw DataLoss("too short");
    std::memcpy(&restarts, block.data() + block.size() - sizeof(restarts), sizeof(restarts));
    const std::uint64_t tail = (std::uint64_t{restarts} + 1) * sizeof(restarts);
    if (tail > block.size()) throw DataLoss("more restarts than bytes");
    std::string key;
    for (WireReader in(block.substr(0, block.size() - tail)); !in.at_end();) {
      const std::uint64_t shared = in.read_varint();
      if (in.at_end()) throw DataLoss("it ends inside an entry");
      const std::uint64_t unshared = in.read_varint();
      if (in.at_end()) throw DataLoss("it ends inside an entry");
      const std::uint64_t value = in.read_varint();
      if (shared > key.size())
        throw DataLoss(fmt::format("byte {}: a key shares more than there is", in.position()));
      key.resize(shared);
      key.append(in.take(unshared));
      out.emplace_back(key, in.take(value));
    }
  }

  std::filesystem::path file_;
  std::string bytes_;
};

void put_u32(std::string& out, std::uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

class BlockBuilder {
 public:
  void add(std::string_view key, std::string_view value) {
    std::size_t shared = 0;
    if (count_ % kRestartInterval == 0)
      restarts_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    else
      while (shared < std::min(key.size(), last_.size()) && key[shared] == last_[shared]) ++shared;
    put_varint(bytes_, shared);
    put_varint(bytes_, key.size() - shared);
    put_varint(bytes_, value.size());
    bytes_.append(key.substr(shared));
    bytes_.append(value);
    last_ = key;
    ++count_;
  }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return count_ == 0; }
  const std::string& last_key() const { return last_; }

  /// Appends the block to `file` and returns where it is, as a handle's bytes. The builder is empty
  /// afterwards.
  std::string finish(std::string& file) {
    if (restarts_.empty()) restarts_.push_back(0);
    for (const std::uint32_t restart : restarts_) put_u32(bytes_, restart);
    put_u32(bytes_, static_cast<std::uint32_t>(restarts_.size()));
    std::string handle;
    put_varint(handle, file.size());
    put_varint(handle, bytes_.size());
    bytes_.push_back(0);  // plain
    file += bytes_;
    put_u32(file, crc32c_mask(crc32c(std::as_bytes(std::span(bytes_)))));
    *this = {};
    return handle;
  }

 private:
  std::string bytes_, last_;
  std::vector<std::uint32_t> restarts_;
  int count_ = 0;
};

}  // namespace

SortedPairs read_sorted_table(const std::filesystem::path& file) { return TableReader(file).read(); }

std::string format_sorted_table(const SortedPairs& pairs) {
  std::string file;
  BlockBuilder block, index;
  const auto end_block = [&] {
    const std::string last = block.last_key();
    index.add(last, block.finish(file));
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i > 0 && pairs[i].first <= pairs[i - 1].first)
      throw InvalidArgument("table: key '" + pairs[i].first + "' does not come after '" + pairs[i - 1].first +
                            "'");
    block.add(pairs[i].first, pairs[i].second);
    if (block.size() >= kTableBlockBytes) end_block();
  }
  if (!block.empty()) end_block();
  std::string footer = BlockBuilder().finish(file);  // an empty metaindex
  footer += index.finish(file);
  footer.resize(kFooter - sizeof(kTableMagic), '\0');
  footer.append(reinterpret_cast<const char*>(&kTableMagic), sizeof(kTableMagic));
  return file + footer;
}

}  // namespace braid
