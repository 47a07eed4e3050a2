#include "worker/elastic/elastic_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "worker/process/stop_signal.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {

ElasticWorld::ElasticWorld(ElasticOptions options, Peers& peers)
    : options_(std::move(options)), peers_(peers) {
  options_.attendance->on_over(
      [this](std::uint64_t generation, const std::string& why) { lost(generation, why); });
}

ElasticWorld::~ElasticWorld() { options_.attendance->on_over({}); }

void ElasticWorld::lost(std::uint64_t generation, const std::string& why) {
  std::lock_guard lock(mutex_);
  const bool whole_job = generation == 0;
  if (whole_job) generation = current_;
  broken_ = std::max(broken_, generation);
  if (generation != current_) return;
  log_warning("world {} {} {}", generation, whole_job ? "ends with the job:" : "has lost", why);
  waits_.request_stop();
  if (const auto communicator = communicator_.lock()) communicator->abort();
}

comm::World ElasticWorld::enter(const comm::Holding& holding, const WaitContext& wait) {
  peers_.communicator.reset();
  peers_.rendezvous.reset();
  comm::World world;
  try {
    world = options_.attendance->next_world(generation_, holding, wait);
  } catch (const Error& error) {
    over_ = true;
    ended_in_order_ = error.code() == ErrorCode::Cancelled && error.message() == comm::kJobHasEnded;
    throw;
  }
  generation_ = world.generation;
  peers_.rank = world.rank;
  peers_.world = world.size();
  log_info("world {}: rank {} of {} workers: {}", world.generation, world.rank, world.size(),
           fmt::join(world.names, ", "));
  connect(world, wait);
  return world;
}

void ElasticWorld::connect(const comm::World& world, const WaitContext& wait) {
  std::stop_source waits;
  const std::stop_callback stopped(wait.stop, [&] { waits.request_stop(); });
  {
    std::lock_guard lock(mutex_);
    current_ = world.generation;
    waits_ = waits;
    if (broken_ >= current_) waits.request_stop();
  }
  comm::CommunicatorOptions options = options_.communicator;
  if (options.backend == comm::Backend::Ring && world.size() == 1) options.backend = comm::Backend::Local;
  options.ring.rank = world.rank;
  options.ring.size = world.size();
  peers_.rendezvous = options_.meet(world.generation);
  options.rendezvous = peers_.rendezvous.get();
  std::shared_ptr<comm::Communicator> communicator =
      comm::make_communicator(options, WaitContext::with_timeout(options_.form_time, waits.get_token()));
  std::lock_guard lock(mutex_);
  if (broken_ >= current_) throw Unavailable(fmt::format("world {} has lost a worker", world.generation));
  communicator_ = communicator;
  peers_.communicator = std::move(communicator);
}

void ElasticWorld::leave(const std::string& why) {
  over_ = true;
  options_.attendance->on_over({});
  options_.attendance->leave(why);
}

void ElasticWorld::finish() {
  options_.attendance->on_over({});
  options_.attendance->finish();
}

void ElasticWorld::end(ErrorPtr why) {
  over_ = true;
  options_.attendance->on_over({});
  options_.attendance->end(std::move(why));
}

void ElasticWorld::vote_through(StepServices& services) {
  if (leads()) {
    services.wants_next_world = [this] { return options_.attendance->newcomers_wait(); };
    return;
  }
  // The others go on without a worker that is asked to stop.
  services.stops_with_all = false;
  services.wants_next_world = [stop = services.stop] { return stop->requested(); };
}

}  // namespace braid::worker
