// The fields of the Criteo layout: label, I1..I13, C1..C26. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace braid {

inline constexpr std::size_t kCriteoIntegers = 13, kCriteoCategories = 26;
inline constexpr std::size_t kCriteoFields = 1 + kCriteoIntegers + kCriteoCategories;

/// "label", "I1", ..., "C26". REQUIRES: field < kCriteoFields.
std::string criteo_name(std::size_t field);
std::vector<std::string> criteo_names();

}  // namespace braid
