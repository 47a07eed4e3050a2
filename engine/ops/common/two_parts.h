// Ops that exchange with peers in two steps: what the peers get is written, and what they have written is
// taken. On a device each step may be a node of its own (engine/rewrite/split_exchanges.cc): what is sent
// next need not wait until everything has come. Thread rule: filled while ops are registered; const from then
// on.
#pragma once

#include <string>
#include <string_view>

#include "engine/ir/op.h"

namespace braid {

/// `send` has the inputs and attributes of the op, and one output, the message: bytes, of which it may leave
/// any undefined. `take` has the op's inputs, the message behind them, and the op's outputs. It is enqueued
/// behind its `send`, on any stream.
struct TwoParts {
  std::string send, take;
};

void set_two_parts(std::string_view op, TwoParts parts);
/// Null: the op is one.
const TwoParts* two_parts(const OpDef& op);

}  // namespace braid
