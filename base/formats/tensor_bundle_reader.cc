#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "base/formats/sorted_table.h"
#include "base/formats/tensor_bundle.h"

namespace braid {
namespace {

// Field numbers of BundleHeaderProto, BundleEntryProto, TensorShapeProto and TensorSliceProto.
constexpr int kNumShards = 1, kEndianness = 2;
constexpr int kDtype = 1, kShape = 2, kShardId = 3, kOffset = 4, kSize = 5, kCrc = 6, kSlicesField = 7;
constexpr int kDim = 2, kDimSize = 1;
constexpr int kExtent = 1, kStart = 1, kLength = 2;

std::int64_t elements(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) throw DataLoss("a shape that cannot be");
  return count;
}

std::vector<std::int64_t> read_shape(WireReader shape) {
  std::vector<std::int64_t> dims;
  while (shape.next()) {
    if (!shape.is(kDim, WireType::Bytes)) continue;
    std::int64_t size = 0;
    for (WireReader dim = shape.message(); dim.next();)
      if (dim.is(kDimSize, WireType::Varint)) size = static_cast<std::int64_t>(dim.varint());
    dims.push_back(size);
  }
  return dims;
}

BundleEntry::Slice read_slice(WireReader message) {
  BundleEntry::Slice slice;
  while (message.next()) {
    if (!message.is(kExtent, WireType::Bytes)) continue;
    std::int64_t start = 0, length = -1;
    for (WireReader extent = message.message(); extent.next();) {
      if (extent.is(kStart, WireType::Varint)) start = static_cast<std::int64_t>(extent.varint());
      if (extent.is(kLength, WireType::Varint)) length = static_cast<std::int64_t>(extent.varint());
    }
    slice.begin.push_back(start);
    slice.length.push_back(length);
  }
  return slice;
}

BundleEntry read_bundle_entry(std::string_view value) {
  BundleEntry entry;
  for (WireReader in(value); in.next();) {
    if (in.is(kDtype, WireType::Varint)) entry.dtype = static_cast<DType>(in.varint());
    if (in.is(kShape, WireType::Bytes)) entry.shape = read_shape(in.message());
    if (in.is(kShardId, WireType::Varint)) entry.shard = static_cast<int>(in.varint());
    if (in.is(kOffset, WireType::Varint)) entry.offset = in.varint();
    if (in.is(kSize, WireType::Varint)) entry.bytes = in.varint();
    if (in.is(kCrc, WireType::Fixed32)) entry.masked_crc = in.fixed32();
    if (in.is(kSlicesField, WireType::Bytes)) entry.slices.push_back(read_slice(in.message()));
  }
  return entry;
}

/// "<lengths as varints><masked CRC of the lengths><bytes>" -> offsets and bytes. The entry's CRC covers the
/// lengths as numbers of 4 bytes (8 where they need them), then what is stored behind them.
std::vector<std::byte> unpack_strings(std::span<const std::byte> stored, std::size_t count,
                                      std::uint32_t& crc) {
  WireReader in(std::string_view(reinterpret_cast<const char*>(stored.data()), stored.size()));
  std::vector<std::int64_t> offsets(count + 1, 0);
  crc = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (in.at_end()) throw DataLoss("it ends inside the lengths of its strings");
    const std::uint64_t length = in.read_varint();
    if (length > stored.size()) throw DataLoss("a string longer than the tensor");
    const auto narrow = static_cast<std::uint32_t>(length);
    crc = narrow == length ? crc32c(std::as_bytes(std::span(&narrow, 1)), crc)
                           : crc32c(std::as_bytes(std::span(&length, 1)), crc);
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(length);
  }
  const std::string_view stored_crc = in.take(sizeof(std::uint32_t));
  std::uint32_t lengths_crc = 0;
  std::memcpy(&lengths_crc, stored_crc.data(), sizeof(lengths_crc));
  if (crc32c_mask(crc) != lengths_crc) throw DataLoss("the lengths of its strings do not match their CRC");
  crc = crc32c(std::as_bytes(std::span(stored_crc)), crc);
  const std::string_view text = in.take(static_cast<std::uint64_t>(offsets[count]));
  if (!in.at_end()) throw DataLoss("it has bytes behind its strings");
  crc = crc32c(std::as_bytes(std::span(text)), crc);
  const std::size_t head = offsets.size() * sizeof(std::int64_t);
  std::vector<std::byte> out(head + text.size());
  std::memcpy(out.data(), offsets.data(), head);
  std::memcpy(out.data() + head, text.data(), text.size());
  return out;
}

}  // namespace

struct TensorBundleReader::Files {
  std::map<int, File> open;
};

TensorBundleReader::TensorBundleReader(const std::filesystem::path& prefix)
    : prefix_(prefix.extension() == ".index" ? std::filesystem::path(prefix).replace_extension() : prefix),
      files_(std::make_unique<Files>()) {
  const std::filesystem::path index = prefix_.string() + ".index";
  const SortedPairs pairs = read_sorted_table(index);
  if (pairs.empty() || !pairs[0].first.empty())
    throw DataLoss("'" + index.string() + "': not the index of a TensorFlow checkpoint: it has no header");
  try {
    for (WireReader header(pairs[0].second); header.next();) {
      if (header.is(kNumShards, WireType::Varint)) shards_ = static_cast<int>(header.varint());
      if (header.is(kEndianness, WireType::Varint) && header.varint() != 0)
        throw InvalidArgument("'" + index.string() + "': a big-endian checkpoint, which is not read");
    }
    for (std::size_t i = 1; i < pairs.size(); ++i) add_entry(pairs[i].first, pairs[i].second);
  } catch (const DataLoss& e) {
    throw DataLoss("'" + index.string() + "': " + e.message());
  }
}

TensorBundleReader::~TensorBundleReader() = default;

void TensorBundleReader::add_entry(const std::string& name, const std::string& value) {
  try {
    BundleEntry entry = read_bundle_entry(value);
    const auto count = static_cast<std::uint64_t>(elements(entry.shape));
    const std::size_t size = dtype_size(entry.dtype);
    if (entry.shard < 0 || entry.shard >= shards_)
      throw DataLoss(fmt::format("shard {} of {}", entry.shard, shards_));
    if (entry.slices.empty() && size > 0 && (entry.bytes % size != 0 || entry.bytes / size != count))
      throw DataLoss(fmt::format("{} bytes for {} elements", entry.bytes, count));
    (name.starts_with('\0') ? slice_entries_ : entries_).emplace(name, std::move(entry));
  } catch (const DataLoss& e) {
    throw DataLoss("tensor '" + name + "': " + e.message());
  }
}

std::vector<std::byte> TensorBundleReader::read_entry(const std::string& name,
                                                      const BundleEntry& entry) const {
  auto file = files_->open.find(entry.shard);
  if (file == files_->open.end()) {
    const std::string path = fmt::format("{}.data-{:05}-of-{:05}", prefix_.string(), entry.shard, shards_);
    file = files_->open.emplace(entry.shard, File::open(path)).first;
  }
  const auto where = [&] { return "'" + file->second.path().string() + "': tensor '" + name + "'"; };
  const std::uint64_t have = file->second.size();
  if (entry.offset > have || entry.bytes > have - entry.offset)
    throw DataLoss(fmt::format("{}: {} bytes at byte {}, the file has {}: truncated", where(), entry.bytes,
                               entry.offset, have));
  std::vector<std::byte> stored(entry.bytes);
  file->second.read_at(entry.offset, stored);
  std::uint32_t crc = 0;
  std::vector<std::byte> data;
  if (entry.dtype == DType::String) {
    try {
      data = unpack_strings(stored, static_cast<std::size_t>(elements(entry.shape)), crc);
    } catch (const DataLoss& e) {
      throw DataLoss(where() + ": " + e.message());
    }
  } else {
    crc = crc32c(stored);
    data = std::move(stored);
  }
  if (crc32c_mask(crc) != entry.masked_crc)
    throw DataLoss(fmt::format("{}: its {} bytes at byte {} do not match their CRC", where(), entry.bytes,
                               entry.offset));
  return data;
}

std::vector<std::byte> TensorBundleReader::read(const std::string& name) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) throw InvalidArgument("'" + prefix_.string() + "' has no tensor '" + name + "'");
  return at->second.slices.empty() ? read_entry(name, at->second) : join_slices(name, at->second);
}

std::vector<std::byte> TensorBundleReader::join_slices(const std::string& name,
                                                       const BundleEntry& entry) const {
  const auto fail = [&](const std::string& what) {
    throw DataLoss("'" + prefix_.string() + ".index': tensor '" + name + "': " + what);
  };
  const std::size_t size = dtype_size(entry.dtype), rank = entry.shape.size();
  if (size == 0) fail("is partitioned and of type " + std::string(dtype_name(entry.dtype)));
  std::vector<std::byte> out(static_cast<std::size_t>(elements(entry.shape)) * size);
  std::uint64_t filled = 0;
  for (const BundleEntry::Slice& slice : entry.slices) {
    const auto part = slice_entries_.find(bundle_slice_key(name, slice));
    if (part == slice_entries_.end()) fail("a slice is missing");
    std::vector<std::int64_t> begin = slice.begin, length = slice.length;
    if (begin.size() != rank) fail("a slice of another rank");
    for (std::size_t d = 0; d < rank; ++d) {
      if (length[d] < 0) length[d] = entry.shape[d];
      if (begin[d] < 0 || begin[d] > entry.shape[d] || length[d] > entry.shape[d] - begin[d])
        fail("a slice beyond its shape");
    }
    if (part->second.shape != length || part->second.dtype != entry.dtype)
      fail("a slice of another shape or type");
    const std::vector<std::byte> data = read_entry(name, part->second);
    filled += data.size();
    // Row by row of the last dimension.
    const std::int64_t row = rank == 0 ? 1 : length[rank - 1];
    std::vector<std::int64_t> index(rank, 0);
    for (std::size_t from = 0; from < data.size(); from += static_cast<std::size_t>(row) * size) {
      std::int64_t to = 0;
      for (std::size_t d = 0; d < rank; ++d) to = to * entry.shape[d] + begin[d] + index[d];
      std::memcpy(out.data() + static_cast<std::size_t>(to) * size, data.data() + from,
                  static_cast<std::size_t>(row) * size);
      for (std::size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
        if (++index[d] < length[d]) break;
        index[d] = 0;
      }
    }
  }
  if (filled != out.size()) fail(fmt::format("its slices have {} of {} bytes", filled, out.size()));
  return out;
}

}  // namespace braid
