#include <unistd.h>

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "base/formats/sorted_table.h"
#include "base/formats/tensor_bundle.h"

namespace braid {
namespace {

std::string temporary_name(const std::filesystem::path& prefix) {
  std::filesystem::path path = prefix;
  path.replace_filename(".tmp-" + prefix.filename().string() + "-" + std::to_string(::getpid()));
  return path;
}

std::string header() {
  std::string version, header;
  put_varint_field(version, 1, 1);  // producer
  put_varint_field(header, 1, 1);   // shards
  put_bytes_field(header, 3, version);
  return header;
}

std::string format_entry(const BundleEntry& entry) {
  std::string shape, out;
  for (const std::int64_t size : entry.shape) {
    std::string dim;
    put_varint_field(dim, 1, static_cast<std::uint64_t>(size));
    put_bytes_field(shape, 2, dim);
  }
  put_varint_field(out, 1, static_cast<std::uint64_t>(entry.dtype));
  put_bytes_field(out, 2, shape);
  if (entry.offset > 0) put_varint_field(out, 4, entry.offset);
  put_varint_field(out, 5, entry.bytes);
  put_fixed32_field(out, 6, entry.masked_crc);
  return out;
}

/// As unpack_strings of tensor_bundle_reader.cc reads it.
std::string pack_strings(std::span<const std::byte> data, std::size_t count, std::uint32_t& crc) {
  std::vector<std::int64_t> offsets(count + 1);
  const std::size_t head = offsets.size() * sizeof(std::int64_t);
  if (data.size() < head) throw InvalidArgument("strings of fewer bytes than their offsets");
  std::memcpy(offsets.data(), data.data(), head);
  std::string out;
  crc = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto length = static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]);
    put_varint(out, length);
    const auto narrow = static_cast<std::uint32_t>(length);
    crc = narrow == length ? crc32c(std::as_bytes(std::span(&narrow, 1)), crc)
                           : crc32c(std::as_bytes(std::span(&length, 1)), crc);
  }
  const std::uint32_t lengths_crc = crc32c_mask(crc);
  out.append(reinterpret_cast<const char*>(&lengths_crc), sizeof(lengths_crc));
  crc = crc32c(std::as_bytes(std::span(&lengths_crc, 1)), crc);
  const auto text = data.subspan(head);
  crc = crc32c(text, crc);
  return out.append(reinterpret_cast<const char*>(text.data()), text.size());
}

}  // namespace

struct TensorBundleWriter::Impl {
  explicit Impl(std::filesystem::path path)
      : prefix(std::move(path)), temporary(temporary_name(prefix)), file(File::create(temporary)) {}
  ~Impl() {
    if (!finished) ::unlink(temporary.c_str());
  }

  std::filesystem::path prefix;
  std::string temporary;
  File file;
  std::uint64_t position = 0;
  std::map<std::string, BundleEntry> entries;
  bool finished = false;
};

TensorBundleWriter::TensorBundleWriter(std::filesystem::path prefix)
    : impl_(std::make_unique<Impl>(std::move(prefix))) {}
TensorBundleWriter::~TensorBundleWriter() = default;

void TensorBundleWriter::add(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                             std::span<const std::byte> data) {
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  BundleEntry entry{.dtype = dtype, .shape = {shape.begin(), shape.end()}, .offset = impl_->position};
  std::uint32_t crc = 0;
  if (name.empty() || impl_->entries.contains(name))
    throw InvalidArgument("tensor bundle: name '" + name + "' is empty or there already");
  if (dtype == DType::String) {
    const std::string packed = pack_strings(data, count, crc);
    impl_->file.write(std::as_bytes(std::span(packed)));
    entry.bytes = packed.size();
  } else {
    if (dtype_size(dtype) == 0 || data.size() != count * dtype_size(dtype))
      throw InvalidArgument("tensor bundle: '" + name + "' has " + std::to_string(data.size()) +
                            " bytes for " + std::to_string(count) + " elements of " +
                            std::string(dtype_name(dtype)));
    impl_->file.write(data);
    entry.bytes = data.size();
    crc = crc32c(data);
  }
  entry.masked_crc = crc32c_mask(crc);
  impl_->position += entry.bytes;
  impl_->entries.emplace(name, std::move(entry));
}

void TensorBundleWriter::finish() {
  SortedPairs pairs{{"", header()}};
  for (const auto& [name, entry] : impl_->entries) pairs.emplace_back(name, format_entry(entry));
  impl_->file.sync();
  impl_->file.close();
  rename_path(impl_->temporary, impl_->prefix.string() + ".data-00000-of-00001");
  impl_->finished = true;
  write_file_atomically(impl_->prefix.string() + ".index", format_sorted_table(pairs));
}

}  // namespace braid
