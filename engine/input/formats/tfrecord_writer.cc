#include <cstring>

#include "base/crc32c.h"
#include "engine/input/files/byte_sink.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::uint32_t masked_crc(std::string_view bytes) {
  return crc32c_mask(crc32c(std::as_bytes(std::span(bytes))));
}

}  // namespace

void append_tfrecord(std::string_view record, std::string& to) {
  const std::uint64_t length = record.size();
  to.append(bytes_of(length)).append(bytes_of(masked_crc(bytes_of(length))));
  to.append(record).append(bytes_of(masked_crc(record)));
}

struct TfRecordWriter::Impl {
  ByteSink sink;
};

TfRecordWriter::TfRecordWriter(std::filesystem::path file, Compression compression)
    : impl_(new Impl{ByteSink(std::move(file), compression)}) {}
TfRecordWriter::~TfRecordWriter() = default;

void TfRecordWriter::write(std::string_view record) {
  const std::uint64_t length = record.size();
  impl_->sink.write(bytes_of(length));
  impl_->sink.write(bytes_of(masked_crc(bytes_of(length))));
  impl_->sink.write(record);
  impl_->sink.write(bytes_of(masked_crc(record)));
}

void TfRecordWriter::finish() { impl_->sink.finish(); }

}  // namespace braid
