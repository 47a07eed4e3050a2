// Inputs of a NodeDef: "node" or "node:1", a value, and behind them "^node", which is only waited for. Thread
// rule: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/graph.pb.h"

namespace braid {

/// "node:1" -> {"node", 1}, and "node" -> {"node", 0}.
std::pair<std::string, int> split_value(const std::string& value);

/// The node that is read or waited for.
std::string node_of(const std::string& input);

/// The number of the output that is read.
int output_of(const std::string& input);

/// The values among the node's inputs.
std::vector<std::string> data_inputs(const NodeDef& node);

/// Gives the node other values; what it waits for stays.
void replace_data_inputs(NodeDef& node, std::vector<std::string> inputs);

/// Makes the node a NoOp that waits for what it waited for.
void only_wait(NodeDef& node);

}  // namespace braid
