// GraphDefs that TensorFlow would not write: an op of the registry, or a few, on constants and placeholders
// of types, ranks and values that need not fit, with attributes of any value and type. Thread rule: pure
// function.
#pragma once

#include "proto/graph.pb.h"
#include "tests/fuzz/choices.h"

namespace braid::fuzz {

GraphDef make_graph_case(Choices& choices);

}  // namespace braid::fuzz
