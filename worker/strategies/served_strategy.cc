#include "worker/strategies/served_strategy.h"

#include "base/error.h"
#include "base/log.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {

std::vector<ShardInfo> ServedStrategy::save_remote(const std::filesystem::path& directory, std::uint64_t,
                                                   const std::string&, const WaitContext& wait) {
  return service().save(directory, wait);
}

void ServedStrategy::meet_at_border(const WaitContext& wait) {
  if (peers_.leader())
    service().release(wait);
  else
    service().serve(services_->peer_deadline);
}

void ServedStrategy::finish_steps(const WaitContext&) {
  if (!peers_.leader()) service().serve(services_->peer_deadline);
}

void ServedStrategy::shut_down(bool terminated, const WaitContext& wait) {
  // All is done and saved: a worker that is gone by now is no reason to fail.
  try {
    if (peers_.leader()) service().release(wait);
  } catch (const Error& error) {
    log_warning("the workers do not end together: {}", error.message());
  }
  CollectiveStrategy::shut_down(terminated, wait);
}

}  // namespace braid::worker
