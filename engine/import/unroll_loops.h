// Loops of TensorFlow 2 (While, StatelessWhile) whose number of turns follows from the graph, as recurrent
// layers over sequences of known length: their bodies one after another. What loops keep in tensor lists
// becomes the tensors themselves. Thread rule: pure, but for what it is given.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/tensor.h"
#include "proto/graph.pb.h"

namespace braid {

/// The value where it is known without feeds: constants, and what folds from them and from static shapes.
/// `resolved` gives the present name of an input.
std::optional<Tensor> value_without_feeds(const GraphDef& graph, const std::string& value,
                                          const std::function<std::string(std::string)>& resolved);

struct LoopParts {
  NodeDef test, body;              // calls of the two functions; inputs and names are put in
  std::vector<std::string> first;  // what the loop's variables begin with
};

/// Adds the calls of the turns by `expand`, which adds nodes at the end of `graph`, and gives what the
/// variables are behind the last turn. Throws: InvalidArgument when the number of turns is not known, or
/// above 1024, or there would be more than 2^18 nodes.
std::vector<std::string> unroll_loop(const LoopParts& loop, const std::string& name, GraphDef& graph,
                                     const std::function<void(const NodeDef&)>& expand,
                                     const std::function<std::string(std::string)>& resolved);

/// TensorListFromTensor, Reserve, GetItem, SetItem, Stack, Length and Identities of lists become nodes of
/// tensors, where the places that are read and written are known. What stays is for the importer to refuse.
/// REQUIRES: functions are inlined.
void lower_tensor_lists(GraphDef& graph);

}  // namespace braid
