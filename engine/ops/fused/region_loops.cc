#include "engine/ops/fused/region_loops.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/ops/common/reduce_loops.h"

namespace braid {
namespace {

using fusion::Region;

template <class Op, class T>
void reduce_rows(const void* x, std::int64_t rows, std::int64_t n, void* y) {
  reduce::rows<Op, T>(static_cast<const T*>(x), n, rows, n, static_cast<T*>(y));
}

template <class T>
RowLoop row_loop_of(fusion::RowReduction reduction) {
  switch (reduction) {
    case fusion::RowReduction::Sum:
      return reduce_rows<reduce::Sum, T>;
    case fusion::RowReduction::Prod:
      return reduce_rows<reduce::Prod, T>;
    case fusion::RowReduction::Max:
      return reduce_rows<reduce::Max, T>;
    default:
      return reduce_rows<reduce::Min, T>;
  }
}

template <class Op, class T>
void scan_lines(const Region::Step& step, std::int64_t rows, std::int64_t n, const void* from, void* to) {
  const auto* const x = static_cast<const T*>(from);
  auto* const y = static_cast<T*>(to);
  std::vector<T> sums(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t piece = i / step.length * step.length, at = i - piece;
    const std::int64_t row = step.reverse ? piece + step.length - 1 - at : i;
    if (at == 0) std::fill(sums.begin(), sums.end(), Op::template identity<T>());
    for (std::int64_t c = 0; c < n; ++c) {
      T& sum = sums[static_cast<std::size_t>(c)];
      const T before = sum;
      Op::apply(sum, x[row * n + c]);
      y[row * n + c] = step.exclusive ? before : sum;
    }
  }
}

template <class Op, class T>
void fold_lines(const Region::Step& step, std::int64_t rows, std::int64_t n, const void* from, void* to) {
  const auto* x = static_cast<const T*>(from);
  auto* y = static_cast<T*>(to);
  for (std::int64_t piece = 0; piece < rows / step.length; ++piece, y += n) {
    std::fill(y, y + n, Op::template identity<T>());
    for (std::int64_t i = 0; i < step.length; ++i, x += n)
      for (std::int64_t c = 0; c < n; ++c) Op::apply(y[c], x[c]);
  }
}

template <class T>
void fold_lines_of(const Region::Step& step, std::int64_t rows, std::int64_t n, const void* x, void* y) {
  switch (step.reduction) {
    case fusion::RowReduction::Sum:
      return fold_lines<reduce::Sum, T>(step, rows, n, x, y);
    case fusion::RowReduction::Prod:
      return fold_lines<reduce::Prod, T>(step, rows, n, x, y);
    case fusion::RowReduction::Max:
      return fold_lines<reduce::Max, T>(step, rows, n, x, y);
    case fusion::RowReduction::Min:
      return fold_lines<reduce::Min, T>(step, rows, n, x, y);
  }
}

[[noreturn]] void refuse(DType dtype) {
  throw InvalidArgument("fused region: rows of " + std::string(dtype_name(dtype)) + " are not scanned");
}

}  // namespace

void fold_rows(const Region::Step& step, std::int64_t rows, std::int64_t n, const void* x, void* y) {
  if (step.dtype == DType::Float32) return fold_lines_of<float>(step, rows, n, x, y);
  if (step.dtype == DType::Float64) return fold_lines_of<double>(step, rows, n, x, y);
  refuse(step.dtype);
}

void scan_rows(const Region::Step& step, std::int64_t rows, std::int64_t n, const void* from, void* to) {
  const auto scan = [&]<class T>(T) {
    if (step.reduction == fusion::RowReduction::Sum)
      scan_lines<reduce::Sum, T>(step, rows, n, from, to);
    else
      scan_lines<reduce::Prod, T>(step, rows, n, from, to);
  };
  if (step.dtype == DType::Float32) return scan(float{});
  if (step.dtype == DType::Float64) return scan(double{});
  refuse(step.dtype);
}

RowLoop row_loop_of(const Region::Step& step) {
  switch (step.dtype) {
    case DType::Float32:
      return row_loop_of<float>(step.reduction);
    case DType::Float64:
      return row_loop_of<double>(step.reduction);
    case DType::Int32:
      return row_loop_of<std::int32_t>(step.reduction);
    case DType::Int64:
      return row_loop_of<std::int64_t>(step.reduction);
    default:
      throw InvalidArgument("fused region: rows of " + std::string(dtype_name(step.dtype)) +
                            " are not reduced");
  }
}

}  // namespace braid
