#include "engine/input/files/byte_sink.h"

#include <unistd.h>
#include <zlib.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace braid {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

File create(const std::filesystem::path& temporary, const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file))
    throw InvalidArgument("cannot write '" + file.string() + "': it is a directory");
  try {
    return File::create(temporary);
  } catch (const Unavailable& e) {
    throw InvalidArgument("cannot write '" + file.string() + "': " + e.message());
  }
}

std::filesystem::path temporary_name(const std::filesystem::path& file) {
  std::filesystem::path temporary = file;
  temporary.replace_filename(".tmp-" + file.filename().string() + "-" + std::to_string(::getpid()));
  return temporary;
}

}  // namespace

struct ByteSink::Impl {
  Impl(std::filesystem::path path, Compression packing)
      : path(std::move(path)),
        temporary(temporary_name(this->path)),
        compression(packing),
        file(create(temporary, this->path)) {
    if (compression == Compression::None) return;
    if (compression != Compression::Gzip && compression != Compression::Zlib)
      throw InvalidArgument("cannot write '" + this->path.string() + "': " + compression_name(compression) +
                            " is read, not written; gzip and zlib are");
    constexpr int kWindow = 15, kGzipHeader = 16, kMemory = 8;
    const int window = compression == Compression::Gzip ? kWindow + kGzipHeader : kWindow;
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
      throw OutOfMemory("zlib: no memory for a stream");
  }
  ~Impl() {
    if (compression != Compression::None) deflateEnd(&stream);
    if (!finished) ::unlink(temporary.c_str());
  }
  void flush(std::string_view bytes) { file.write(std::as_bytes(std::span(bytes))); }
  void deflate_all(std::string_view bytes, int mode) {
    constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
    for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece))
      deflate_all(bytes.substr(0, kPiece), Z_NO_FLUSH);
    packed.resize(kBuffer);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      deflate(&stream, mode);
      flush({packed.data(), packed.size() - stream.avail_out});
    } while (stream.avail_out == 0);
  }
  void drain(bool last) {
    if (compression == Compression::None)
      flush(pending);
    else
      deflate_all(pending, last ? Z_FINISH : Z_NO_FLUSH);
    pending.clear();
  }

  std::filesystem::path path, temporary;
  Compression compression;
  File file;
  std::string pending;
  std::vector<char> packed;
  z_stream stream{};
  bool finished = false;
};

ByteSink::ByteSink(std::filesystem::path file, Compression compression)
    : impl_(std::make_unique<Impl>(std::move(file), compression)) {}
ByteSink::~ByteSink() = default;

void ByteSink::write(std::string_view bytes) {
  impl_->pending.append(bytes);
  if (impl_->pending.size() >= kBuffer) impl_->drain(false);
}

void ByteSink::finish() {
  impl_->drain(true);
  impl_->file.close();
  rename_path(impl_->temporary, impl_->path);
  impl_->finished = true;
}

}  // namespace braid
