// Gathers that a device does not join to one, as what is looked up first is sent first. Thread rule: none
// needed.
#pragma once

namespace braid {

/// Attribute of a gather, 0 where it has none: those of one number are joined
/// (engine/rewrite/group_gathers.cc), and run behind those of the number before.
inline constexpr const char* kGatherTurn = "_turn";

}  // namespace braid
