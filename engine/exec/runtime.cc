#include "engine/exec/runtime.h"

#include <list>

#include "base/error.h"
#include "engine/device/host_stream.h"
#include "engine/exec/trace.h"

namespace braid {

struct Runtime::Impl {
  explicit Impl(const RuntimeOptions& options)
      : pool(options.intra_op_threads),
        device(options.device),
        device_graphs(options.device_graphs),
        device_check(options.device_check),
        variables(device.get()) {
    if (options.whole_trace)
      trace = std::make_unique<Trace>(*options.whole_trace, options.trace_prefix);
    else if (options.trace)
      trace = std::make_unique<Trace>();
  }

  ThreadPool pool;
  Services services;
  const std::shared_ptr<Accelerator> device;
  const bool device_graphs, device_check;
  VariableStore variables;
  InputClock input;
  BusyUnion compute_busy;
  std::unique_ptr<Trace> trace;
  std::mutex issue_mu;
  mutable std::mutex mu;
  std::list<DeviceWorkCounter> device_streams;  // guarded by mu; elements never move
  std::list<HostStream> streams;                // guarded by mu; elements never move. Last: joins first
};

Runtime::Runtime(RuntimeOptions options) {
  if (options.intra_op_threads < 1)
    throw InvalidArgument("intra-op threads must be at least 1, got " +
                          std::to_string(options.intra_op_threads));
  impl_ = std::make_unique<Impl>(options);
}

Runtime::~Runtime() = default;

ThreadPool& Runtime::pool() { return impl_->pool; }
Services& Runtime::services() { return impl_->services; }
VariableStore& Runtime::variables() { return impl_->variables; }
Accelerator* Runtime::device() { return impl_->device.get(); }
bool Runtime::device_graphs() const { return impl_->device_graphs; }
bool Runtime::device_check() const { return impl_->device_check; }
Trace* Runtime::trace() { return impl_->trace.get(); }
std::mutex& Runtime::issue_mutex() { return impl_->issue_mu; }

HostStream& Runtime::stream(const std::string& name, const std::string& cause) {
  std::lock_guard lock(impl_->mu);
  for (HostStream& stream : impl_->streams)
    if (stream.name() == name) return stream;
  if (impl_->trace) impl_->trace->track(name);
  return impl_->streams.emplace_back(name, cause, &impl_->input,
                                     cause == "compute" ? &impl_->compute_busy : nullptr);
}

Runtime::DeviceWorkCounter& Runtime::device_work(const std::string& stream) {
  std::lock_guard lock(impl_->mu);
  for (DeviceWorkCounter& counter : impl_->device_streams)
    if (counter.name() == stream) return counter;
  return impl_->device_streams.emplace_back(stream);
}

double HostActivity::overlap_factor() const {
  double sum = 0;
  for (const StreamStats& s : streams)
    if (s.cause == "compute") sum += s.busy_seconds;
  return compute_seconds > 0 ? sum / compute_seconds : 1;
}

HostActivity Runtime::activity() const {
  std::lock_guard lock(impl_->mu);
  const auto now = MeterTime::clock::now();
  HostActivity all;
  // Before the streams, whose meters go on meanwhile: what is not in a stream's time is then not in this
  // either.
  all.compute_seconds = std::chrono::duration<double>(impl_->compute_busy.total(now)).count();
  for (const HostStream& stream : impl_->streams) {
    const MeterReading reading = stream.meter().read(now);
    all.streams.push_back({stream.name(), stream.cause(), std::chrono::duration<double>(reading.busy).count(),
                           reading.wait_seconds(), reading.launches, reading.bytes, reading.waits});
  }
  for (const DeviceWorkCounter& counter : impl_->device_streams) all.device_streams.push_back(counter.read());
  return all;
}

Runtime::InputWait::InputWait(Runtime& runtime) : runtime_(runtime) {
  runtime_.impl_->input.begin(MeterTime::clock::now());
}

Runtime::InputWait::~InputWait() { runtime_.impl_->input.end(MeterTime::clock::now()); }

}  // namespace braid
