// Loops of TensorFlow 1 (Enter, Merge, Switch, NextIteration, Exit, LoopCond of one frame) as While with
// functions, which unroll_loops.h unrolls, and TensorArrays (V3) as tensor lists. Frames inside of frames,
// and arrays with other places than 0, 1, 2, ... stay, for the importer to refuse. Thread rule: pure
// function.
#pragma once

#include <optional>

#include "proto/graph.pb.h"

namespace braid {

/// Nothing when the graph has neither.
std::optional<GraphDef> loops_as_functions(const GraphDef& graph);

}  // namespace braid
