#include "base/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace braid {
namespace {

/// The parsed value of a variable that is set. Throws InvalidArgument when `parse` gives nothing.
template <class Parse>
auto parsed(const char* name, std::string_view expected, Parse parse) -> decltype(parse(std::string_view{})) {
  const auto text = env_string(name);
  if (!text) return std::nullopt;
  auto value = parse(std::string_view(*text));
  if (!value)
    throw InvalidArgument(fmt::format("environment variable {}='{}': expected {}", name, *text, expected));
  return value;
}

}  // namespace

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (!value || *value == '\0') return std::nullopt;
  return value;
}

std::optional<bool> env_bool(const char* name) { return parsed(name, "true, false, 1 or 0", parse_bool); }

std::optional<std::int64_t> env_int(const char* name, std::int64_t min, std::int64_t max) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  std::string expected = "a whole number";
  if (min != kLowest && max != kHighest)
    expected += fmt::format(" from {} to {}", min, max);
  else if (min != kLowest)
    expected += fmt::format(" of at least {}", min);
  else if (max != kHighest)
    expected += fmt::format(" of at most {}", max);
  return parsed(name, expected, [&](std::string_view text) {
    const auto value = parse_int(text);
    return value && *value >= min && *value <= max ? value : std::nullopt;
  });
}

std::optional<double> env_double(const char* name) { return parsed(name, "a number", parse_double); }

std::optional<std::chrono::nanoseconds> env_duration(const char* name) {
  return parsed(name, "a duration like 250ms, 5s, 2m or 1h", parse_duration);
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const char* word : {"true", "1", "yes", "on"})
    if (lower == word) return true;
  for (const char* word : {"false", "0", "no", "off"})
    if (lower == word) return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);  // from_chars knows '-' only
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"", 1e9}}};
  for (const auto& [unit, nanoseconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = parse_double(text.substr(0, text.size() - unit.size()));
    if (!number || std::signbit(*number) || *number * nanoseconds >= 0x1p63) return std::nullopt;
    return std::chrono::nanoseconds(std::llround(*number * nanoseconds));
  }
  return std::nullopt;
}

}  // namespace braid
