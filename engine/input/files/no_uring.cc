// In place of uring_reader.cc where the build has no liburing.
#include <mutex>

#include "base/log.h"
#include "engine/input/files/file_reads.h"

namespace braid {

std::unique_ptr<DirectReader> make_direct_reader(const FileReadOptions&, ReadMeter&) {
  static std::once_flag said;
  std::call_once(said, [] {
    log_warning("input: this build has no liburing, so files are read through the page cache");
  });
  return nullptr;
}

}  // namespace braid
