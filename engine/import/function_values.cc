#include "engine/import/function_values.h"

#include <charconv>
#include <system_error>

namespace braid {

std::vector<std::string> value_parts(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t colon; (colon = text.find(':', at)) != std::string::npos; at = colon + 1)
    parts.push_back(text.substr(at, colon - at));
  parts.push_back(text.substr(at));
  return parts;
}

int value_number(std::string_view text) {
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? number : -1;
}

std::string value_of(const std::string& node, int output) {
  return output == 0 ? node : node + ":" + std::to_string(output);
}

}  // namespace braid
