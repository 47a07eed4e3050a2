// NVIDIA's run-time compiler of CUDA C++, loaded when it is first wanted: programs run without it, and it
// needs no GPU. Searched as BRAID_NVRTC_LIBRARY says, then where the loader looks, then in /usr/local/cuda.
// Thread rule: any thread; compilations run side by side.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace braid {

class Nvrtc {
 public:
  /// The process's. missing() says why it is of no use, or is empty.
  static const Nvrtc& get();
  const std::string& missing() const { return missing_; }
  /// "13.0"; empty where it is missing.
  const std::string& version() const { return version_; }

  /// Machine code of the source for "sm_90" and the like. Throws: Internal with the compiler's messages;
  /// Unavailable where it is missing.
  std::string compile(const std::string& source, const std::string& architecture,
                      std::span<const char* const> options) const;

 private:
  using Program = void*;
  Nvrtc();
  void check(int result, const char* call) const;

  std::string missing_, version_;
  int (*version_call_)(int*, int*) = nullptr;
  int (*create_)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy_)(Program*) = nullptr;
  int (*compile_)(Program, int, const char* const*) = nullptr;
  int (*cubin_size_)(Program, std::size_t*) = nullptr;
  int (*cubin_)(Program, char*) = nullptr;
  int (*log_size_)(Program, std::size_t*) = nullptr;
  int (*log_)(Program, char*) = nullptr;
  const char* (*error_text_)(int) = nullptr;
};

}  // namespace braid
