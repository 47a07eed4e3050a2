// Ops of the pipeline strategy, which exchange values with one other rank on the comm stream. Shapes are
// static; a value travels as it is.
//
//   braid.Send  [values...] -> []   to rank `peer`
//   braid.Recv  [] -> [values...]   of types `dtypes` and shapes `shapes`, from rank `peer`
//
// The two ranks have them at the same points of their sequences (message_order.h). Where GPUs write each
// other's memory, a message goes into its `slot` of the group's mailbox (StageMail).
#pragma once

#include <memory>

namespace braid::comm {
class Mailbox;
}
namespace braid {
class OpRegistry;
}

namespace braid::worker {

inline constexpr const char* kSendOp = "braid.Send";
inline constexpr const char* kRecvOp = "braid.Recv";
inline constexpr const char* kPeer = "peer";
inline constexpr const char* kDtypes = "dtypes";
inline constexpr const char* kShapes = "shapes";
inline constexpr const char* kSlot = "slot";

/// A service that the strategy provides, and fills before the first step where there is a mailbox.
struct StageMail {
  std::shared_ptr<comm::Mailbox> mailbox;
};

void register_pipeline_ops(OpRegistry& registry);

}  // namespace braid::worker
