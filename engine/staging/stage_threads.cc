// The threads of a stage: taking turns, reading, making, and what an error means.
#include <algorithm>

#include "base/brief_lock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/staging/stage_impl.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool contains(const std::vector<ErrorCode>& codes, ErrorCode code) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

}  // namespace

int Stage::Impl::turn_after(int thread) const {
  const int count = static_cast<int>(alive.size());
  for (int i = 1; i <= count; ++i)
    if (const int next = (thread + i) % count; alive[static_cast<std::size_t>(next)]) return next;
  return thread;
}

std::optional<std::uint64_t> Stage::Impl::begin(int thread) {
  if (!takes_turns) return buffer.begin();
  std::unique_lock lock(mu);
  turn_changed.wait(lock, [&] { return turn == thread || !buffer.running(); });
  const auto ticket = buffer.begin();
  turn = turn_after(thread);
  turn_changed.notify_all();
  return ticket;
}

/// A part of making a batch, on the pool if there is one. The time is booked whatever the end.
void Stage::Impl::work(const StageCall& call, FunctionRef<void()> part) {
  const auto timed = [&] {
    struct Book {
      Impl& stage;
      std::size_t thread;
      Clock::time_point begin = Clock::now();
      ~Book() {
        const double busy = std::chrono::duration<double>(Clock::now() - begin).count();
        const auto lock = brief_lock(stage.mu);
        stage.stats[thread].busy_seconds += busy;
      }
    };
    const Book book{*this, static_cast<std::size_t>(call.thread)};
    part();
  };
  if (pool)
    pool->run(timed, call.stop);
  else
    timed();
}

/// In a catch block: what the error in flight means for the thread.
Stage::Impl::Outcome Stage::Impl::handle_error(int thread, std::uint64_t ticket) {
  ErrorPtr error = capture_current_exception();
  if (buffer.cancelled()) return Outcome::Ended;
  const auto index = static_cast<std::size_t>(thread);
  bool ignore = contains(options.ignored_exception_types, error->code);
  {
    std::lock_guard lock(mu);
    ++stats[index].errors;
    if (ignore) {
      ++ignored[error->code];
      if (++in_a_row[index] > options.max_ignored_in_a_row) {
        ignore = false;
        error = make_error(error->code,
                           "stage '" + options.name + "': " + std::to_string(in_a_row[index]) +
                               " errors in a row, more than may be ignored; the last: " + error->message);
      } else if (in_a_row[index] == 1) {
        log_warning("stage '{}': ignored at ticket {}: {}: {}", options.name, ticket,
                    error_code_name(error->code), error->message);
      }
    }
  }
  if (ignore) {
    buffer.skip(ticket);
    return Outcome::Skipped;
  }
  if (contains(options.closed_exception_types, error->code)) {
    buffer.skip(ticket);
    return Outcome::Ended;
  }
  buffer.fail(ticket, std::move(error));
  wake_turns();
  return Outcome::Ended;
}

/// False: there is no record, and `outcome` says why.
bool Stage::Impl::read(int thread, StageCall& call, Batch& record, Outcome& outcome,
                       Clock::time_point& begun) {
  Source& source = source_of(thread);
  outcome = Outcome::Ended;
  std::unique_lock<std::mutex> reading(source.reading, std::defer_lock);
  if (source.producer.read) reading.lock();
  if (source.ended) return false;
  const auto ticket = begin(thread);
  if (!ticket) return false;
  call.ticket = *ticket;
  try {
    if (source.producer.await) source.producer.await(call);
    begun = Clock::now();
    if (source.producer.read) work(call, [&] { record = source.producer.read(call); });
    outcome = Outcome::Done;
    return true;
  } catch (...) {
    outcome = handle_error(thread, call.ticket);
    source.ended = outcome == Outcome::Ended;
    return false;
  }
}

Stage::Impl::Outcome Stage::Impl::make_one(int thread) {
  StageCall call;
  call.thread = thread;
  {
    const auto lock = brief_lock(mu);
    if (thread >= target_threads) return Outcome::Ended;
    call.stop = stop.get_token();
  }
  Batch record;
  Outcome outcome = Outcome::Done;
  Clock::time_point begin;
  if (!read(thread, call, record, outcome, begin)) return outcome;
  Batch batch;
  try {
    work(call, [&] { batch = source_of(thread).producer.make(call, std::move(record)); });
  } catch (...) {
    outcome = handle_error(thread, call.ticket);
  }
  if (observer) observer(thread, {call.ticket, begin, Clock::now()});
  if (outcome != Outcome::Done) return outcome;

  batch.ticket = call.ticket;
  double waited = 0;
  const StageBuffer::Put put = buffer.put(call.ticket, std::move(batch), waited);
  if (put == StageBuffer::Put::Failed) wake_turns();
  const auto index = static_cast<std::size_t>(thread);
  const auto lock = brief_lock(mu);
  stats[index].wait_seconds += waited;
  stats[index].errors += put == StageBuffer::Put::Failed;
  ++stats[index].batches;
  in_a_row[index] = 0;
  return put == StageBuffer::Put::Failed || put == StageBuffer::Put::Cancelled ? Outcome::Ended
                                                                               : Outcome::Done;
}

milliseconds Stage::Impl::backoff(int thread) const {
  std::lock_guard lock(mu);
  const int doublings = std::min(in_a_row[static_cast<std::size_t>(thread)] - 1, 10);
  return std::min(options.ignored_backoff * (1 << doublings), milliseconds(1000));
}

void Stage::Impl::run(int thread) {
  for (;;) {
    const Outcome outcome = make_one(thread);
    if (outcome == Outcome::Ended) break;
    if (outcome == Outcome::Skipped) buffer.sleep(backoff(thread));
  }
  {
    std::lock_guard lock(mu);
    alive[static_cast<std::size_t>(thread)] = false;
    if (turn == thread) turn = turn_after(thread);
    turn_changed.notify_all();
  }
  buffer.producer_ended();
}

}  // namespace braid
