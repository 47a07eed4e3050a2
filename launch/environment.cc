#include "launch/environment.h"

#include <fmt/core.h>
#include <unistd.h>

#include <limits>

#include "base/env.h"
#include "base/error.h"

namespace braid::launch {

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

const std::string* find_variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

std::optional<int> parse_count(std::string_view text, int minimum) {
  const std::optional<std::int64_t> value = braid::parse_int(text);
  if (!value || *value < minimum || *value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<int> int_variable(const Environment& environment, std::string_view name, int minimum) {
  const std::string* text = find_variable(environment, name);
  if (text == nullptr) return std::nullopt;
  const std::optional<int> value = parse_count(*text, minimum);
  if (!value)
    throw InvalidArgument(
        fmt::format("[launch] {}: expected an integer >= {}, got '{}'", name, minimum, *text));
  return value;
}

}  // namespace braid::launch
