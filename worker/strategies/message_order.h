// Proof that the ranks of a pipeline do not wait for each other in a circle. All that a rank exchanges in a
// step stands on one stream, in one order, and engine/verify has proved of its program that whatever such a
// node waits for comes before it there. So it is enough to play the ranks' lists against each other, with
// sends that end only when they are received: if all come to their ends, no timing makes them stop. Sends
// that end sooner wait less. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {
class Program;
}

namespace braid::worker {

struct CommStep {
  enum class Kind { Send, Recv, Collective };
  Kind kind = Kind::Collective;
  int peer = -1;       // of Send and Recv
  std::string values;  // types and shapes of what travels: "float32[8,16] float32[8]"
  std::string node;
  std::vector<int> members;  // of a Collective: ranks that exchange values with each other; empty: all
  friend bool operator==(const CommStep&, const CommStep&) = default;
};

/// What the program exchanges in a step, in its order. Throws: Internal where that is on several streams.
std::vector<CommStep> comm_steps(const Program& program);

/// By rank. Collectives are met by all ranks, also those in which each exchanges with some alone. Throws:
/// InvalidArgument naming ranks and nodes: a send and a receive that do not fit, a peer that is none, a
/// circle of waits, one that waits for a rank that has ended.
void check_message_order(const std::vector<std::vector<CommStep>>& ranks);

/// For other ranks, a line each, and back. Throws: InvalidArgument for a text of another form.
std::string comm_steps_text(const std::vector<CommStep>& steps);
std::vector<CommStep> parse_comm_steps(std::string_view text);

}  // namespace braid::worker
