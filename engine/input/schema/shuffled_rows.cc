#include "engine/input/schema/shuffled_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
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

/// Fisher-Yates with counter-based bits, from the last place to the first. Which places change their rows
/// follows from the bits alone, so a piece of them is drawn first, and their rows are fetched ahead.
template <class Row>
void permute(std::vector<Row>& order, RngKey key) {
  constexpr std::size_t kDraws = 2048, kAhead = 24;
  std::array<std::uint32_t, 2 * kDraws> bits;
  std::array<std::size_t, kDraws> others;
  for (std::size_t end = order.size(); end > 1;) {
    const std::size_t begin = end > kDraws + 1 ? end - kDraws : 1, count = end - begin;
    fill_bits(key, 2 * begin, std::span(bits).first(2 * count));
    for (std::size_t k = 0; k < count; ++k) {
      const std::uint64_t r = (std::uint64_t{bits[2 * k]} << 32) | bits[2 * k + 1];
      others[k] = static_cast<std::size_t>(r % (begin + k + 1));
    }
    for (std::size_t k = count; k-- > 0;) {
      if (k >= kAhead) __builtin_prefetch(&order[others[k - kAhead]], 1);
      std::swap(order[begin + k], order[others[k]]);
    }
    end = begin;
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
  const bool from_buffer = buffer > 0 && buffer < rows;
  if (!from_buffer && rows <= std::numeric_limits<std::uint32_t>::max()) {
    std::vector<std::uint32_t> narrow(order.size());  // half of it fits the caches twice as well
    std::iota(narrow.begin(), narrow.end(), 0U);
    permute(narrow, key);
    std::ranges::copy(narrow, order.begin());
    return order;
  }
  std::iota(order.begin(), order.end(), 0);
  if (from_buffer)
    draw_from_buffer(order, static_cast<std::size_t>(buffer), key);
  else
    permute(order, key);
  return order;
}

}  // namespace braid
