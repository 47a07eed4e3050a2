// Which ops have a stream before any policy looks at them, and why. Sources, strongest first:
//
//   colocation     the target's stream; where no target has one, the one that the group's members have
//   rules          the first line of the rules file that matches the node's name (stream_rules.h)
//   scope          the id that was written on the node (StreamScope, attribute _stream_id); before the rules
//                  where StreamOptions::scopes_win
//   forward        backward nodes: their forward node's stream, unless told not to
//   propagation    opt-in: the stream from which most of the op's inputs come; ties go to the lowest number
//
// Under NONE there are none of them. Thread rule: pure function of the plan; adds notes to its program.
#pragma once

#include <vector>

#include "engine/program/plan.h"

namespace braid {

/// By op: the stream that is given, or kNoStream; and the first op of its colocation group (itself without
/// one).
struct StreamPins {
  std::vector<int> stream;
  std::vector<int> leader;
  int hand_set = 0;  // nodes with an id of a scope or a rule
  int scoped = 0;    // of these, with an id of a scope
};

/// `lanes` has the stream of ops that no pin can move, kNoStream for the others. Scopes mean what the plan's
/// options say.
/// Throws: InvalidArgument for an id out of range, and for two ids in one colocation group, naming nodes and
/// sources.
StreamPins find_stream_pins(Plan& plan, const std::vector<int>& lanes);
/// The same as if scopes decided no stream (Scopes::KeptApart), without notes.
StreamPins find_pins_without_scopes(Plan& plan, const std::vector<int>& lanes);

}  // namespace braid
