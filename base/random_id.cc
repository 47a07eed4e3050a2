#include "base/random_id.h"

#include <random>

namespace braid {

std::uint64_t random_id() {
  std::random_device random;
  std::uint64_t id = 0;
  while (id == 0) id = (std::uint64_t{random()} << 32) | random();
  return id;
}

}  // namespace braid
