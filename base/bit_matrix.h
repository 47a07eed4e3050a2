// A square matrix of bits: a relation over a program's buffers. 10,000 buffers are 12.5 MB, and set
// operations on whole rows run 64 pairs at a time. Thread rule: writers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

class BitMatrix {
 public:
  explicit BitMatrix(std::size_t size) : size_(size), words_((size + 63) / 64), bits_(size * words_, 0) {}

  std::size_t size() const { return size_; }
  std::size_t words() const { return words_; }
  bool test(std::size_t i, std::size_t j) const { return (row(i)[j / 64] >> (j % 64)) & 1; }
  void set(std::size_t i, std::size_t j) { row(i)[j / 64] |= std::uint64_t{1} << (j % 64); }
  void clear(std::size_t i, std::size_t j) { row(i)[j / 64] &= ~(std::uint64_t{1} << (j % 64)); }
  std::uint64_t* row(std::size_t i) { return bits_.data() + i * words_; }
  const std::uint64_t* row(std::size_t i) const { return bits_.data() + i * words_; }
  void fill();

  /// Each pair becomes set when it or its mirror image is.
  void make_symmetric();

 private:
  std::size_t size_, words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace braid
