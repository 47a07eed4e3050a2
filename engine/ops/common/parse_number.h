// Numbers in strings, as StringToNumber and DecodeCSV read them: white space around, a sign, for floating
// types inf, nan, exponents and hexadecimal digits behind 0x. Beyond the type's range a float becomes
// infinite or zero; an integer is none. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/c_locale.h"

namespace braid {

inline std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// False when it is none; `value` is then undefined.
template <class T>
bool parse_number(std::string_view text, T& value) {
  text = without_space(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  if constexpr (std::is_integral_v<T>) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  } else {
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    if (text.starts_with('-')) return false;
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    if (hex) text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value,
                                              hex ? std::chars_format::hex : std::chars_format::general);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) return false;
    if (error == std::errc::result_out_of_range)  // says which way, unlike from_chars
      value = static_cast<T>(strtod_in_c(((hex ? "0x" : "") + std::string(text)).c_str(), nullptr));
    if (negative) value = -value;
    return true;
  }
}

}  // namespace braid
