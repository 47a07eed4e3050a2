#include "engine/staging/stage.h"

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/staging/stage_impl.h"

namespace braid {
namespace {

int most_threads(const StageOptions& options, const StageSession& session) {
  if (options.use_stage_subgraph_thread_pool)
    return session.pools->at(options.stage_subgraph_thread_pool_id).options().inter_op_threads_num;
  return std::max(2, usable_cores());
}

StageOptions checked(StageOptions options, const StageSession& session, std::size_t producers) {
  check_stage_options(options, session);
  if (producers == 0) throw InvalidArgument("stage '" + options.name + "': it has no producer");
  if (producers == 1) return options;
  if (options.num_threads != 1 && options.num_threads != static_cast<int>(producers))
    throw InvalidArgument("stage '" + options.name + "': " + std::to_string(producers) +
                          " producers have a thread each, but num_threads is " +
                          std::to_string(options.num_threads));
  options.num_threads = static_cast<int>(producers);
  return options;
}

std::vector<StageProducer> only(StageProducer producer) {
  std::vector<StageProducer> producers;
  producers.push_back(std::move(producer));
  return producers;
}

}  // namespace

Stage::Impl::Impl(StageOptions o, std::vector<StageProducer> producers, const StageSession& s, Observer obs)
    : options(checked(std::move(o), s, producers.size())),
      session(s),
      observer(std::move(obs)),
      joined(producers.size() > 1),
      takes_turns(joined && options.ordered),
      buffer(options, std::max(options.capacity, 1)),
      tuner({std::max(options.capacity, 1), std::max(options.num_threads, 1)},
            options.capacity == StageOptions::kAuto, options.num_threads == StageOptions::kAuto,
            {.max_threads = most_threads(options, s)}) {
  for (StageProducer& producer : producers) {
    sources.push_back(std::make_unique<Source>());
    sources.back()->producer = std::move(producer);
  }
  if (options.use_stage_subgraph_thread_pool)
    pool = &session.pools->at(options.stage_subgraph_thread_pool_id);
}

// ------------------------------------------------------------------------------------------------ life

void Stage::Impl::wake_turns() {
  std::lock_guard lock(mu);  // whoever has looked and not yet slept has it
  turn_changed.notify_all();
}

void Stage::Impl::cancel() {
  std::stop_source source;
  {
    std::lock_guard lock(mu);
    source = stop;
  }
  buffer.cancel();
  source.request_stop();
  wake_turns();
}

void Stage::Impl::open(std::uint64_t first_ticket, bool again) {
  if (buffer.running()) throw InvalidArgument("stage '" + options.name + "' is running already");
  cancel();
  std::lock_guard threads_lock(threads_mu);
  threads.clear();  // joins
  StageSizes sizes;
  {
    std::lock_guard lock(tune_mu);
    sizes = tuner.sizes();
    tuned_takes = 0;
    window_takes = 0;
    window_wait_seconds = 0;
    tuning = !tuner.done() &&
             (options.capacity == StageOptions::kAuto || options.num_threads == StageOptions::kAuto);
  }
  {
    std::lock_guard lock(mu);
    stop = {};
    stats.clear();
    ignored.clear();
    in_a_row.clear();
    alive.clear();
    turn = 0;
  }
  for (auto& source : sources) {
    std::lock_guard lock(source->reading);
    source->ended = false;
  }
  std::vector<std::uint64_t> left_out;
  if (again) left_out = buffer.left_out();
  buffer.open(again ? buffer.next_untaken() : first_ticket, sizes.threads, std::move(left_out));
  spawn(sizes.threads);
}

/// REQUIRES: threads_mu is held.
void Stage::Impl::spawn(int count) {
  const int before = static_cast<int>(threads.size());
  {
    std::lock_guard lock(mu);
    target_threads = count;
    const auto size = static_cast<std::size_t>(std::max(count, before));
    stats.resize(size);
    in_a_row.resize(size);
    alive.resize(size, true);
  }
  for (int i = before; i < count; ++i) threads.emplace_back([this, i] { run(i); });
}

/// While it runs. One thread is never taken away.
void Stage::Impl::change_threads(int count) {
  std::lock_guard threads_lock(threads_mu);
  if (!buffer.running()) return;
  for (int i = static_cast<int>(threads.size()); i < count; ++i) buffer.producer_added();
  spawn(count);
}

// -------------------------------------------------------------------------------------------- interface

Stage::Stage(StageOptions options, Producer producer, Observer observer)
    : Stage(std::move(options),
            StageProducer{{},
                          [producer = std::move(producer)](const StageCall& call, Batch) {
                            return producer(call.ticket);
                          }},
            {}, std::move(observer)) {}

Stage::Stage(StageOptions options, StageProducer producer, const StageSession& session, Observer observer)
    : Stage(std::move(options), only(std::move(producer)), session, std::move(observer)) {}

Stage::Stage(StageOptions options, std::vector<StageProducer> producers, const StageSession& session,
             Observer observer)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(producers), session, std::move(observer))) {}

Stage::~Stage() { stop(); }

void Stage::start(std::uint64_t first_ticket) { impl_->open(first_ticket, false); }

void Stage::resume() { impl_->open(0, true); }

Batch Stage::take(const WaitContext& wait) {
  StageBuffer::Taken taken = impl_->buffer.take(wait);
  if (impl_->tuning.load(std::memory_order_relaxed)) impl_->tune(taken.waited_seconds);
  return std::move(taken.batch);
}

void Stage::close() {
  impl_->buffer.close();
  impl_->wake_turns();
}

void Stage::cancel() { impl_->cancel(); }

void Stage::stop() {
  impl_->cancel();
  std::lock_guard lock(impl_->threads_mu);
  impl_->threads.clear();  // joins
}

bool Stage::running() const { return impl_->buffer.running(); }

Stage::Pause::Pause(Stage& stage) : stage_(stage) { stage_.impl_->buffer.pause(); }
Stage::Pause::~Pause() { stage_.impl_->buffer.resume(); }

StageStats Stage::stats() const {
  StageStats result;
  {
    std::lock_guard lock(impl_->tune_mu);
    result.capacity = impl_->tuner.sizes().capacity;
    result.num_threads = impl_->tuner.sizes().threads;
  }
  const StageBufferStats buffer = impl_->buffer.stats();
  result.take_wait_seconds = buffer.take_wait_seconds;
  result.taken = buffer.taken;
  result.ready = buffer.ready;
  result.most_ready = buffer.most_ready;
  result.occupancy = buffer.open_seconds > 0 ? buffer.ready_seconds / buffer.open_seconds : 0;
  result.late_takes = buffer.late_takes;
  result.dropped = buffer.dropped;
  std::lock_guard lock(impl_->mu);
  result.threads = impl_->stats;
  result.ignored = impl_->ignored;
  return result;
}

const StageOptions& Stage::options() const { return impl_->options; }

std::string Stage::tuning_report() const {
  std::lock_guard lock(impl_->tune_mu);
  return impl_->report;
}

}  // namespace braid
