// Environment variables as a value, so that whoever reads them can be tested without touching the process.
// Thread rule: a value; process_environment() reads `environ` and must not race with setenv.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace braid::launch {

/// Name -> value. A variable that is set to nothing is present with an empty value.
using Environment = std::map<std::string, std::string, std::less<>>;

Environment process_environment();

/// Null when the variable is not set.
const std::string* find_variable(const Environment& environment, std::string_view name);

/// The variable as an integer in [minimum, 2^31). Absent when it is not set.
/// Throws: InvalidArgument with the variable's name and value.
std::optional<int> int_variable(const Environment& environment, std::string_view name, int minimum);

/// The whole text as an integer in [minimum, 2^31), without signs, spaces or fractions; absent when it is not
/// one.
std::optional<int> parse_count(std::string_view text, int minimum);

}  // namespace braid::launch
