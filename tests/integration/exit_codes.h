// How processes of braid end, beside 0, 1 and 2 (docs/user/processes.md).
#pragma once

namespace braid::integration {

constexpr int kPeerLost = 138;    // a peer, server or device was lost
constexpr int kTerminated = 143;  // stopped by SIGTERM, after a checkpoint
constexpr int kKilled = 137;      // by SIGKILL, as the parent sees it

}  // namespace braid::integration
