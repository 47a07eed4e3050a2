// Between the hosts of workers that are each the home of some rows (home_tables.h): a communicator beside the
// one of the job's steps, for the ids that a step will name, which are sent while the step before runs.
// Provided through the runtime's Services. Thread rule: as the communicator.
#pragma once

#include <memory>

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

struct HomeLink {
  std::shared_ptr<comm::Communicator> communicator;
};

}  // namespace braid::worker
