// A file that is written from front to back, packed on the way, under a temporary name until it is finished:
// a reader sees the whole file or none. Private to engine/input. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "engine/input/files/byte_source.h"

namespace braid {

class ByteSink {
 public:
  /// Throws: InvalidArgument (cannot be written there: path, reason).
  explicit ByteSink(std::filesystem::path file, Compression compression = Compression::None);
  ~ByteSink();  // what was not finished is removed
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  /// Throws: Unavailable (disk: path, reason).
  void write(std::string_view bytes);
  /// Writes the rest and gives the file its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
