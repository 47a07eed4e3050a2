// The fields of the Criteo layout: label, I1..I13, C1..C26. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

inline constexpr std::size_t kCriteoIntegers = 13, kCriteoCategories = 26;
inline constexpr std::size_t kCriteoFields = 1 + kCriteoIntegers + kCriteoCategories;

/// "label", "I1", ..., "C26". REQUIRES: field < kCriteoFields.
std::string criteo_name(std::size_t field);
std::vector<std::string> criteo_names();

/// What keeps the fields of a line from being a row, e.g. "I3 'x' is not a number"; empty when nothing does.
std::string criteo_problem(const std::vector<std::string_view>& fields);

}  // namespace braid
