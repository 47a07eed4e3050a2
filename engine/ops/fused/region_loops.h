// What regions do along rows, on the CPU: reductions by the loops of the ops' own kernels, and scans. Thread
// rule: pure functions.
#pragma once

#include <cstdint>

#include "engine/fusion/region.h"

namespace braid {

/// y[r], the reduction of row r of x, of `rows` x n elements.
using RowLoop = void (*)(const void* x, std::int64_t rows, std::int64_t n, void* y);
/// Throws: InvalidArgument for types that are not reduced.
RowLoop row_loop_of(const fusion::Region::Step& step);

/// A Scan step over whole pieces: `rows` x n elements of x and y. Throws: InvalidArgument for other types
/// than float32 and float64.
void scan_rows(const fusion::Region::Step& step, std::int64_t rows, std::int64_t n, const void* x, void* y);
/// A Scan step of whole pieces only: y has a row a piece. Throws: as scan_rows.
void fold_rows(const fusion::Region::Step& step, std::int64_t rows, std::int64_t n, const void* x, void* y);

}  // namespace braid
