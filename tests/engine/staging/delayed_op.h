// test.Delayed: hands its input on after a random delay, in the kernels of a stage or of the step.
#pragma once

namespace braid::testing {

/// Registers the op, once.
void register_delayed_op();

}  // namespace braid::testing
