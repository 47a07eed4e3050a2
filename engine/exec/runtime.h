// What all programs of a process share: the intra-op pool, the services that kernels ask for, the host
// streams by name, and the variables' memory. Thread rule: built by one thread; streams and variables may be
// looked up from any thread afterwards.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/ir/tensor.h"
#include "engine/ops/op.h"

namespace braid {

/// The memory of variables and optimizer slots, by logical name. Addresses never change once made.
class VariableStore {
 public:
  /// The existing variable of that name, or new zeroed memory. Throws: InvalidArgument when it exists with
  /// another type or shape.
  Tensor& get_or_create(const std::string& name, DType dtype, const Shape& shape);
  /// Null when there is none.
  Tensor* find(const std::string& name);
  const Tensor* find(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted

  /// A step failed after its first write of a variable: the values are a mix, so nothing may be trained on or
  /// saved until a restore clears it.
  void poison(std::string why);
  void clear_poison();
  /// Throws Internal with the reason when poisoned.
  void check_not_poisoned() const;

 private:
  mutable std::mutex mu_;
  std::map<std::string, Tensor> variables_;  // guarded by mu_; nodes of the map are stable
  std::string poisoned_;                     // guarded by mu_
};

class HostStream;  // engine/device/host_stream.h

/// Busy and waiting time of one stream since its start, for metrics, tables and /streams.
struct StreamStats {
  std::string name;  // "compute0", "pull", "push", "comm", "stage0"
  double busy_seconds = 0;
  std::map<std::string, double> wait_seconds;  // by cause: "compute", "pull", "push", "comm", "input", "idle"
  std::uint64_t launches = 0;
  std::uint64_t waits = 0;  // waits that really had to wait
};

class Trace;  // engine/exec/trace.h

struct RuntimeOptions {
  int intra_op_threads = 1;
  bool trace = false;
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options);
  ~Runtime();

  ThreadPool& pool();
  Services& services();
  VariableStore& variables();
  /// The stream of that name, started at first use. `cause` is the name under which others wait for its work
  /// ("compute", "pull").
  HostStream& stream(const std::string& name, const std::string& cause);
  /// Every stream that exists, idle ones too, in the order in which they were made.
  std::vector<StreamStats> stream_stats() const;
  /// Null unless tracing is on.
  Trace* trace();

  /// While one lives, streams without work book their time as waiting for "input" instead of "idle".
  /// REQUIRES: at most one at a time.
  class InputWait {
   public:
    explicit InputWait(Runtime& runtime);
    ~InputWait();
    InputWait(const InputWait&) = delete;
    InputWait& operator=(const InputWait&) = delete;

   private:
    Runtime& runtime_;
  };

  /// Held while a step is put on all its streams: every stream sees the steps of all instances in one order,
  /// so two instances cannot wait for each other in a circle.
  std::mutex& issue_mutex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
