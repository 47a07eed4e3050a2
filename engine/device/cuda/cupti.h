// CUPTI's functions, loaded when they are first asked for: a process that measures nothing does not have the
// library in its memory. Thread rule: any thread.
#pragma once

#include <cupti.h>

#include <string>

namespace braid::cuda {

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiGetStreamIdEx) stream_id = nullptr;
  decltype(&cuptiGetGraphNodeId) graph_node_id = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  std::string missing;  // why it cannot be used; empty: it can

  /// The process's, loaded by the first call and kept.
  static const Cupti& get();
  /// Throws: Unavailable with the call and CUPTI's text.
  void check(CUptiResult result, const char* call) const;
};

}  // namespace braid::cuda
