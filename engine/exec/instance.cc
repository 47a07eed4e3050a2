#include "engine/exec/instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/device_runner.h"
#include "engine/exec/stream_runner.h"
#include "engine/program/program.h"
#include "engine/rewrite/horizontal_fusion.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How long what has been cancelled may take to end before it is given up.
constexpr milliseconds kGrace{1000};
/// How long the streams get to say what a step waits for when its deadline has passed.
constexpr milliseconds kLastWords{20};
constexpr seconds kDestructorPatience{5};

std::uint64_t next_trace_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1) << 44;
}

std::vector<const StepParams*> params_of(StepBoard& board) {
  std::vector<const StepParams*> all;
  for (int i = 0; i < board.size(); ++i) all.push_back(&board.at(i).params);
  return all;
}

std::vector<const WaitContext*> waits_of(StepBoard& board) {
  std::vector<const WaitContext*> all;
  for (int i = 0; i < board.size(); ++i) all.push_back(&board.at(i).wait);
  return all;
}

std::vector<HostStream*> streams_of(const Program& program, Runtime& runtime, const std::string& prefix) {
  std::vector<HostStream*> all;
  for (const ProgramStream& stream : program.streams)
    all.push_back(stream.domain == Domain::Host ? &runtime.stream(prefix + stream.name, stream.cause)
                                                : nullptr);
  return all;
}

/// Batched nodes are found in the trace by the names of their lanes.
void describe_batches(const Program& program, Trace& trace) {
  for (const ProgramOp& op : program.ops)
    if (op.kind == OpKind::Kernel)
      trace.describe(trace.intern(op.name), lanes_text(program.graph.node(op.node)));
}

}  // namespace

struct Instance::Impl {
  Impl(std::shared_ptr<const Program> p, Runtime& r, const InstanceOptions& options)
      : program(std::move(p)),
        runtime(r),
        board(program->steps_in_flight),
        bound(program, r, params_of(board), waits_of(board), streams_on_device(*program, r, options),
              constants_of(*program, options)),
        context{*program,
                bound,
                board,
                options.stream_prefix,
                streams_of(*program, r, options.stream_prefix),
                std::make_unique<Event[]>(static_cast<std::size_t>(program->events)),
                r.trace(),
                next_trace_id()},
        runners(program->streams.size()) {
    for (std::size_t s = 0; s < runners.size(); ++s) {
      const ProgramStream& stream = program->streams[s];
      if (stream.instructions.empty() || stream.domain == Domain::Device) continue;
      runners[s] = std::make_unique<StreamRunner>(context, static_cast<int>(s));
      ++parts;
      only_stream = static_cast<int>(s);
    }
    active_streams = parts;
    if (program->domain == Domain::Device) {
      device = std::make_unique<DeviceRunner>(context, runtime, options);
      context.device = device.get();
      if (device->waits_for_host()) launcher = &runtime.stream(options.stream_prefix + "launch", "launch");
      ++parts;
    }
    if (context.trace) describe_batches(*program, *context.trace);
    for (const ProgramOp& op : program->ops) parts += op.async;
    may_run_inline = active_streams == 1 && parts == 1 && !device;
  }

  /// A program of the device without one is refused by what is bound to it.
  static std::vector<StreamRef> streams_on_device(const Program& program, Runtime& runtime,
                                                  const InstanceOptions& options) {
    return runtime.device() ? device_streams(program, runtime, options)
                            : std::vector<StreamRef>(program.streams.size(), StreamRef::host());
  }
  static const BoundProgram* constants_of(const Program& program, const InstanceOptions& options) {
    if (!options.constants_of) return nullptr;
    if (&options.constants_of->program() != &program)
      throw Internal("constants can only be those of an instance of the same program");
    return &options.constants_of->impl_->bound;
  }
  void check_request(const StepRequest& request) const;
  void make_room(std::unique_lock<std::mutex>& lock, const WaitContext& wait);
  void issue(StepRequest request, const WaitContext& wait, bool run_inline);
  StepResult collect(std::uint64_t sequence);
  std::optional<StepResult> take(std::unique_lock<std::mutex>& lock, const WaitContext& wait);
  [[noreturn]] void throw_failure(std::uint64_t sequence, const WaitContext& wait);
  bool drain(const WaitContext& wait);
  std::string unfinished(std::uint64_t sequence) const;

  WaitStatus wait_done(std::uint64_t sequence, const WaitContext& wait);

  static void issue_task(void* impl, std::uint64_t sequence) noexcept {
    auto* self = static_cast<Impl*>(impl);
    self->device->issue(sequence);
    self->board.leave();
  }
  static void run_task(void* runner, std::uint64_t sequence) noexcept {
    static_cast<StreamRunner*>(runner)->run(sequence);
  }

  const std::shared_ptr<const Program> program;
  Runtime& runtime;
  StepBoard board;
  BoundProgram bound;
  RunContext context;
  std::vector<std::unique_ptr<StreamRunner>> runners;  // by stream; null for one without instructions
  std::unique_ptr<DeviceRunner> device;                // null for a program of the host
  HostStream* launcher = nullptr;  // the thread that issues to the device, or null: the caller
  int active_streams = 0;          // of the host
  int only_stream = 0;
  int parts = 0;  // of a step: streams and asynchronous ops
  bool may_run_inline = false;

  mutable std::mutex mu;              // held by start() and finish(), but not while they wait for a step
  std::uint64_t next = 0;             // guarded by mu, as what follows: the step that starts next
  std::uint64_t oldest = 0;           // of those that are executing, or done and not collected
  std::deque<StepResult> ready;       // results in front of `oldest`
  std::condition_variable_any taken;  // from `ready`
  bool stuck = false;                 // dropped steps have not ended
};

// ------------------------------------------------------------------------------------------------------ one
// step

void Instance::Impl::check_request(const StepRequest& request) const {
  const auto& feeds = program->feeds;
  if (request.feeds.size() != feeds.size())
    throw InvalidArgument(
        fmt::format("the program takes {} feeds, got {}", feeds.size(), request.feeds.size()));
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& given = request.feeds[i];
    if (given.domain() == Domain::Device && !runtime.device())
      throw InvalidArgument(fmt::format(
          "feed '{}' is in the memory of a device, and the program's runtime has none", feeds[i].name));
    if (given.dtype() == feeds[i].dtype && given.shape() == feeds[i].shape) continue;
    throw InvalidArgument(fmt::format("feed '{}' is {} {}, the program was compiled for {} {}", feeds[i].name,
                                      dtype_name(given.dtype()), given.shape().to_string(),
                                      dtype_name(feeds[i].dtype), feeds[i].shape.to_string()));
  }
  if (request.results && !device)
    throw InvalidArgument("results cannot stay on a device: the program is one of the host");
  if (!program->variables.empty()) runtime.variables().check_not_poisoned();
}

void Instance::Impl::issue(StepRequest request, const WaitContext& wait, bool run_inline) {
  const std::uint64_t sequence = next;
  for (std::size_t feed = 0; feed < request.feeds.size(); ++feed)
    if (request.feeds[feed].domain() == Domain::Device && bound.host_reads(static_cast<int>(feed)))
      request.feeds[feed] = on_host(request.feeds[feed], runtime.device());
  board.begin(sequence, std::move(request), wait, parts);
  StepSlot& slot = board.slot(sequence);
  for (std::size_t feed = 0; feed < slot.feeds.size(); ++feed)
    bound.set_feed(board.index(sequence), static_cast<int>(feed), slot.feeds[feed].raw());
  ++next;
  for (int i = 0; i < active_streams; ++i) board.enter();
  if (active_streams == 0 && !device) {
    slot.done.signal(sequence + 1);
    return;
  }
  if (run_inline) {
    HostStream& stream = *context.streams[static_cast<std::size_t>(only_stream)];
    if (stream.try_run_inline({&run_task, runners[static_cast<std::size_t>(only_stream)].get(), sequence}))
      return;
  }
  std::lock_guard lock(runtime.issue_mutex());
  if (launcher) {
    board.enter();
    launcher->enqueue({&issue_task, this, sequence});
  } else if (device) {
    device->issue(sequence);
  }
  for (std::size_t s = 0; s < runners.size(); ++s)
    if (runners[s]) context.streams[s]->enqueue({&run_task, runners[s].get(), sequence});
}

StepResult Instance::Impl::collect(std::uint64_t sequence) {
  StepSlot& slot = board.slot(sequence);
  StepResult result;
  result.step = slot.params.step;
  const std::int64_t ns =
      slot.last_end.load(std::memory_order_relaxed) - slot.first_issue.load(std::memory_order_relaxed);
  result.seconds = 1e-9 * static_cast<double>(ns);
  for (std::size_t f = 0; f < program->fetches.size(); ++f)
    result.fetches.push_back(
        bound.fetch(board.index(sequence), static_cast<int>(f), slot.feeds, slot.results));
  board.release(sequence);
  return result;
}

// --------------------------------------------------------------------------------------------------- failed
// steps

std::string Instance::Impl::unfinished(std::uint64_t sequence) const {
  std::vector<std::string> names;
  for (const auto& runner : runners)
    if (runner) runner->list_unfinished(sequence, names);
  if (names.empty()) return "no node has been reached";
  std::string text = "not finished: ";
  for (std::size_t i = 0; i < names.size() && i < 16; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 16) text += fmt::format(" and {} more", names.size() - 16);
  return text;
}

/// Waits until the step has ended, on the device too.
WaitStatus Instance::Impl::wait_done(std::uint64_t sequence, const WaitContext& wait) {
  if (device) {
    const WaitStatus status = device->await_step(sequence, wait);
    if (status != WaitStatus::Reached) return status;
  }
  return board.slot(sequence).done.wait_status(sequence + 1, wait);
}

/// Waits until no step is executing.
bool Instance::Impl::drain(const WaitContext& wait) {
  for (std::uint64_t s = oldest; s < next; ++s)
    if (wait_done(s, {wait.deadline, {}}) != WaitStatus::Reached) return false;
  for (std::uint64_t s = oldest; s < next; ++s) board.release(s);
  oldest = next;
  stuck = false;
  board.reset();
  return true;
}

void Instance::Impl::throw_failure(std::uint64_t sequence, const WaitContext& wait) {
  const ErrorPtr error = board.error_of(sequence);
  board.request_stop(sequence);
  // Completions that are under way may take their time, but no longer than the caller has.
  WaitContext patience = WaitContext::with_timeout(kGrace);
  patience.deadline = std::max(patience.deadline, wait.deadline);
  for (std::uint64_t s = sequence; s < next; ++s)
    board.fail(s, make_error(ErrorCode::Cancelled, "an earlier step failed"));
  bool wrote = false;
  const std::uint64_t end = next;
  const bool drained = drain(wait.stopped() ? WaitContext::with_timeout(kGrace) : patience);
  for (std::uint64_t s = sequence; s < end; ++s)
    wrote = wrote || board.slot(s).wrote.load(std::memory_order_relaxed);
  stuck = !drained;
  ready.clear();
  if (wrote) runtime.variables().poison(error->message);
  if (stuck) log_warning("a failed step has not ended: {}", unfinished(oldest));
  throw_error(*error);
}

/// The result of the oldest step; nothing when another thread has collected it in the meantime.
std::optional<StepResult> Instance::Impl::take(std::unique_lock<std::mutex>& lock, const WaitContext& wait) {
  const std::uint64_t sequence = oldest;
  StepSlot& slot = board.slot(sequence);
  lock.unlock();
  const WaitStatus status = wait_done(sequence, wait);
  // The streams see the same deadline and know better what they wait for: let them say it.
  if (status != WaitStatus::Reached) wait_done(sequence, WaitContext::with_timeout(kLastWords));
  lock.lock();
  if (oldest != sequence) return std::nullopt;
  if (!slot.done.reached(sequence + 1)) {
    const bool late = status == WaitStatus::Deadline;
    board.fail(sequence,
               make_error(late ? ErrorCode::DeadlineExceeded : ErrorCode::Cancelled,
                          fmt::format("step {}: {}; {}", slot.params.step,
                                      late ? "deadline exceeded" : "cancelled", unfinished(sequence))));
  }
  if (board.error_of(sequence)) throw_failure(sequence, wait);
  StepResult result = collect(sequence);
  ++oldest;
  return result;
}

void Instance::Impl::make_room(std::unique_lock<std::mutex>& lock, const WaitContext& wait) {
  if (stuck && !drain(wait))
    throw DeadlineExceeded("a step that failed earlier has not ended: " + unfinished(oldest));
  while (next - oldest == static_cast<std::uint64_t>(board.size())) {
    // Another thread may be about to take results; alone, the caller has forgotten to.
    wait_on(taken, lock, wait, "start(): results that have not been taken (call finish())",
            [&] { return ready.size() < static_cast<std::size_t>(board.size()); });
    if (next - oldest < static_cast<std::uint64_t>(board.size())) break;
    if (auto result = take(lock, wait)) ready.push_back(std::move(*result));
  }
}

// --------------------------------------------------------------------------------------------------- the
// interface

Instance::Instance(std::shared_ptr<const Program> program, Runtime& runtime, const InstanceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(program), runtime, options)) {}

Instance::~Instance() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mu);
  if (impl.oldest != impl.next) {
    for (std::uint64_t s = impl.oldest; s < impl.next; ++s)
      impl.board.fail(s, make_error(ErrorCode::Cancelled, "the instance ends"));
    impl.drain(WaitContext::with_timeout(kDestructorPatience));
  }
  const auto patience = std::chrono::steady_clock::now() + kGrace;
  while (!impl.board.empty() && (impl.oldest == impl.next || std::chrono::steady_clock::now() < patience))
    std::this_thread::yield();
  if (impl.board.empty() && (!impl.device || impl.device->idle())) return;
  // A kernel still runs in this memory, so it must stay: leaked, and said.
  log_error("an instance ends while a step runs: {}; its memory stays", impl.unfinished(impl.oldest));
  lock.unlock();
  static_cast<void>(impl_.release());
}

void Instance::start(StepRequest request, const WaitContext& wait) {
  std::unique_lock lock(impl_->mu);
  impl_->check_request(request);
  impl_->make_room(lock, wait);
  impl_->issue(std::move(request), wait, false);
}

StepResult Instance::finish(const WaitContext& wait) {
  std::unique_lock lock(impl_->mu);
  for (;;) {
    if (!impl_->ready.empty()) {
      StepResult result = std::move(impl_->ready.front());
      impl_->ready.pop_front();
      impl_->taken.notify_all();
      return result;
    }
    if (impl_->stuck || impl_->oldest == impl_->next)
      throw InvalidArgument("finish() without a step in flight");
    if (auto result = impl_->take(lock, wait)) return std::move(*result);
  }
}

StepResult Instance::run(StepRequest request, const WaitContext& wait) {
  {
    std::unique_lock lock(impl_->mu);
    impl_->check_request(request);
    impl_->make_room(lock, wait);
    if (impl_->next != impl_->oldest || !impl_->ready.empty())
      throw InvalidArgument("run() while steps are in flight: take their results first");
    impl_->issue(std::move(request), wait, impl_->may_run_inline);
  }
  return finish(wait);
}

int Instance::in_flight() const {
  std::lock_guard lock(impl_->mu);
  if (impl_->stuck) return 0;
  return static_cast<int>(impl_->next - impl_->oldest + impl_->ready.size());
}

std::uint64_t Instance::result_bytes() const { return impl_->device ? impl_->bound.result_bytes() : 0; }

const Program& Instance::program() const { return *impl_->program; }

}  // namespace braid
