// The name that was probably meant. Thread rule: pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// The candidate with the smallest edit distance to `name`, the first of several; empty when none is closer
/// than a third of the name.
std::string nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace braid
