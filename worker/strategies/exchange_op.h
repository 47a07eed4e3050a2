// What the ops of strategies have alike: where their kernels find the services of this process, and what an
// op is that exchanges with other processes.
#pragma once

#include <string>

#include "engine/ir/op.h"

namespace braid::worker {

/// Throws: InvalidArgument "[Op] node 'name': this process has no <what>".
template <class Service>
Service& require_service(const PrepareContext& context, const char* what) {
  Service* found = context.services.find<Service>();
  if (!found) context.fail(std::string("this process has no ") + what);
  return *found;
}

/// An op that exchanges with other processes on `lane`: a state that nothing may fold, merge or leave out,
/// and no gradient, since strategies add it behind differentiation. To be filled: traits where it does not
/// move one list of values, how many inputs, infer, cpu.
inline OpDef exchange_op(const char* name, Lane lane) {
  OpDef op;
  op.name = name;
  op.traits = moves().output_list();
  op.max_inputs = -1;
  op.no_gradient_reason = "exchanges values between processes, after differentiation";
  op.side_effect = true;
  op.stateful = true;
  op.lane = lane;
  return op;
}

}  // namespace braid::worker
