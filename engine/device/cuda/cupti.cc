#include "engine/device/cuda/cupti.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace braid::cuda {
namespace {

/// Where the toolkit of this build has it, then where the loader looks.
void* open_library() {
  for (const char* name : {BRAID_CUPTI_LIBRARY, "libcupti.so." BRAID_CUPTI_MAJOR, "libcupti.so"})
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  return nullptr;
}

Cupti load() {
  Cupti api;
  void* const library = open_library();
  if (!library) {
    api.missing = fmt::format("libcupti.so.{} is not there", BRAID_CUPTI_MAJOR);
    return api;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) api.missing = std::string("CUPTI has no ") + name;
  };
  find(api.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(api.enable, "cuptiActivityEnable");
  find(api.disable, "cuptiActivityDisable");
  find(api.flush_all, "cuptiActivityFlushAll");
  find(api.next_record, "cuptiActivityGetNextRecord");
  find(api.dropped_records, "cuptiActivityGetNumDroppedRecords");
  find(api.timestamp, "cuptiGetTimestamp");
  find(api.stream_id, "cuptiGetStreamIdEx");
  find(api.graph_node_id, "cuptiGetGraphNodeId");
  find(api.subscribe, "cuptiSubscribe");
  find(api.unsubscribe, "cuptiUnsubscribe");
  find(api.enable_callback, "cuptiEnableCallback");
  find(api.result_string, "cuptiGetResultString");
  return api;
}

}  // namespace

const Cupti& Cupti::get() {
  static const Cupti api = load();
  return api;
}

void Cupti::check(CUptiResult result, const char* call) const {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  result_string(result, &text);
  throw Unavailable(fmt::format("{}: {}", call, text ? text : "unknown error"));
}

}  // namespace braid::cuda
