#include "engine/exec/device_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/poll.h"
#include "engine/device/activity.h"
#include "engine/exec/instance.h"
#include "engine/exec/stream_runner.h"
#include "engine/program/cost_model.h"

namespace braid {
namespace {

/// Other ranks wait for a collective, so it does not wait for room behind this rank's own kernels.
constexpr int kCommPriority = 5;

template <class Reached>
WaitStatus look(const Reached& reached, const WaitContext& wait) {
  if (poll(reached, wait)) return WaitStatus::Reached;
  return wait.expired() ? WaitStatus::Deadline : WaitStatus::Stopped;
}

std::vector<std::string> names_on_device(const Program& program, const std::string& prefix) {
  std::vector<std::string> names;
  for (const ProgramStream& stream : program.streams) names.push_back(prefix + stream.name);
  return names;
}

/// A number for each op of the device that a stream of the host waits for, into `flag_of`. Returns how many.
int number_flags(const Program& program, std::vector<int>& flag_of) {
  int flags = 0;
  for (const ProgramStream& stream : program.streams) {
    if (stream.domain == Domain::Device) continue;
    for (const Instruction& instruction : stream.instructions) {
      const auto op = static_cast<std::size_t>(instruction.op);
      if (instruction.kind == Instruction::Kind::Run || program.ops[op].domain == Domain::Host) continue;
      if (flag_of[op] < 0) flag_of[op] = flags++;
    }
  }
  return flags;
}

}  // namespace

std::vector<StreamRef> device_streams(const Program& program, Runtime& runtime,
                                      const InstanceOptions& options) {
  std::vector<StreamRef> all;
  for (const ProgramStream& stream : program.streams) {
    if (stream.domain == Domain::Host) {
      all.push_back(StreamRef::host());
      continue;
    }
    const std::size_t index = all.size();  // compute streams come first
    const int usual = stream.lane == Lane::Comm ? kCommPriority : 0;
    all.push_back(
        runtime.device()->stream(options.stream_prefix + stream.name,
                                 index < options.priorities.size() ? options.priorities[index] : usual));
  }
  return all;
}

DeviceRunner::DeviceRunner(RunContext& context, Runtime& runtime, const InstanceOptions& options)
    : context_(context),
      device_(*runtime.device()),
      check_kernels_(runtime.device_check()),
      graphs_(runtime.device_graphs() && !check_kernels_),
      stream_names_(names_on_device(context.program, context.stream_prefix)),
      launch_(stream("launch")),
      h2d_(options.merge_copies ? launch_ : stream("h2d")),
      d2h_(options.merge_copies ? launch_ : stream("d2h")),
      slots_(static_cast<std::size_t>(context.program.steps_in_flight)) {
  make_parts();
  count_work(runtime);
  fork_ = make_event();
  end_ = make_event();
  for (Slot& slot : slots_) {
    slot.inputs = make_event();
    slot.done = make_event();
  }
}

StreamRef DeviceRunner::stream(const std::string& name) const {
  return device_.stream(context_.stream_prefix + name);
}

DeviceEvent* DeviceRunner::make_event() { return events_.emplace_back(device_.make_event()).get(); }

volatile std::uint64_t* DeviceRunner::flag_at(int flag, int slot) const {
  return reinterpret_cast<volatile std::uint64_t*>(flags_.get()) +
         static_cast<std::size_t>(flag) * slots_.size() + static_cast<std::size_t>(slot);
}

void DeviceRunner::make_parts() {
  const Program& program = context_.program;
  const auto op_of = [&](int op) -> const ProgramOp& { return program.ops[static_cast<std::size_t>(op)]; };
  flag_of_.assign(program.ops.size(), -1);
  const int flags = number_flags(program, flag_of_);
  flags_ =
      device_.allocate_pinned(static_cast<std::uint64_t>(std::max(flags, 1)) * slots_.size() * 8, "flags");

  std::vector<DeviceEvent*> event_of(program.ops.size(), nullptr);
  for (const Segment& segment : program.segments) {
    if (segment.domain == Domain::Host) continue;
    Part part;
    part.graphs.resize(slots_.size());
    std::vector<char> inside(program.ops.size(), 0);
    for (const Segment::HeadWait& head : segment.head_waits)
      part.heads.push_back({context_.event_of(head.op), head.op, static_cast<std::uint8_t>(head.previous)});
    waits_for_host_ = waits_for_host_ || !part.heads.empty();
    for (const Segment::Range& range : segment.ranges) {
      const ProgramStream& stream = program.streams[static_cast<std::size_t>(range.stream)];
      part.streams.push_back(context_.bound.stream(range.stream));
      part.tails.push_back(make_event());
      for (int i = range.begin; i < range.end; ++i)
        if (stream.instructions[static_cast<std::size_t>(i)].kind == Instruction::Kind::Run)
          inside[static_cast<std::size_t>(stream.instructions[static_cast<std::size_t>(i)].op)] = 1;
    }
    for (const Segment::Range& range : segment.ranges) {
      const ProgramStream& stream = program.streams[static_cast<std::size_t>(range.stream)];
      Launch launch;
      for (int i = range.begin; i < range.end; ++i) {
        const Instruction& instruction = stream.instructions[static_cast<std::size_t>(i)];
        const auto op = static_cast<std::size_t>(instruction.op);
        if (instruction.kind == Instruction::Kind::Run) {
          launch.op = instruction.op;
          launch.stream = context_.bound.stream(range.stream);
          launch.stream_name = stream_names_[static_cast<std::size_t>(range.stream)].c_str();
          launch.flag = flag_of_[op];
          if (launch.flag >= 0) part.signalled.push_back(instruction.op);
          part.writes_variable = part.writes_variable || op_of(instruction.op).writes_variable;
          part.launches.push_back(std::move(launch));
          launch = {};
        } else if (instruction.kind == Instruction::Kind::Wait && inside[op]) {
          if (!event_of[op]) event_of[op] = make_event();
          launch.waits.push_back(event_of[op]);
        }
      }
    }
    for (Launch& launch : part.launches) launch.done = event_of[static_cast<std::size_t>(launch.op)];
    // The program's ops are in issue order, in which every op comes after those it waits for.
    std::sort(part.launches.begin(), part.launches.end(),
              [](const Launch& a, const Launch& b) { return a.op < b.op; });
    parts_.push_back(std::move(part));
  }
}

void DeviceRunner::count_work(Runtime& runtime) {
  const Program& program = context_.program;
  const auto counter = [&](const std::string& name) {
    return &runtime.device_work(context_.stream_prefix + name);
  };
  for (const ProgramStream& stream : program.streams) {
    if (stream.domain != Domain::Device) continue;
    Work work{counter(stream.name)};
    for (const Instruction& instruction : stream.instructions) {
      if (instruction.kind != Instruction::Kind::Run) continue;
      const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
      ++work.launches;
      work.bytes += static_cast<std::uint64_t>(modelled_cost(program, op).bytes);
    }
    work_.push_back(work);
  }
  const bool merged = h2d_.native == launch_.native;
  work_.push_back({counter(merged ? "launch" : "h2d"), 1, context_.bound.input_bytes()});
  work_.push_back({counter(merged ? "launch" : "d2h"), 1, context_.bound.result_bytes()});
}

// ------------------------------------------------------------------------------------------------- issuing

void DeviceRunner::issue(std::uint64_t sequence) noexcept {
  StepBoard& board = context_.board;
  const int index = board.index(sequence);
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot.launched.store(false, std::memory_order_relaxed);
  slot.has_end = false;
  launching_.store(-1, std::memory_order_relaxed);
  std::int64_t unset = 0;
  board.slot(sequence).first_issue.compare_exchange_strong(
      unset, TraceTime::clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  try {
    if (!board.failed(sequence)) run(sequence);
  } catch (...) {
    device_.abandon_capture(launch_);
    const int op = launching_.load(std::memory_order_relaxed);
    ErrorPtr error = capture_current_exception();
    if (op >= 0) error = context_.at_node(error, op, sequence);
    board.fail(sequence, std::move(error));
    slot.launched.store(false, std::memory_order_release);
    slot.has_end = end_after_failure(slot);
  }
  signal_issued(sequence);
  issued_.signal(sequence + 1);
}

bool DeviceRunner::end_after_failure(Slot& slot) noexcept {
  try {
    for (const Part& part : parts_) join(part);
    if (h2d_.native != launch_.native) {
      slot.inputs->record(h2d_);
      slot.inputs->wait(launch_);
    }
    if (d2h_.native != launch_.native) {
      end_->record(launch_);
      end_->wait(d2h_);
    }
    slot.done->record(d2h_);
    return true;
  } catch (...) {
    log_error("{}: after a failed launch: {}", device_.description(), capture_current_exception()->message);
    return false;
  }
}

void DeviceRunner::signal_issued(std::uint64_t sequence) noexcept {
  for (const Part& part : parts_)
    for (const int op : part.signalled) context_.event_of(op)->signal(sequence + 1);
}

void DeviceRunner::run(std::uint64_t sequence) {
  StepBoard& board = context_.board;
  const int index = board.index(sequence);
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  StepSlot& step = board.slot(sequence);
  for (const MemoryCopy& in : context_.bound.stage_inputs(index, step.params, sequence + 1, step.feeds))
    device_.copy(in.to, in.from, in.bytes, h2d_);
  device_.fill_zero(context_.bound.status_on_device(index), sizeof(StepStatus), h2d_);
  if (h2d_.native != launch_.native) {
    slot.inputs->record(h2d_);
    slot.inputs->wait(launch_);
  }
  slot.launched.store(true, std::memory_order_release);
  for (Part& part : parts_) {
    await_heads(part, sequence);
    if (part.writes_variable) step.wrote.store(true, std::memory_order_relaxed);
    run_part(part, sequence);
    // At once: the host ops that a later segment waits for may wait for ops of this one.
    for (const int op : part.signalled) context_.event_of(op)->signal(sequence + 1);
  }
  if (d2h_.native != launch_.native) {
    end_->record(launch_);
    end_->wait(d2h_);
  }
  for (const MemoryCopy& out : context_.bound.copies_of_outputs(index, step.results))
    if (out.bytes != 0) device_.copy(out.to, out.from, out.bytes, d2h_);
  slot.done->record(d2h_);
  slot.has_end = true;
  ++slot.runs;
  for (const Work& work : work_) work.counter->add(work.launches, work.bytes);
}

void DeviceRunner::await_heads(const Part& part, std::uint64_t sequence) {
  for (const HeadWait& head : part.heads) {
    const WaitStatus status =
        head.event->wait_status(sequence + 1 - head.lag, context_.board.slot(sequence).wait);
    if (status == WaitStatus::Reached && !context_.board.failed(sequence)) continue;
    const std::string what = "waiting for " + context_.place(head.op) + " before a segment of the device";
    if (status == WaitStatus::Deadline) throw DeadlineExceeded("deadline exceeded " + what);
    throw Cancelled("cancelled " + what);
  }
}

void DeviceRunner::run_part(Part& part, std::uint64_t sequence) {
  const int index = context_.board.index(sequence);
  const WaitContext& wait = context_.board.slot(sequence).wait;
  auto& graph = part.graphs[static_cast<std::size_t>(index)];
  // The first run of a slot is launched: libraries load and choose what a capture does not allow.
  const bool first = slots_[static_cast<std::size_t>(index)].runs == 0;
  if (!graph && graphs_ && !first && !capture(part, index, wait)) graphs_ = false;
  if (graph)
    graph->launch(launch_);
  else
    launch_ops(part, index, wait);
}

bool DeviceRunner::capture(Part& part, int slot, const WaitContext& wait) {
  try {
    device_.begin_capture(launch_);
    launch_ops(part, slot, wait);
    part.graphs[static_cast<std::size_t>(slot)] = device_.end_capture(launch_);
    return true;
  } catch (const Error& error) {
    device_.abandon_capture(launch_);
    const int op = launching_.load(std::memory_order_relaxed);
    log_warning("{}: a segment of {} nodes is launched node by node, it cannot be captured: {}{}",
                device_.description(), part.launches.size(), op >= 0 ? context_.place(op) + ": " : "",
                error.message());
    return false;
  }
}

void DeviceRunner::launch_ops(const Part& part, int slot, const WaitContext& wait) {
  fork_->record(launch_);
  for (const StreamRef stream : part.streams) fork_->wait(stream);
  for (const Launch& launch : part.launches) {
    launching_.store(launch.op, std::memory_order_relaxed);
    for (DeviceEvent* event : launch.waits) event->wait(launch.stream);
    const PreparedKernel& kernel = context_.bound.kernel(launch.op);
    const ProgramOp& op = context_.program.ops[static_cast<std::size_t>(launch.op)];
    const DeviceWork named(op.name.c_str(), launch.stream_name);
    if (kernel.run) kernel.run(context_.bound.args(slot, launch.op));
    if (check_kernels_) device_.synchronize(wait);
    if (launch.done) launch.done->record(launch.stream);
    if (launch.flag >= 0)
      device_.copy(const_cast<std::uint64_t*>(flag_at(launch.flag, slot)),
                   context_.bound.number_on_device(slot), sizeof(std::uint64_t), launch.stream);
  }
  launching_.store(-1, std::memory_order_relaxed);
  join(part);
}

void DeviceRunner::join(const Part& part) {
  for (std::size_t s = 0; s < part.streams.size(); ++s) {
    part.tails[s]->record(part.streams[s]);
    part.tails[s]->wait(launch_);
  }
}

// ------------------------------------------------------------------------------------------------- waiting

WaitStatus DeviceRunner::await_step(std::uint64_t sequence, const WaitContext& wait) noexcept {
  if (completed_.load(std::memory_order_acquire) > sequence) return WaitStatus::Reached;
  WaitStatus status = issued_.wait_status(sequence + 1, wait);
  if (status != WaitStatus::Reached) return status;
  Slot& slot = slots_[static_cast<std::size_t>(context_.board.index(sequence))];
  const bool launched = slot.launched.load(std::memory_order_acquire);
  ErrorPtr lost;
  try {
    if (slot.has_end) status = look([&] { return slot.done->reached(); }, wait);
    if (status != WaitStatus::Reached) return status;
  } catch (...) {
    lost = capture_current_exception(fmt::format("step {}", context_.board.slot(sequence).params.step));
  }
  std::lock_guard lock(mu_);
  if (completed_.load(std::memory_order_relaxed) > sequence) return WaitStatus::Reached;
  if (lost)
    context_.board.fail(sequence, lost);
  else if (launched)
    report_status(sequence);
  completed_.store(sequence + 1, std::memory_order_release);
  context_.board.part_done(sequence);
  return WaitStatus::Reached;
}

void DeviceRunner::report_status(std::uint64_t sequence) {
  const StepStatus& status = context_.bound.status(context_.board.index(sequence));
  if (status.code == 0) return;
  std::string message;
  ErrorCode code = ErrorCode::InvalidArgument;
  switch (static_cast<StatusCode>(status.code)) {
    case StatusCode::IndexOutOfRange:
      message = fmt::format("index {} is not in [0, {})", status.value, status.limit);
      break;
    case StatusCode::NotFinite: {  // of a CheckNumerics, which may have been told what it checks
      const Program& program = context_.program;
      const NodeId node = program.ops[static_cast<std::size_t>(status.op)].node;
      const AttrMap& attrs = program.graph.node(node).attrs;
      if (attrs.get("braid_fatal", false)) code = ErrorCode::Internal;
      const std::string what = attrs.get("message", std::string());
      message =
          fmt::format("{}element {} is not a finite number", what.empty() ? "" : what + " : ", status.value);
      break;
    }
    default:
      message = fmt::format("status {} ({}, {})", status.code, status.value, status.limit);
  }
  context_.board.fail(sequence, context_.at_node(make_error(code, message), status.op, sequence));
}

WaitStatus DeviceRunner::await_op(int op, std::uint64_t sequence, const WaitContext& wait) const noexcept {
  const int index = context_.board.index(sequence);
  const volatile std::uint64_t* flag = flag_at(flag_of_[static_cast<std::size_t>(op)], index);
  const auto reached = [&] {
    return *flag >= sequence + 1 ||
           !slots_[static_cast<std::size_t>(index)].launched.load(std::memory_order_acquire);
  };
  const WaitStatus status = look(reached, wait);
  std::atomic_thread_fence(std::memory_order_acquire);
  return status;
}

bool DeviceRunner::idle() const { return completed_.load(std::memory_order_acquire) >= issued_.value(); }

}  // namespace braid
