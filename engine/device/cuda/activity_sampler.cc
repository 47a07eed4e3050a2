// The sampler over CUPTI's activity records. A record names its stream, or, when a graph's replay made it,
// its graph node; nodes are told apart by when they were captured: at that moment the label says for which
// node of ours and which stream. Instantiating a graph clones its nodes, and the labels with them.
#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "engine/device/accelerator.h"
#include "engine/device/activity.h"
#include "engine/device/cuda/cupti.h"
#include "engine/device/cuda/labels.h"

namespace braid {
namespace cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kBufferAlign = 8;
constexpr std::size_t kMostRecords = std::size_t{1} << 20;  // of a window
constexpr const char* kOtherStream = "other";               // of libraries, and of copies outside of steps
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
constexpr CUpti_CallbackId kGraphCallbacks[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                                CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                                                CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING};

enum class Work { Kernel, CopyToDevice, Other };

struct Record {
  ActivityInterval interval;
  Work work = Work::Other;
  std::uint64_t bytes = 0;  // of a copy
  std::uint32_t stream = 0;
  std::uint64_t node = 0;      // 0: not of a graph
  const char* name = nullptr;  // CUPTI's or a literal; lives as long as the process
};

const char* copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to host";
    default:
      return "copy";
  }
}

/// The streams on which a runner copies what steps are fed with (engine/exec/device_runner.h).
bool copies_inputs(const std::string& stream) {
  return stream.ends_with("h2d") || stream.ends_with("launch");
}

std::string readable(const char* name) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = demangled ? demangled : name;
  std::free(demangled);
  return text;
}

/// What CUPTI's callbacks write: they come from any thread, and know no object.
struct Collector {
  struct Label {
    std::string node, stream;
  };
  std::mutex mu;
  std::vector<Record> records;  // guarded by mu, as what follows
  std::uint64_t dropped = 0;
  std::optional<std::uint32_t> device;             // whose work is kept, where CUPTI records that of several
  std::unordered_map<std::uint64_t, Label> nodes;  // of captured graphs, by CUPTI's number

  static Collector& get() {
    static auto* const collector = new Collector;  // lives as long as the process, as the callbacks do
    return *collector;
  }
};

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlign, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

template <class Activity>
void keep(Collector& collector, const Activity& activity, const char* name, Work work = Work::Other,
          std::uint64_t bytes = 0) {
  if (activity.start == 0 || (collector.device && activity.deviceId != *collector.device)) return;
  if (collector.records.size() >= kMostRecords) {
    ++collector.dropped;
    return;
  }
  // One that has not ended yet counts up to the end of the window.
  const std::uint64_t end = activity.end == 0 ? UINT64_MAX : activity.end;
  collector.records.push_back(
      {{activity.start, end}, work, bytes, activity.streamId, activity.graphNodeId, name});
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  const Cupti& cupti = Cupti::get();
  Collector& collector = Collector::get();
  {
    std::lock_guard lock(collector.mu);
    for (CUpti_Activity* record = nullptr; cupti.next_record(buffer, valid, &record) == CUPTI_SUCCESS;) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
          record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        keep(collector, kernel, kernel.name, Work::Kernel);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        const bool inwards = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
        keep(collector, copy, copy_name(copy.copyKind), inwards ? Work::CopyToDevice : Work::Other,
             copy.bytes);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        keep(collector, *reinterpret_cast<const CUpti_ActivityMemset4*>(record), "fill");
      }
    }
    std::size_t dropped = 0;
    if (cupti.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) collector.dropped += dropped;
  }
  std::free(buffer);
}

void CUPTIAPI on_graph(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const Cupti& cupti = Cupti::get();
  const auto* graph =
      static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
  std::uint64_t node = 0, original = 0;
  if (!graph || cupti.graph_node_id(graph->node, &node) != CUPTI_SUCCESS) return;
  Collector& collector = Collector::get();
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    const WorkLabel label = current_label();
    if (!label.node) return;
    std::lock_guard lock(collector.mu);
    collector.nodes[node] = {label.node, label.stream ? label.stream : kOtherStream};
  } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
    if (cupti.graph_node_id(graph->originalNode, &original) != CUPTI_SUCCESS) return;
    std::lock_guard lock(collector.mu);
    if (const auto known = collector.nodes.find(original); known != collector.nodes.end()) {
      const Collector::Label label = known->second;
      collector.nodes[node] = label;
    }
  } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING) {
    std::lock_guard lock(collector.mu);
    collector.nodes.erase(node);
  }
}

/// CUPTI has one subscriber a process, which the samplers of its devices share; they take turns.
class Subscription {
 public:
  static std::shared_ptr<Subscription> get() {
    static std::mutex mu;
    static std::weak_ptr<Subscription> held;
    const std::lock_guard lock(mu);
    std::shared_ptr<Subscription> all = held.lock();
    if (!all) held = all = std::make_shared<Subscription>();
    return all;
  }

  Subscription() : cupti_(Cupti::get()) {
    cupti_.check(cupti_.subscribe(&subscriber_, reinterpret_cast<CUpti_CallbackFunc>(&on_graph), nullptr),
                 "cuptiSubscribe");
    try {
      for (const CUpti_CallbackId id : kGraphCallbacks)
        cupti_.check(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id),
                     "cuptiEnableCallback");
      cupti_.check(cupti_.register_callbacks(&give_buffer, &take_buffer), "cuptiActivityRegisterCallbacks");
    } catch (...) {
      cupti_.unsubscribe(subscriber_);
      throw;
    }
  }
  ~Subscription() { cupti_.unsubscribe(subscriber_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  std::mutex window;  // held while records are taken

 private:
  const Cupti& cupti_;
  CUpti_SubscriberHandle subscriber_{};
};

class CuptiSampler final : public ActivitySampler {
 public:
  explicit CuptiSampler(Accelerator& device) : device_(device.options().ordinal), cupti_(Cupti::get()) {
    if (!cupti_.missing.empty()) throw Unavailable(cupti_.missing);
    const DeviceGuard guard(device_);
    subscription_ = Subscription::get();
    const std::lock_guard turn(subscription_->window);
    // The first time takes long: now rather than between steps.
    enable();
    disable();
  }

  DeviceActivity sample(const ActivityWindow& window, const std::stop_token& stop) override {
    BRAID_CUDA_CHECK(cudaSetDevice(device_));  // the thread's from now on: going back would use another one
    const std::lock_guard turn(subscription_->window);
    Collector& collector = Collector::get();
    {
      std::lock_guard lock(collector.mu);
      collector.device.reset();
      if (subscription_.use_count() > 1) collector.device = static_cast<std::uint32_t>(device_);
      collector.records.clear();
      collector.dropped = 0;
    }
    enable();
    std::uint64_t begin = 0, end = 0;
    bool whole = nap(window.settle, stop);
    const auto clock = std::chrono::steady_clock::now();
    cupti_.timestamp(&begin);
    whole = whole && nap(window.length, stop);
    cupti_.timestamp(&end);
    whole = whole && nap(window.settle, stop);
    disable();
    if (!whole) return {};
    return evaluate(begin, end, clock);
  }

 private:
  void enable() {
    for (const CUpti_ActivityKind kind : kKinds) cupti_.check(cupti_.enable(kind), "cuptiActivityEnable");
  }
  void disable() {
    for (const CUpti_ActivityKind kind : kKinds) cupti_.check(cupti_.disable(kind), "cuptiActivityDisable");
    cupti_.check(cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  }

  /// False when stopped.
  bool nap(std::chrono::nanoseconds time, const std::stop_token& stop) {
    std::unique_lock lock(mu_);
    nobody_.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  }

  DeviceActivity evaluate(std::uint64_t begin, std::uint64_t end,
                          std::chrono::steady_clock::time_point clock) {
    DeviceActivity result;
    result.window_seconds = 1e-9 * static_cast<double>(end - begin);
    std::map<std::string, int> index;
    std::map<std::uint32_t, int> by_number;
    std::vector<std::vector<ActivityInterval>> intervals;
    const auto index_of = [&](const std::string& name) {
      const auto [at, is_new] = index.try_emplace(name, static_cast<int>(intervals.size()));
      if (is_new) {
        result.streams.push_back({name, 0, 0});
        intervals.emplace_back();
      }
      return at->second;
    };
    for (const auto& [stream, name] : remembered_streams()) {
      std::uint32_t number = 0;
      const int at = index_of(name);
      if (cupti_.stream_id(nullptr, reinterpret_cast<CUstream>(stream), 0, &number) == CUPTI_SUCCESS)
        by_number[number] = at;
    }

    Collector& collector = Collector::get();
    std::lock_guard lock(collector.mu);
    result.dropped = collector.dropped;
    std::vector<ActivityInterval> all, kernels, inputs;
    for (const Record& record : collector.records) {
      const ActivityInterval inside{std::max(record.interval.begin, begin),
                                    std::min(record.interval.end, end)};
      if (inside.begin >= inside.end) continue;
      const auto label = record.node == 0 ? collector.nodes.end() : collector.nodes.find(record.node);
      const bool labelled = label != collector.nodes.end();
      int at = 0;
      if (labelled) {
        at = index_of(label->second.stream);
      } else {
        const auto known = by_number.find(record.stream);
        at = known != by_number.end() ? known->second : index_of(kOtherStream);
      }
      intervals[static_cast<std::size_t>(at)].push_back(inside);
      all.push_back(inside);
      if (record.work == Work::Kernel) kernels.push_back(inside);
      const bool whole = record.interval.begin >= begin && record.interval.end <= end;
      if (whole && record.work == Work::CopyToDevice &&
          copies_inputs(result.streams[static_cast<std::size_t>(at)].stream)) {
        inputs.push_back(inside);
        ++result.inputs.copies;
        result.inputs.bytes += record.bytes;
      }
      ++result.streams[static_cast<std::size_t>(at)].pieces;
      const auto time = [&](std::uint64_t t) {
        return clock + std::chrono::nanoseconds(static_cast<std::int64_t>(t - begin));
      };
      result.slices.push_back({at, labelled ? label->second.node : readable(record.name ? record.name : "?"),
                               time(inside.begin), time(inside.end)});
    }
    collector.records.clear();
    result.inputs.seconds = 1e-9 * static_cast<double>(covered_ns(inputs, begin, end));
    result.inputs.hidden_seconds =
        1e-9 * static_cast<double>(covered_by_both_ns(inputs, kernels, begin, end));
    for (std::size_t s = 0; s < intervals.size(); ++s)
      result.streams[s].busy_seconds =
          1e-9 * static_cast<double>(covered_ns(std::move(intervals[s]), begin, end));
    result.busy_seconds = 1e-9 * static_cast<double>(covered_ns(std::move(all), begin, end));
    return result;
  }

  const int device_;
  const Cupti& cupti_;
  std::shared_ptr<Subscription> subscription_;
  std::mutex mu_;
  std::condition_variable_any nobody_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<ActivitySampler> make_activity_sampler(Accelerator& device) {
  return std::make_unique<cuda::CuptiSampler>(device);
}

}  // namespace braid
