// How many threads one pool may be asked for. Thread rule: a constant.
#pragma once

namespace braid {

/// Of an intra-op pool, a stage, a pool of stages: more is a mistake, and may be more than the system has.
inline constexpr int kMostThreads = 1024;

}  // namespace braid
