// What ranks whose programs differ must have alike: variables, and collectives in their order.
#pragma once

#include <cstdint>

namespace braid {
class Program;
}

namespace braid::worker {

class Strategy;

/// Of a program whose batch, or part of a table, is another on each rank. Two ranks with different hashes
/// would wait for each other, or read what the other did not send.
std::uint64_t collectives_hash(const Program& program, const Strategy& strategy);

}  // namespace braid::worker
