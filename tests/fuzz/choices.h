// Decisions drawn from a string of bytes, which is what a grammar-driven fuzz target is made of: libFuzzer
// mutates the bytes, and a seeded loop draws them. When the bytes are used up every decision is the first
// one, so that what is built stays finite. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace braid::fuzz {

class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  bool used_up() const { return at_ == end_; }
  std::uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  /// In [0, count). REQUIRES: count > 0.
  std::size_t below(std::size_t count) {
    const std::size_t high = count > 256 ? byte() : 0;
    return (high << 8 | byte()) % count;
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::size_t>(high - low + 1)));
  }
  /// False once the bytes are used up.
  bool chance(int percent) { return !used_up() && below(100) < static_cast<std::size_t>(percent); }
  template <class T>
  T pick(std::initializer_list<T> items) {
    return items.begin()[below(items.size())];
  }
  template <class Items>
  auto& pick_of(const Items& items) {
    return items[below(std::size(items))];
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace braid::fuzz
