#include "engine/memory/arena.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "engine/memory/arena_plan.h"

namespace braid {

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

Arena::Arena(std::uint64_t bytes) : bytes_(std::max(align_up(bytes), kArenaAlignment)) {
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kArenaAlignment, bytes_)));
  if (!memory_) throw OutOfMemory("arena: cannot allocate " + std::to_string(bytes_) + " bytes");
}

}  // namespace braid
