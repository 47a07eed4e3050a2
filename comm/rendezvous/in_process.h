// The rendezvous of ranks that are threads of one process. Rank 0's host uses it too, beside the clients of
// its server.
#pragma once

#include <memory>

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/store.h"

namespace braid::comm {

std::unique_ptr<Rendezvous> make_in_process_rendezvous(std::shared_ptr<RendezvousStore> store,
                                                       RendezvousScope scope);

}  // namespace braid::comm
