#include "ps/table/row_store.h"

#include <algorithm>
#include <bit>

namespace braid::ps {
namespace {

constexpr std::size_t kLineFloats = 16;
constexpr std::size_t kSlabFloats = std::size_t{1} << 16;
constexpr std::size_t kFewSlabs = 8;        // a table this small takes slabs one by one
constexpr std::size_t kSlabsOfABlock = 16;  // 4 MiB of rows and more

/// A row shorter than a line does not straddle two; a longer one begins with a line.
std::size_t padded(std::size_t floats) {
  return floats < kLineFloats ? std::bit_ceil(floats)
                              : (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

RowStore::RowStore(std::size_t floats)
    : stride_(padded(floats)),
      bits_(static_cast<unsigned>(std::bit_width(std::max<std::size_t>(kSlabFloats / stride_, 8)) - 1)),
      mask_((1U << bits_) - 1) {}

void RowStore::add_slabs() {
  const std::size_t rows = std::size_t{1} << bits_;
  const std::size_t slabs = slabs_.size() < kFewSlabs ? 1 : kSlabsOfABlock;
  const std::size_t row_bytes = rows * stride_ * sizeof(float);
  const std::size_t bytes = row_bytes + rows * (sizeof(std::int64_t) + sizeof(std::uint32_t));
  blocks_.emplace_back(slabs * bytes);
  std::byte* next = blocks_.back().data();
  for (std::size_t i = 0; i < slabs; ++i, next += bytes) {
    auto* keys = reinterpret_cast<std::int64_t*>(next + row_bytes);
    slabs_.push_back({reinterpret_cast<float*>(next), keys, reinterpret_cast<std::uint32_t*>(keys + rows)});
  }
}

std::uint32_t RowStore::add(std::int64_t key) {
  if (size_ >> bits_ == slabs_.size()) add_slabs();
  const auto row = static_cast<std::uint32_t>(size_++);
  slab(row).keys[row & mask_] = key;
  return row;
}

}  // namespace braid::ps
