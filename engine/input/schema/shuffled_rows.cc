#include "engine/input/schema/shuffled_rows.h"

#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace braid {
namespace {

/// Random numbers in order, made by the thousand.
class Draws {
 public:
  explicit Draws(RngKey key) : key_(key) {}
  /// Below `bound`.
  std::size_t next(std::size_t bound) {
    if (at_ == bits_.size()) {
      fill_bits(key_, first_, bits_);
      first_ += bits_.size();
      at_ = 0;
    }
    const std::uint64_t r = (std::uint64_t{bits_[at_]} << 32) | bits_[at_ + 1];
    at_ += 2;
    return static_cast<std::size_t>(r % bound);
  }

 private:
  RngKey key_;
  std::uint64_t first_ = 0;
  std::array<std::uint32_t, 4096> bits_;
  std::size_t at_ = bits_.size();
};

/// Fisher-Yates with counter-based bits.
void permute(std::vector<std::int64_t>& order, RngKey key) {
  std::vector<std::uint32_t> bits(order.size() * 2);
  fill_bits(key, 0, bits);
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint64_t r = (std::uint64_t{bits[2 * i - 2]} << 32) | bits[2 * i - 1];
    std::swap(order[i - 1], order[r % i]);
  }
}

/// What a buffer of `capacity` rows gives, from which a random one is taken and replaced by the next of the
/// file.
void draw_from_buffer(std::vector<std::int64_t>& order, std::size_t capacity, RngKey key) {
  Draws draws(key);
  std::vector<std::int64_t> buffer(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(capacity));
  std::size_t next = capacity;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t taken = draws.next(buffer.size());
    const std::int64_t row = buffer[taken];
    if (next < order.size()) {
      buffer[taken] = order[next++];  // not overwritten yet: next is ahead of i by the buffer
    } else {
      buffer[taken] = buffer.back();
      buffer.pop_back();
    }
    order[i] = row;
  }
}

}  // namespace

std::vector<std::int64_t> shuffled_rows(std::int64_t rows, RngKey key, std::int64_t buffer) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  if (buffer > 0 && buffer < rows)
    draw_from_buffer(order, static_cast<std::size_t>(buffer), key);
  else
    permute(order, key);
  return order;
}

}  // namespace braid
