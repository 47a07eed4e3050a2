// First values of a runtime's variables, made where they are: what a device holds neither comes from the host
// nor goes there. Thread rule: one thread, while no step is running.
#pragma once

#include <string>

#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/ops/state/initial_rows.h"

namespace braid {

/// Fills a float32 variable, complete when it returns; what it has beyond from.elements() with zeros.
/// REQUIRES: it exists, of that shape, and has no fewer. Throws: DeviceError, DeadlineExceeded.
void fill_variable(Runtime& runtime, const std::string& name, const Shape& shape, const InitialRows& from);
/// The same with one number.
void fill_variable(Runtime& runtime, const std::string& name, const Shape& shape, float number);

/// What the variable's node says (engine/ops/state/variable_init.h); nothing where the runtime has no such
/// variable. Throws: InvalidArgument naming the node; as above.
void initialize_variable(Runtime& runtime, const Graph& graph, const VariableInfo& variable,
                         std::uint64_t seed);

}  // namespace braid
