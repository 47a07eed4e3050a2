// What reductions say of themselves to fused regions: whether they reduce rows, the last axes, or sum
// columns, the first ones. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/fusion/rules.h"
#include "engine/ops/common/reduce.h"

namespace braid::fused {

/// Sets the domain to input 0, where `axes` are its last ones with more than one element, in rows that a
/// single pass of the kernel of their own takes. False: they are not.
inline bool over_rows(fusion::StepWriter& w, const std::vector<int>& axes) {
  const Shape& shape = w.input_info(0).shape;
  const auto reduced = [&](int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  if (axes.empty()) return false;
  std::int64_t columns = 1;
  int axis = shape.rank();
  for (; axis > 0 && (reduced(axis - 1) || (shape[axis - 1] == 1 && columns == 1)); --axis)
    columns *= shape[axis - 1];
  for (int before = 0; before < axis; ++before)
    if (reduced(before) && shape[before] != 1) return false;
  w.over(shape, columns);
  return columns > 1 && columns <= kReduceChunk;
}

/// The same where `axes` are the first ones: what is left are columns, of floats.
inline bool over_columns(fusion::StepWriter& w, const std::vector<int>& axes) {
  const Shape& shape = w.input_info(0).shape;
  const auto reduced = [&](int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  if (axes.empty() || !is_floating(w.input_info(0).dtype)) return false;
  std::int64_t rows = 1, columns = 1;
  int axis = 0;
  for (; axis < shape.rank() && (reduced(axis) || (shape[axis] == 1 && columns == 1)); ++axis)
    rows *= shape[axis];
  for (; axis < shape.rank(); ++axis) {
    if (reduced(axis) && shape[axis] != 1) return false;
    columns *= shape[axis];
  }
  w.over(shape, columns);
  return rows > 1 && columns > 1;
}

/// The same where `axes` are next to each other in front of the last ones, of floats: the number of elements
/// that are reduced to one, or 0 where they are not.
inline std::int64_t over_lines(fusion::StepWriter& w, const std::vector<int>& axes) {
  const Shape& shape = w.input_info(0).shape;
  const DType dtype = w.input_info(0).dtype;
  const auto reduced = [&](int axis) {
    return shape[axis] == 1 || std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  if (axes.empty() || (dtype != DType::Float32 && dtype != DType::Float64)) return 0;
  std::int64_t length = 1, columns = 1;
  int axis = shape.rank();
  for (; axis > 0 && (!reduced(axis - 1) || shape[axis - 1] == 1); --axis) columns *= shape[axis - 1];
  for (; axis > 0 && reduced(axis - 1); --axis) length *= shape[axis - 1];
  for (; axis > 0; --axis)
    if (reduced(axis - 1) && shape[axis - 1] != 1) return 0;
  w.over(shape, columns);
  return columns > 1 && length > 1 && w.input_info(0).shape.elements() > length * columns ? length : 0;
}

}  // namespace braid::fused
