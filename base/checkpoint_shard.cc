// Shards: data blocks, then an index of the entries with the CRC of each block, then a footer of fixed size.
// docs/design/formats/checkpoint.md has the grammar.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/checkpoint.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are little endian and written as they lie in memory");

constexpr std::size_t kBlockBytes = 1 << 20;
constexpr std::uint32_t kShardVersion = 1;
constexpr std::string_view kHeadMagic = "BRAIDSHD";
constexpr std::string_view kFootMagic = "BRAIDEND";
constexpr std::size_t kHeaderBytes = 12;
constexpr std::size_t kFooterBytes = 40;
constexpr std::size_t kFooterCrcAt = 28;  // the CRC covers what lies before it

/// An entry as the index has it.
struct IndexedEntry {
  CheckpointEntry entry;
  std::uint64_t offset = 0;
  std::vector<std::uint32_t> block_crcs;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::uint64_t block_count(std::uint64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes != 0); }

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes numbers and strings off a buffer; DataLoss when it is too short.
class Parser {
 public:
  Parser(std::string_view rest, const std::filesystem::path& file) : rest_(rest), file_(file) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text(std::uint64_t size) {
    if (size > rest_.size()) damaged("it ends inside an entry");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::size_t left() const { return rest_.size(); }
  [[noreturn]] void damaged(std::string_view why) const {
    throw DataLoss(fmt::format("[checkpoint] '{}': the index is damaged: {}", file_.string(), why));
  }

 private:
  std::string_view rest_;
  const std::filesystem::path& file_;
};

/// Bytes of an array of this type and shape; nullopt for a negative dimension or an overflow. Types without a
/// fixed size give 0.
std::optional<std::uint64_t> expected_bytes(const CheckpointEntry& entry) {
  std::uint64_t bytes = dtype_size(entry.dtype);
  for (const std::int64_t dim : entry.shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes))
      return std::nullopt;
  return bytes;
}

bool fits(const CheckpointEntry& entry) {
  const auto expected = expected_bytes(entry);
  return expected && (dtype_size(entry.dtype) == 0 || *expected == entry.bytes);
}

std::string encode_index(const std::vector<IndexedEntry>& entries) {
  std::string out;
  for (const auto& [entry, offset, crcs] : entries) {
    put(out, static_cast<std::uint32_t>(entry.name.size()));
    out += entry.name;
    put(out, static_cast<std::int32_t>(entry.dtype));
    put(out, static_cast<std::uint32_t>(entry.shape.size()));
    for (const std::int64_t dim : entry.shape) put(out, dim);
    put(out, entry.bytes);
    put(out, offset);
    for (const std::uint32_t crc : crcs) put(out, crc32c_mask(crc));
  }
  return out;
}

/// `data_end`: where the index begins, and so where data must end.
std::vector<IndexedEntry> decode_index(std::string_view index, std::uint64_t count, std::uint64_t data_end,
                                       const std::filesystem::path& file) {
  Parser parser(index, file);
  std::vector<IndexedEntry> entries;
  std::uint64_t at = kHeaderBytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    IndexedEntry& e = entries.emplace_back();
    e.entry.name = parser.text(parser.number<std::uint32_t>());
    e.entry.dtype = static_cast<DType>(parser.number<std::int32_t>());
    const auto rank = parser.number<std::uint32_t>();
    for (std::uint32_t d = 0; d < rank; ++d) e.entry.shape.push_back(parser.number<std::int64_t>());
    e.entry.bytes = parser.number<std::uint64_t>();
    e.offset = parser.number<std::uint64_t>();
    if (!fits(e.entry) || e.offset != at || e.entry.bytes > data_end - at)
      parser.damaged(fmt::format("entry '{}' has a place or size that cannot be", e.entry.name));
    at += e.entry.bytes;
    for (std::uint64_t b = block_count(e.entry.bytes); b > 0; --b)
      e.block_crcs.push_back(crc32c_unmask(parser.number<std::uint32_t>()));
  }
  if (parser.left() != 0 || at != data_end)
    parser.damaged("it has more or fewer entries than the footer says");
  return entries;
}

}  // namespace

struct ShardWriter::Impl {
  explicit Impl(const std::filesystem::path& path) : file(File::create(path)) {}

  File file;
  std::uint64_t position = 0;
  std::vector<IndexedEntry> entries;
  std::unordered_map<std::string, std::size_t> by_name;
  bool finished = false;

  void write(std::span<const std::byte> data) {
    file.write(data);
    position += data.size();
  }
};

ShardWriter::ShardWriter(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {
  std::string header(kHeadMagic);
  put(header, kShardVersion);
  impl_->write(bytes_of(header));
}

ShardWriter::~ShardWriter() {
  if (!impl_->finished) ::unlink(impl_->file.path().c_str());
}

void ShardWriter::add(const CheckpointEntry& entry, std::span<const std::byte> data) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(
        fmt::format("[checkpoint] '{}': entry '{}' {}", impl_->file.path().string(), entry.name, why));
  };
  if (impl_->finished) refuse("comes after finish()");
  if (entry.bytes != data.size()) refuse(fmt::format("says {} bytes and has {}", entry.bytes, data.size()));
  if (!fits(entry))
    refuse(fmt::format("of type {} and shape [{}] cannot have {} bytes", dtype_name(entry.dtype),
                       fmt::join(entry.shape, ","), entry.bytes));
  if (!impl_->by_name.emplace(entry.name, impl_->entries.size()).second) refuse("is there already");

  IndexedEntry indexed{entry, impl_->position, {}};
  try {
    for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
      const auto block = data.subspan(at, std::min(kBlockBytes, data.size() - at));
      indexed.block_crcs.push_back(crc32c(block));
      impl_->write(block);
    }
  } catch (const Error& e) {
    throw_error(e.code(), fmt::format("[checkpoint] entry '{}': {}", entry.name, e.message()));
  }
  impl_->entries.push_back(std::move(indexed));
}

ShardInfo ShardWriter::finish() {
  const std::string index = encode_index(impl_->entries);
  const std::uint32_t crc = crc32c(bytes_of(index));
  std::string footer;
  put(footer, impl_->position);
  put(footer, std::uint64_t{index.size()});
  put(footer, std::uint64_t{impl_->entries.size()});
  put(footer, crc32c_mask(crc));
  put(footer, crc32c_mask(crc32c(bytes_of(footer))));
  footer += kFootMagic;
  impl_->write(bytes_of(index));
  impl_->write(bytes_of(footer));
  impl_->file.sync();
  impl_->file.close();
  impl_->finished = true;
  return {impl_->file.path().filename().string(), impl_->position, crc};
}

struct ShardReader::Impl {
  explicit Impl(const std::filesystem::path& path) : file(File::open(path)) {}

  File file;
  std::uint64_t file_bytes = 0;
  std::uint32_t index_crc = 0;
  std::vector<CheckpointEntry> entries;
  std::vector<IndexedEntry> indexed;
  std::unordered_map<std::string, std::size_t> by_name;

  void load();
  const IndexedEntry& find(const std::string& name) const;
  void read_block(const IndexedEntry& e, std::size_t block, std::span<std::byte> out) const;
};

void ShardReader::Impl::load() {
  const auto damaged = [&](std::string_view why) {
    throw DataLoss(fmt::format("[checkpoint] '{}': {}", file.path().string(), why));
  };
  file_bytes = file.size();
  if (file_bytes < kHeaderBytes + kFooterBytes)
    damaged(fmt::format("{} bytes are too few for a shard", file_bytes));

  std::string header(kHeaderBytes, '\0'), footer(kFooterBytes, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with(kHeadMagic)) damaged("not a shard: byte 0 is not \"BRAIDSHD\"");
  Parser head(std::string_view(header).substr(kHeadMagic.size()), file.path());
  if (const auto version = head.number<std::uint32_t>(); version != kShardVersion)
    damaged(fmt::format("version {} of the format, this program knows {}", version, kShardVersion));

  file.read_at(file_bytes - kFooterBytes, std::as_writable_bytes(std::span(footer)));
  if (!footer.ends_with(kFootMagic))
    damaged(fmt::format("no footer at byte {}: truncated or not finished", file_bytes - kFooterBytes));
  Parser foot(footer, file.path());
  const auto index_at = foot.number<std::uint64_t>(), index_bytes = foot.number<std::uint64_t>();
  const auto count = foot.number<std::uint64_t>();
  index_crc = crc32c_unmask(foot.number<std::uint32_t>());
  if (crc32c_unmask(foot.number<std::uint32_t>()) != crc32c(bytes_of(footer).first(kFooterCrcAt)))
    damaged(fmt::format("the footer at byte {} does not match its CRC", file_bytes - kFooterBytes));
  const std::uint64_t room = file_bytes - kHeaderBytes - kFooterBytes;
  if (index_bytes > room || index_at != file_bytes - kFooterBytes - index_bytes)
    damaged(fmt::format("the footer puts {} bytes of index at byte {} of {}: truncated or grown", index_bytes,
                        index_at, file_bytes));

  std::string index(index_bytes, '\0');
  file.read_at(index_at, std::as_writable_bytes(std::span(index)));
  if (crc32c(bytes_of(index)) != index_crc)
    damaged(fmt::format("the index at byte {} does not match its CRC", index_at));
  indexed = decode_index(index, count, index_at, file.path());
  for (const IndexedEntry& e : indexed) {
    by_name.emplace(e.entry.name, entries.size());
    entries.push_back(e.entry);
  }
}

const IndexedEntry& ShardReader::Impl::find(const std::string& name) const {
  const auto at = by_name.find(name);
  if (at == by_name.end())
    throw InvalidArgument(fmt::format("[checkpoint] '{}' has no entry '{}'", file.path().string(), name));
  return indexed[at->second];
}

void ShardReader::Impl::read_block(const IndexedEntry& e, std::size_t block, std::span<std::byte> out) const {
  const std::uint64_t at = e.offset + block * kBlockBytes;
  const auto where = [&] {
    return fmt::format("[checkpoint] '{}': entry '{}', block {} at byte {}", file.path().string(),
                       e.entry.name, block, at);
  };
  try {
    file.read_at(at, out);
  } catch (const Error& error) {
    throw_error(error.code(), fmt::format("{}: {}", where(), error.message()));
  }
  if (const std::uint32_t crc = crc32c(out); crc != e.block_crcs[block])
    throw DataLoss(fmt::format("{}: its {} bytes have CRC {:08x}, the index says {:08x}", where(), out.size(),
                               crc, e.block_crcs[block]));
}

ShardReader::ShardReader(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {
  impl_->load();
  impl_->file.advise_sequential();
}
ShardReader::~ShardReader() = default;

const std::vector<CheckpointEntry>& ShardReader::entries() const { return impl_->entries; }

const CheckpointEntry* ShardReader::find(const std::string& name) const {
  const auto at = impl_->by_name.find(name);
  return at == impl_->by_name.end() ? nullptr : &impl_->entries[at->second];
}

ShardInfo ShardReader::info() const {
  return {impl_->file.path().filename().string(), impl_->file_bytes, impl_->index_crc};
}

void ShardReader::read(const std::string& name, std::span<std::byte> out) const {
  const IndexedEntry& e = impl_->find(name);
  if (out.size() != e.entry.bytes)
    throw InvalidArgument(fmt::format("[checkpoint] '{}': entry '{}' has {} bytes, there is room for {}",
                                      impl_->file.path().string(), name, e.entry.bytes, out.size()));
  for (std::size_t block = 0; block < e.block_crcs.size(); ++block) {
    const std::size_t at = block * kBlockBytes;
    impl_->read_block(e, block, out.subspan(at, std::min(kBlockBytes, out.size() - at)));
  }
}

std::vector<std::byte> ShardReader::read(const std::string& name) const {
  std::vector<std::byte> out(impl_->find(name).entry.bytes);
  read(name, out);
  return out;
}

void ShardReader::verify() const {
  std::vector<std::byte> buffer;
  for (const IndexedEntry& e : impl_->indexed)
    for (std::size_t block = 0; block < e.block_crcs.size(); ++block) {
      const std::size_t bytes = std::min<std::uint64_t>(kBlockBytes, e.entry.bytes - block * kBlockBytes);
      if (buffer.size() < bytes) buffer.resize(bytes);
      impl_->read_block(e, block, std::span(buffer).first(bytes));
    }
}

}  // namespace braid
