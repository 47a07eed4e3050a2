// Where elements of a region's inputs lie, in CUDA C++. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/fusion/region.h"

namespace braid::fusion {

/// The offset of element `index`, an expression of type I, of the input's extent. REQUIRES: input.by < 0.
std::string cuda_offset(const Region::Input& input, const std::string& index);
/// The last offset of an element.
std::int64_t last_element(const Region::Input& input);

}  // namespace braid::fusion
