#include "engine/device/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"
#include "base/error.h"

namespace braid {
namespace {

constexpr int kSuccess = 0;

void* open_library() {
  std::vector<std::string> names;
  if (const auto own = env_string("BRAID_NVRTC_LIBRARY")) names.push_back(*own);
  for (const char* name :
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"})
    names.emplace_back(name);
  for (const std::string& name : names)
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  return nullptr;
}

}  // namespace

Nvrtc::Nvrtc() {
  void* const library = open_library();
  if (!library) {
    missing_ = "libnvrtc.so is not there";
    return;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) missing_ = std::string("libnvrtc.so has no ") + name;
  };
  find(version_call_, "nvrtcVersion");
  find(create_, "nvrtcCreateProgram");
  find(destroy_, "nvrtcDestroyProgram");
  find(compile_, "nvrtcCompileProgram");
  find(cubin_size_, "nvrtcGetCUBINSize");
  find(cubin_, "nvrtcGetCUBIN");
  find(log_size_, "nvrtcGetProgramLogSize");
  find(log_, "nvrtcGetProgramLog");
  find(error_text_, "nvrtcGetErrorString");
  if (!missing_.empty()) return;
  int major = 0, minor = 0;
  if (version_call_(&major, &minor) == kSuccess) version_ = fmt::format("{}.{}", major, minor);
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc;
  return nvrtc;
}

void Nvrtc::check(int result, const char* call) const {
  if (result != kSuccess) throw Internal(fmt::format("{}: {}", call, error_text_(result)));
}

std::string Nvrtc::compile(const std::string& source, const std::string& architecture,
                           std::span<const char* const> options) const {
  if (!missing_.empty()) throw Unavailable(missing_);
  Program program = nullptr;
  check(create_(&program, source.c_str(), "region.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  struct Destroyer {
    const Nvrtc& nvrtc;
    Program& program;
    ~Destroyer() { nvrtc.destroy_(&program); }
  } const destroyer{*this, program};
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> all(options.begin(), options.end());
  all.push_back(target.c_str());
  if (const int result = compile_(program, static_cast<int>(all.size()), all.data()); result != kSuccess) {
    std::size_t bytes = 0;
    std::string log;
    if (log_size_(program, &bytes) == kSuccess) {
      log.resize(bytes);
      log_(program, log.data());
    }
    throw Internal(fmt::format("nvrtcCompileProgram: {}: {}", error_text_(result), log.c_str()));
  }
  std::size_t bytes = 0;
  check(cubin_size_(program, &bytes), "nvrtcGetCUBINSize");
  std::string code(bytes, '\0');
  check(cubin_(program, code.data()), "nvrtcGetCUBIN");
  return code;
}

}  // namespace braid
