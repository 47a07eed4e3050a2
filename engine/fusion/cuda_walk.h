// Regions with scans on a device: a thread goes down a column of a piece of rows, some places at a time, with
// what was added up so far in a register. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "engine/fusion/cuda_layout.h"
#include "engine/fusion/region.h"

namespace braid::fusion {

/// The thread's column of its piece, and the loop down it. REQUIRES: layout.walks; the type I.
std::string begin_walk(const Region& region, const CudaLayout& layout);
/// place[e] and here[e] of E places of the loop.
std::string walk_places(const Region& region);
/// v[e], the scan of its operand's places; of a whole piece only what is added up so far.
std::string scan_places(const Region& region, int value);
/// Behind the loop: what whole pieces have added up, by the output's number.
std::string end_walk(const Region& region, const std::vector<int>& tensors);
/// The number with which a reduction begins. REQUIRES: a type that cuda_type has.
std::string neutral_of(RowReduction reduction, DType dtype);

}  // namespace braid::fusion
