// Shapes of tensors: known rank with known or unknown dimensions, or unknown rank. A value type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace braid {

class Shape {
 public:
  static constexpr std::int64_t kUnknown = -1;

  Shape() = default;  // a scalar
  Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}
  static Shape unknown_rank();

  bool has_rank() const { return has_rank_; }
  /// REQUIRES (rank, dim, dims): has_rank().
  int rank() const { return static_cast<int>(dims_.size()); }
  std::int64_t dim(int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const { return dim(axis); }
  std::span<const std::int64_t> dims() const { return dims_; }
  void set_dim(int axis, std::int64_t size) { dims_[static_cast<std::size_t>(axis)] = size; }

  /// Rank and every dimension known.
  bool is_static() const;
  /// Number of elements. REQUIRES: is_static().
  std::int64_t elements() const;
  /// "[2, ?, 3]", "[]" for a scalar, "<unknown>" for unknown rank.
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<std::int64_t> dims_;
  bool has_rank_ = true;
};

/// The shape that both describe, with unknown parts filled from each other; empty when they contradict.
bool merge_shapes(const Shape& a, const Shape& b, Shape& merged);

/// NumPy/TensorFlow broadcasting. Returns false when the shapes do not broadcast.
bool broadcast_shapes(const Shape& a, const Shape& b, Shape& result);

}  // namespace braid
