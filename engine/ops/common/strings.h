// The strings of a kernel's input, in the layout of engine/ir/tensor.h: int64 offsets[n + 1], then the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace braid {

class StringsView {
 public:
  StringsView(const void* memory, std::int64_t count)
      : offsets_(static_cast<const std::int64_t*>(memory)),
        bytes_(reinterpret_cast<const char*>(offsets_ + count + 1)),
        count_(count) {}

  std::string_view operator[](std::int64_t i) const {
    return {bytes_ + offsets_[i], static_cast<std::size_t>(offsets_[i + 1] - offsets_[i])};
  }
  /// Offsets and bytes together.
  std::size_t total_bytes() const {
    return static_cast<std::size_t>(count_ + 1) * sizeof(std::int64_t) +
           static_cast<std::size_t>(offsets_[count_]);
  }

 private:
  const std::int64_t* offsets_;
  const char* bytes_;
  std::int64_t count_;
};

}  // namespace braid
