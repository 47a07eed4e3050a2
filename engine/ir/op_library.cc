#include "engine/ir/op_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "engine/ir/op_library_entry.h"

namespace braid {
namespace {

struct Loaded {
  std::string path;
  std::vector<std::string> ops;
};

std::mutex loaded_mutex;

std::vector<Loaded>& loaded() {
  static std::vector<Loaded> libraries;
  return libraries;
}

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw InvalidArgument(fmt::format("op library '{}': {}", path, reason));
}

std::string full_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  if (!real) refuse(path, "there is no such file");
  return real.get();
}

/// Closes a library that is refused; one that is kept is released and never closed, as graphs point at its
/// code.
struct Handle {
  void* library = nullptr;
  ~Handle() {
    if (library) ::dlclose(library);
  }
};

/// A copy of what the library registers, apart from the process's registry, so that a refusal adds nothing.
void register_apart(const std::string& path, void* library, OpRegistry& apart) {
  const auto contract = reinterpret_cast<const char* (*)()>(::dlsym(library, "braid_op_contract"));
  const auto add = reinterpret_cast<void (*)(OpRegistry*)>(::dlsym(library, "braid_register_ops"));
  if (!contract || !add)
    refuse(path, "it is no op library: it needs BRAID_OP_LIBRARY(function) of engine/ir/op_library.h");
  if (std::string_view(contract()) != BRAID_OP_LIBRARY_STAMP)
    refuse(path, fmt::format("it was built for '{}', and this is '{}': build it again against this Braid",
                             contract(), BRAID_OP_LIBRARY_STAMP));
  try {
    add(&apart);
  } catch (const std::exception& error) {
    refuse(path, fmt::format("its ops could not be registered: {}", error.what()));
  }
}

void check_ops(const std::string& path, const OpRegistry& apart, const OpRegistry& registry) {
  if (apart.all().empty()) refuse(path, "it has no ops");
  for (const OpDef* op : apart.all()) {
    if (op->name.starts_with("braid."))
      refuse(path, fmt::format("op '{}': names that begin with 'braid.' are Braid's own", op->name));
    if (registry.find(op->name))
      refuse(path, fmt::format("op '{}' exists already; give it another name", op->name));
    if (const std::string missing = missing_traits(*op); !missing.empty())
      refuse(path, fmt::format("op '{}' does not say its {} (engine/ir/op_traits.h)", op->name, missing));
    const bool is_view = !op->views.empty();
    if (!op->cpu && !op->cuda && !op->fold && !is_view)
      refuse(path, fmt::format("op '{}' has no kernel", op->name));
  }
}

}  // namespace

std::vector<std::string> load_op_library(const std::string& path, OpRegistry& registry) {
  const std::scoped_lock lock(loaded_mutex);
  const std::string file = full_path(path);
  for (const Loaded& each : loaded())
    if (each.path == file) return each.ops;

  Handle handle{::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)};
  if (!handle.library) {
    const char* reason = ::dlerror();
    refuse(path, reason ? reason : "it cannot be loaded");
  }
  Loaded library{file, {}};
  {
    OpRegistry apart;
    register_apart(path, handle.library, apart);
    check_ops(path, apart, registry);
    for (const OpDef* op : apart.all()) {
      registry.add(*op);
      library.ops.push_back(op->name);
    }
  }
  handle.library = nullptr;
  loaded().push_back(library);
  return library.ops;
}

std::vector<std::string> loaded_op_libraries() {
  const std::scoped_lock lock(loaded_mutex);
  std::vector<std::string> paths;
  for (const Loaded& each : loaded()) paths.push_back(each.path);
  return paths;
}

}  // namespace braid
