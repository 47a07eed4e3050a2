#include "engine/input/files/unpacker.h"

#include <lz4frame.h>
#include <zstd.h>

#include "base/error.h"

namespace braid {
namespace {

class ZstdUnpacker : public Unpacker {
 public:
  ZstdUnpacker() : stream_(ZSTD_createDStream()) {
    if (!stream_) throw OutOfMemory("zstd: no memory for a stream");
  }
  ~ZstdUnpacker() override { ZSTD_freeDStream(stream_); }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;

  std::string step(std::span<const char>& in, std::span<char>& out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ZSTD_decompressStream(stream_, &to, &from);
    in = in.subspan(from.pos);
    out = out.subspan(to.pos);
    if (ZSTD_isError(left)) return ZSTD_getErrorName(left);
    // Without data it asks for the next frame, which need not come.
    if (from.pos > 0 || to.pos > 0) inside_ = left != 0;
    return {};
  }
  bool inside() const override { return inside_; }

 private:
  ZSTD_DStream* stream_;
  bool inside_ = false;
};

class Lz4Unpacker : public Unpacker {
 public:
  Lz4Unpacker() {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&stream_, LZ4F_VERSION)))
      throw OutOfMemory("lz4: no memory for a stream");
  }
  ~Lz4Unpacker() override { LZ4F_freeDecompressionContext(stream_); }
  Lz4Unpacker(const Lz4Unpacker&) = delete;
  Lz4Unpacker& operator=(const Lz4Unpacker&) = delete;

  std::string step(std::span<const char>& in, std::span<char>& out) override {
    std::size_t taken = in.size(), given = out.size();
    const std::size_t left = LZ4F_decompress(stream_, out.data(), &given, in.data(), &taken, nullptr);
    if (LZ4F_isError(left)) return LZ4F_getErrorName(left);
    in = in.subspan(taken);
    out = out.subspan(given);
    if (taken > 0 || given > 0) inside_ = left != 0;
    return {};
  }
  bool inside() const override { return inside_; }

 private:
  LZ4F_dctx* stream_ = nullptr;
  bool inside_ = false;
};

}  // namespace

std::unique_ptr<Unpacker> make_zstd_unpacker() { return std::make_unique<ZstdUnpacker>(); }
std::unique_ptr<Unpacker> make_lz4_unpacker() { return std::make_unique<Lz4Unpacker>(); }

}  // namespace braid
