// Machine code of generated kernels: made in parallel, kept in the process and on disk.
//
// A file is named by a hash of what decides its content: source, options, architecture and the compiler's
// version. It is written beside its name and renamed, so that readers and other writers see it whole or not
// at all; it begins with a header and a checksum, and what does not fit is made anew. The folder is
// $XDG_CACHE_HOME/braid/kernels, or ~/.cache/braid/kernels; without a home, or where it cannot be written,
// kernels are kept in the process only.
//
//   file = "BRAIDKRN" version:u32 checksum:u32 (crc32c of the rest) key-bytes:u64 key code
//
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace braid {

class KernelCache {
 public:
  using Code = std::shared_ptr<const std::string>;
  /// Machine code of a source. Throws what the compiler throws.
  using Compile = std::function<std::string(const std::string& source)>;

  /// `folder` empty: nothing is on disk. `setting`: whatever else than the source decides what `compile`
  /// makes.
  KernelCache(std::filesystem::path folder, std::string setting, Compile compile);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// Code for each source, null where it could not be made: the first reason is in `why`. Sources are
  /// compiled by `threads` threads; what is not ready after `limit` is null now, and goes on for who asks
  /// later.
  std::vector<Code> get(std::span<const std::string> sources, int threads, std::chrono::nanoseconds limit,
                        std::string& why);

  /// How many sources were compiled, and how many read from disk.
  std::int64_t compiled() const;
  std::int64_t loaded() const;

  static std::filesystem::path default_folder();

 private:
  struct State;
  std::shared_ptr<State> state_;  // threads that outlast a limit hold it, too
};

}  // namespace braid
