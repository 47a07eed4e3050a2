// Items of one size in a file that is written from front to back.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/files.h"

namespace braid {

/// Items are written behind each other, `chunk` of them at a time. T is trivially copyable. Thread rule: one
/// thread. Throws: what File throws.
template <class T>
class ItemWriter {
 public:
  ItemWriter(const std::filesystem::path& path, std::size_t chunk)
      : file_(File::create(path)), chunk_(chunk) {}
  void add(const T& item) {
    waiting_.push_back(item);
    if (waiting_.size() == chunk_) flush();
  }
  /// Writes what waits, and closes the file. Nothing is added afterwards.
  void finish() {
    flush();
    file_.close();
  }

 private:
  void flush() {
    file_.write(std::as_bytes(std::span(waiting_)));
    waiting_.clear();
  }

  File file_;
  std::size_t chunk_;
  std::vector<T> waiting_;
};

}  // namespace braid
