// From a graph to an immutable Program for one signature of feeds: runs the passes of passes.h in order.
// Strategies have rewritten the graph before (worker/strategies). Deterministic: the same graph and options
// give the same Program.
#pragma once

#include <memory>

#include "engine/program/options.h"

namespace braid {

class Program;

/// Throws: InvalidArgument (unknown feed or fetch, a stream id out of range with the node's name, shapes that
/// do not fit, writes of a variable left unordered, an op without a kernel), Internal (verify found an
/// unordered pair: both nodes are named).
std::shared_ptr<const Program> compile(const Graph& graph, const CompileRequest& request,
                                       const CompileOptions& options);

}  // namespace braid
