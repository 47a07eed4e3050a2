#include "comm/ring/hello.h"

#include <fmt/core.h>

namespace braid::comm {

std::string Hello::objection(const Hello& mine, int from) const {
  if (magic != kMagic) return fmt::format("not a rank: magic {:#010x}", magic);
  if (version != kVersion) return fmt::format("it speaks version {}, not {}", version, kVersion);
  if (group != mine.group) return "it belongs to another communicator";
  if (size != mine.size) return fmt::format("it knows {} ranks, not {}", size, mine.size);
  if (rank != from || rank < 0 || rank >= size || rank == mine.rank || channel > 1)
    return fmt::format("it calls itself rank {}", rank);
  return {};
}

}  // namespace braid::comm
