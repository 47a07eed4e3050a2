// braid.ToOwners and braid.FromOwners (owner_ops.h) in two parts, for devices
// (engine/ops/common/two_parts.h):
//   braid.SendToOwners, braid.SendFromOwners(inputs of the whole...) -> message [bytes] u8: on the comm lane
//   braid.TakeAtOwners, braid.TakeFromOwners(inputs..., message) -> outputs of the whole
// Between GPUs that write each other's memory the message is not used; else it holds what came.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

/// REQUIRES: register_owner_ops() was called.
void register_owner_parts(OpRegistry& registry);

}  // namespace braid::worker
