// Unpacking of zstd and lz4 (frames) for byte_source.cc, a piece at a time. Private to engine/input. Thread
// rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace braid {

class Unpacker {
 public:
  virtual ~Unpacker() = default;
  /// Takes from `in` and gives to `out`, both shortened by what was used; `out` is what is still empty.
  /// Returns what is wrong with the data, or an empty text.
  virtual std::string step(std::span<const char>& in, std::span<char>& out) = 0;
  /// Whether a frame has begun that has not ended.
  virtual bool inside() const = 0;
};

/// Throws: InvalidArgument where the build lacks the library.
std::unique_ptr<Unpacker> make_zstd_unpacker();
std::unique_ptr<Unpacker> make_lz4_unpacker();

}  // namespace braid
