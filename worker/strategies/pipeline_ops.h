// Ops of the pipeline strategy, which exchange values with one other rank on the comm stream. Shapes are
// static; a value travels as it is.
//
//   braid.Send  [values...] -> []   to rank `peer`
//   braid.Recv  [] -> [values...]   of types `dtypes` and shapes `shapes`, from rank `peer`
//
// The two ranks have them at the same points of their sequences (message_order.h).
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

inline constexpr const char* kSendOp = "braid.Send";
inline constexpr const char* kRecvOp = "braid.Recv";
inline constexpr const char* kPeer = "peer";
inline constexpr const char* kDtypes = "dtypes";
inline constexpr const char* kShapes = "shapes";

void register_pipeline_ops(OpRegistry& registry);

}  // namespace braid::worker
