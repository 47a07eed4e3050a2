// Rows that servers of tests have, and how they are read there.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "engine/input/files/data_file.h"
#include "engine/input/formats/readers.h"

namespace braid {

inline std::string lines(int count) {
  std::string text = "x,y\n";
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  return text;
}

inline const std::vector<ColumnSpec> kColumns{{.name = "x", .kind = ColumnKind::Numeric},
                                              {.name = "y", .kind = ColumnKind::Label}};

/// By pieces.
inline std::string read_all(const std::string& name) {
  const auto file = open_data_file(name);
  std::string bytes(file->size(), '\0');
  for (std::size_t at = 0; at < bytes.size(); at += 4000)
    file->read_at(at, std::as_writable_bytes(
                          std::span(bytes).subspan(at, std::min<std::size_t>(4000, bytes.size() - at))));
  return bytes;
}

}  // namespace braid
