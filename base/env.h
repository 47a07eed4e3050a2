// Typed look-up of environment variables, and the parsing of the values, which command-line options share. A
// value that does not parse is an InvalidArgument that names the variable, what it says and what was
// expected. A variable that is set to nothing counts as not set. Thread rule: safe from any thread as long as
// no thread changes the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace braid {

std::optional<std::string> env_string(const char* name);
std::optional<bool> env_bool(const char* name);
/// Throws: InvalidArgument also for a number outside [min, max].
std::optional<std::int64_t> env_int(const char* name,
                                    std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                                    std::int64_t max = std::numeric_limits<std::int64_t>::max());
std::optional<double> env_double(const char* name);
std::optional<std::chrono::nanoseconds> env_duration(const char* name);

/// true/false, 1/0, yes/no, on/off in any case; nullopt otherwise.
std::optional<bool> parse_bool(std::string_view text);
/// A whole decimal number with an optional sign; nullopt for anything else or too large.
std::optional<std::int64_t> parse_int(std::string_view text);
/// A finite decimal number.
std::optional<double> parse_double(std::string_view text);
/// A number >= 0 and its unit: "250ms", "5s", "1.5m", "2h", "10us", "3ns"; without a unit, seconds.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace braid
