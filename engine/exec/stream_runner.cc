#include "engine/exec/stream_runner.h"

#include <fmt/format.h>

#include "base/log.h"
#include "engine/program/cost_model.h"

namespace braid {

std::string RunContext::place(int op) const {
  const auto stream = static_cast<std::size_t>(program.ops[static_cast<std::size_t>(op)].stream);
  return program.place(op) + " on stream " + stream_prefix + program.streams[stream].name;
}

ErrorPtr RunContext::at_node(const ErrorPtr& error, int op, std::uint64_t sequence) const {
  std::string_view message = error->message;
  const std::string node = program.place(op) + ": ";
  if (message.starts_with(node)) message.remove_prefix(node.size());
  return make_error(error->code,
                    fmt::format("{}, step {}: {}", place(op), board.slot(sequence).params.step, message));
}

StreamRunner::StreamRunner(RunContext& context, int stream)
    : context_(context),
      stream_(stream),
      host_(*context.streams[static_cast<std::size_t>(stream)]),
      track_(context.trace ? &context.trace->track(host_.name()) : nullptr) {
  const Program& program = context.program;
  for (const Instruction& instruction : program.streams[static_cast<std::size_t>(stream)].instructions) {
    const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
    Step step{};
    step.op = instruction.op;
    step.event = context.event_of(instruction.op);
    if (instruction.kind == Instruction::Kind::Run) {
      step.kind = op.async ? Kind::Issue : Kind::Run;
      step.writes_variable = op.writes_variable;
      step.bytes = static_cast<std::uint64_t>(modelled_cost(program, op).bytes);
      step.kernel = &context.bound.kernel(instruction.op);
      if (op.async) {
        flights_.resize(program.ops.size());
        flights_[static_cast<std::size_t>(instruction.op)] =
            std::make_unique<Flight[]>(static_cast<std::size_t>(program.steps_in_flight));
      }
    } else {
      step.kind = Kind::Wait;
      step.lag = instruction.kind == Instruction::Kind::WaitPrevious;
      step.on_device = op.domain == Domain::Device;
      step.cause = cause_id(program.streams[static_cast<std::size_t>(op.stream)].cause);
    }
    if (context.trace)
      step.label = context.trace->intern(step.kind == Kind::Wait ? "wait " + op.name : op.name);
    steps_.push_back(step);
  }
  at_.store(steps_.size(), std::memory_order_relaxed);
}

void StreamRunner::run(std::uint64_t sequence) noexcept {
  sequence_.store(sequence, std::memory_order_relaxed);
  at_.store(0, std::memory_order_release);
  launches_ = bytes_ = 0;
  std::int64_t unset = 0;
  context_.board.slot(sequence).first_issue.compare_exchange_strong(
      unset, TraceTime::clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  try {
    if (track_ && track_->recording())
      walk<true>(sequence);
    else
      walk<false>(sequence);
  } catch (...) {
    const int op = next_op();
    context_.board.fail(sequence, context_.at_node(capture_current_exception(), op, sequence));
  }
  skip_rest(sequence);
  host_.meter().add_work(launches_, bytes_);
  context_.board.part_done(sequence);
  context_.board.leave();
}

template <bool kTraced>
void StreamRunner::walk(std::uint64_t sequence) {
  StepBoard& board = context_.board;
  const int slot = board.index(sequence);
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    at_.store(at, std::memory_order_relaxed);
    if (board.failed(sequence)) return;
    const Step& step = steps_[at];
    switch (step.kind) {
      case Kind::Wait:
        if (kTraced || step.on_device || !step.event->reached(sequence + 1 - step.lag))
          wait<kTraced>(step, sequence);
        break;
      case Kind::Run: {
        if (step.writes_variable) board.slot(sequence).wrote.store(true, std::memory_order_relaxed);
        TraceTime begin;
        if (kTraced) begin = TraceTime::clock::now();
        if (step.kernel->run) step.kernel->run(context_.bound.args(slot, step.op));
        ++launches_;
        bytes_ += step.bytes;
        if (kTraced)
          track_->add({step.label, begin, TraceTime::clock::now(), board.slot(sequence).params.step,
                       TraceSlice::Kind::Work, step.event ? context_.flow(step.op, sequence) : 0});
        if (step.event) step.event->signal(sequence + 1);
        break;
      }
      case Kind::Issue:
        issue(step, sequence);
        break;
    }
  }
  at_.store(steps_.size(), std::memory_order_relaxed);
}

template <bool kTraced>
void StreamRunner::wait(const Step& step, std::uint64_t sequence) {
  StepSlot& slot = context_.board.slot(sequence);
  const std::uint64_t value = sequence + 1 - step.lag;
  TraceTime begin;
  if (kTraced) begin = TraceTime::clock::now();
  WaitStatus status = host_.await(*step.event, value, slot.wait, step.cause);
  if (status == WaitStatus::Reached && step.on_device && value > 0) {
    host_.meter().wait(step.cause, MeterTime::clock::now());
    status = context_.device->await_op(step.op, value - 1, slot.wait);
    host_.meter().run(MeterTime::clock::now());
  }
  if (kTraced && value > 0)
    track_->add({step.label, begin, TraceTime::clock::now(), slot.params.step, TraceSlice::Kind::Wait,
                 context_.flow(step.op, sequence - step.lag)});
  if (status == WaitStatus::Reached || context_.board.failed(sequence)) return;
  const std::string what = "waiting for " + context_.place(step.op);
  if (status == WaitStatus::Stopped) throw Cancelled("cancelled " + what);
  throw DeadlineExceeded("deadline exceeded " + what);
}

void StreamRunner::issue(const Step& step, std::uint64_t sequence) {
  StepBoard& board = context_.board;
  const int slot = board.index(sequence);
  Flight& flight = flights_[static_cast<std::size_t>(step.op)][static_cast<std::size_t>(slot)];
  flight.runner = this;
  flight.step = &step;
  flight.sequence = sequence;
  flight.begin = TraceTime::clock::now();
  if (step.writes_variable) board.slot(sequence).wrote.store(true, std::memory_order_relaxed);
  ++launches_;
  bytes_ += step.bytes;
  host_.meter().flight_begin(flight.begin);
  board.enter();  // the completion leaves
  flight.pending.store(true, std::memory_order_release);
  ErrorPtr error;
  try {
    const KernelArgs& args = context_.bound.args(slot, step.op);
    if (step.kernel->run_async) {
      Flight* const self = &flight;
      step.kernel->run_async(args, [self](ErrorPtr e) { self->complete(std::move(e)); });
      return;
    }
    step.kernel->run(args);
  } catch (...) {
    error = capture_current_exception();
  }
  flight.complete(std::move(error));
}

void StreamRunner::Flight::complete(ErrorPtr error) noexcept {
  if (!pending.exchange(false, std::memory_order_acq_rel)) {
    log_error("{} completed twice", runner->context_.place(step->op));
    return;
  }
  RunContext& context = runner->context_;
  const std::uint64_t now_sequence = sequence;
  const TraceTime end = TraceTime::clock::now();
  runner->host_.meter().flight_end(end);
  if (runner->track_)
    runner->track_->add({step->label, begin, end, context.board.slot(now_sequence).params.step,
                         TraceSlice::Kind::Async, context.flow(step->op, now_sequence)});
  if (error) context.board.fail(now_sequence, context.at_node(error, step->op, now_sequence));
  step->event->signal(now_sequence + 1);
  context.board.part_done(now_sequence);
  context.board.leave();  // nothing of the instance may be touched from here on
}

void StreamRunner::skip_rest(std::uint64_t sequence) noexcept {
  for (std::size_t at = at_.load(std::memory_order_relaxed); at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    if (step.kind == Kind::Wait) continue;
    if (step.event) step.event->signal(sequence + 1);
    if (step.kind == Kind::Issue) context_.board.part_done(sequence);
  }
  at_.store(steps_.size(), std::memory_order_relaxed);
}

int StreamRunner::next_op() const {
  for (std::size_t at = at_.load(std::memory_order_relaxed); at < steps_.size(); ++at)
    if (steps_[at].kind != Kind::Wait) return steps_[at].op;
  return steps_.back().op;
}

void StreamRunner::list_unfinished(std::uint64_t sequence, std::vector<std::string>& names) const {
  for (const auto& slots : flights_) {
    if (!slots) continue;
    const Flight& flight = slots[static_cast<std::size_t>(context_.board.index(sequence))];
    if (flight.pending.load(std::memory_order_acquire) && flight.sequence == sequence)
      names.push_back(context_.place(flight.step->op));
  }
  const std::size_t at = at_.load(std::memory_order_acquire);
  if (at < steps_.size() && sequence_.load(std::memory_order_relaxed) == sequence &&
      steps_[at].kind == Kind::Run)
    names.push_back(context_.place(steps_[at].op));
}

}  // namespace braid
