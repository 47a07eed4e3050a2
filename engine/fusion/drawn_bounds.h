// Random numbers that are compared with a constant and used for nothing else, as dropout does: their bits can
// be compared. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/fusion/region.h"

namespace braid::fusion {

/// Of a Full Uniform step: a number x is below the constant where x's 32 bits, of which the upper 24 make x,
/// are below the result. Nothing where somebody needs x itself. REQUIRES: `uniform` is such a step.
std::optional<std::uint32_t> bound_of_uniform(const Region& region, int uniform);
/// The Uniform step that this step compares so, or -1.
int compared_uniform(const Region& region, int value);

}  // namespace braid::fusion
