// What all programs of a process share: the intra-op pool, the services that kernels ask for, the host
// streams by name, and the variables' memory. Thread rule: built by one thread; streams and variables may be
// looked up from any thread afterwards.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/device/accelerator.h"
#include "engine/ir/op.h"
#include "engine/ir/tensor.h"
#include "engine/program/options.h"

namespace braid {

/// The memory of variables and optimizer slots, by logical name, on the host or on the device. Addresses
/// never change once made.
class VariableStore {
 public:
  /// `device` holds the variables of its programs; null: there is none.
  explicit VariableStore(Accelerator* device = nullptr) : device_(device) {}

  /// The existing variable of that name, or new zeroed memory. Throws: InvalidArgument when it exists with
  /// another type or shape, or on the other side; OutOfMemory. `pinned`: new memory of the host that the
  /// device copies from and to.
  Tensor& get_or_create(const std::string& name, DType dtype, const Shape& shape,
                        Domain domain = Domain::Host, bool pinned = false);
  /// A slab of variables: memory of which each of `members` is a part, the i-th at position i of the first
  /// axis. The slab itself is not among names(). Throws: as get_or_create; InvalidArgument when a member has
  /// memory of its own already.
  Tensor& get_or_create_slab(const std::string& name, DType dtype, const Shape& shape,
                             const std::vector<std::string>& members, Domain domain);
  /// Whether get_or_create_slab() is granted: no member exists, or all of them do as parts of that slab.
  bool has_room_for_slab(const std::string& name, const std::vector<std::string>& members) const;
  bool contains(const std::string& name) const;
  /// Where its memory is. REQUIRES: contains(name).
  Domain domain(const std::string& name) const;
  /// A variable on the host; null when there is none of that name. Throws: Internal for one on the device.
  Tensor* find(const std::string& name);
  const Tensor* find(const std::string& name) const;
  /// The value, wherever it is: of a variable on the host its own memory, else a copy. Nothing when there is
  /// none. REQUIRES: no step is running.
  std::optional<Tensor> read(const std::string& name) const;
  /// Sets the value. REQUIRES: the variable exists, types and shapes are equal, and no step is running.
  void write(const std::string& name, const Tensor& value);
  std::vector<std::string> names() const;  // sorted
  /// Forgets all of them, so that others may be of other shapes. REQUIRES: no program has them.
  void clear();

  /// A step failed after its first write of a variable: the values are a mix, so nothing may be trained on or
  /// saved until a restore clears it.
  void poison(std::string why);
  void clear_poison();
  /// Throws Internal with the reason when poisoned.
  void check_not_poisoned() const;

 private:
  struct Variable {
    Tensor memory;
    bool is_slab = false;
  };
  Tensor& get_or_create_locked(const std::string& name, DType dtype, const Shape& shape, Domain domain,
                               bool pinned);
  const Variable* entry(const std::string& name) const;

  Accelerator* const device_;
  mutable std::mutex mu_;
  std::map<std::string, Variable> variables_;  // guarded by mu_; nodes of the map are stable
  std::string poisoned_;                       // guarded by mu_
};

/// The tensor itself where it is on the host, else a copy, complete when it returns. REQUIRES: `device` has
/// the memory. Throws: DeadlineExceeded when the device does not answer.
Tensor on_host(const Tensor& tensor, Accelerator* device);

class HostStream;  // engine/device/host_stream.h

/// Busy and waiting time of one stream since its start, for metrics, tables and /streams.
struct StreamStats {
  std::string name;   // "compute0", "pull", "push", "comm", "stage0"
  std::string cause;  // under which others wait for it: "compute", "pull"
  double busy_seconds = 0;
  std::map<std::string, double> wait_seconds;  // by cause: "compute", "pull", "push", "comm", "input", "idle"
  std::uint64_t launches = 0;
  std::uint64_t bytes = 0;  // that its nodes read and wrote, as the cost model counts them
  std::uint64_t waits = 0;  // waits that really had to wait
};

/// What has been put on a device's stream so far: nodes and copies, and bytes as for the host's.
struct DeviceStreamWork {
  std::string name;  // "compute0", "h2d"
  std::uint64_t launches = 0, bytes = 0;
};

/// One reading of all streams of the host.
struct HostActivity {
  double compute_seconds = 0;        // in which any stream with the cause "compute" was busy
  std::vector<StreamStats> streams;  // every stream that exists, idle ones too, in the order of their making
  std::vector<DeviceStreamWork> device_streams = {};  // the same of the device's

  /// Sum of the compute streams' busy time over that of all of them together; 1: one after another.
  double overlap_factor() const;
};

class Trace;  // engine/exec/trace.h

struct RuntimeOptions {
  int intra_op_threads = 1;
  bool trace = false;
  /// In place of a trace of its own: the process's, which outlives the runtime, where this one's tracks begin
  /// with `trace_prefix`.
  Trace* whole_trace = nullptr;
  std::string trace_prefix = {};
  /// For programs of the device; null: only programs of the host can run.
  std::shared_ptr<Accelerator> device = nullptr;
  /// Whether a device's segments are captured and replayed as graphs; else they are launched op by op.
  bool device_graphs = true;
  /// Waits for the device behind each op, so that a failing kernel is named. Slow; without graphs.
  bool device_check = false;
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options);
  ~Runtime();

  ThreadPool& pool();
  Services& services();
  VariableStore& variables();
  /// Null when there is none.
  Accelerator* device();
  bool device_graphs() const;
  bool device_check() const;
  /// The stream of that name, started at first use. `cause` is the name under which others wait for its work
  /// ("compute", "pull").
  HostStream& stream(const std::string& name, const std::string& cause);
  /// Counts work on the device's stream of that name. The reference is good as long as the runtime.
  class DeviceWorkCounter {
   public:
    explicit DeviceWorkCounter(std::string name) : name_(std::move(name)) {}
    void add(std::uint64_t launches, std::uint64_t bytes) {
      launches_.fetch_add(launches, std::memory_order_relaxed);
      bytes_.fetch_add(bytes, std::memory_order_relaxed);
    }
    const std::string& name() const { return name_; }
    DeviceStreamWork read() const { return {name_, launches_.load(), bytes_.load()}; }

   private:
    const std::string name_;
    std::atomic<std::uint64_t> launches_{0}, bytes_{0};
  };
  DeviceWorkCounter& device_work(const std::string& stream);
  HostActivity activity() const;
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
