// Loops of TensorFlow 2 (While, StatelessWhile) whose number of turns follows from the graph, or has a limit
// there, as recurrent layers: their bodies one after another. Thread rule: pure, but for what it is given.
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

/// The first dimension of a value where it is known without feeds.
std::optional<std::int64_t> rows_without_feeds(const GraphDef& graph, const std::string& value,
                                               const std::function<std::string(std::string)>& resolved);

/// An attribute of a TensorListPushBack in a turn that may not be taken: such lists have no known size.
inline constexpr const char* kDataDecides = "_data_decides";

struct LoopParts {
  NodeDef test, body;                // calls of the two functions; inputs and names are put in
  std::vector<std::string> first;    // what the loop's variables begin with
  std::vector<DataType> types = {};  // of the variables
};

/// Adds the calls of the turns by `expand`, which adds nodes at the end of `graph`, and gives what the
/// variables are behind the last turn. Where data decides how many turns there are, and the condition has a
/// limit that is known (maximum_iterations, or the smaller of two numbers, as dynamic_rnn with lengths), all
/// up to the limit are computed, and what those give that are not taken does not count; lists have zeros
/// there. Throws: InvalidArgument when the number of turns has no limit, or is above 1024, or there would be
/// more than 2^18 nodes.
std::vector<std::string> unroll_loop(const LoopParts& loop, const std::string& name, GraphDef& graph,
                                     const std::function<void(const NodeDef&)>& expand,
                                     const std::function<std::string(std::string)>& resolved);

}  // namespace braid
