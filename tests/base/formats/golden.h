// Where the golden files are, and views of what is read from them.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace braid {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(BRAID_SOURCE_DIR) / "tests/base/formats/golden" / name;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Strings from their offsets and bytes.
inline std::vector<std::string> strings_of(const std::vector<std::byte>& bytes, std::size_t count) {
  std::vector<std::int64_t> offsets(count + 1);
  std::memcpy(offsets.data(), bytes.data(), offsets.size() * sizeof(std::int64_t));
  const char* text = reinterpret_cast<const char*>(bytes.data()) + offsets.size() * sizeof(std::int64_t);
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < count; ++i)
    strings.emplace_back(text + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
  return strings;
}

inline std::vector<std::byte> bytes_of_strings(const std::vector<std::string>& strings) {
  std::vector<std::int64_t> offsets{0};
  std::string text;
  for (const auto& s : strings) {
    text += s;
    offsets.push_back(static_cast<std::int64_t>(text.size()));
  }
  std::vector<std::byte> bytes(offsets.size() * sizeof(std::int64_t) + text.size());
  std::memcpy(bytes.data(), offsets.data(), offsets.size() * sizeof(std::int64_t));
  std::memcpy(bytes.data() + offsets.size() * sizeof(std::int64_t), text.data(), text.size());
  return bytes;
}

}  // namespace braid
