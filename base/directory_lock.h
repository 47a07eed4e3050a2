// One process at a time writes into a directory: a lock on the file ".lock" in it, which ends with the
// process, however that ends. Where the file system has no locks there is no such protection. Thread rule: a
// value, movable.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace braid {

class DirectoryLock {
 public:
  DirectoryLock() = default;
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;

  /// False, with who holds it ("process 123 on host-7") in holder(), where another process does. A process
  /// that holds it itself has it again. REQUIRES: the directory is there. Throws: Unavailable (the file
  /// cannot be made).
  bool take(const std::filesystem::path& directory);
  const std::string& holder() const { return holder_; }

 private:
  int descriptor_ = -1;
  pid_t owner_ = 0;  // that has the lock by this; 0: none
  std::string holder_;
};

}  // namespace braid
