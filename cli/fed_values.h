// Values that are fed in place of what a graph would compute: a fed node needs nothing, so what computes it
// elsewhere (an iterator over a data set, an unsupported op) need not even be loadable. Thread rule: pure
// function.
#pragma once

#include <map>
#include <string>

#include "engine/ir/tensor.h"

namespace braid {
class GraphDef;
}

namespace braid::cli {

/// By the value's name, "node" or "node:1".
using Feeds = std::map<std::string, Tensor>;

/// Puts placeholders in place of fed values; where other outputs of the node are used beside, under a name of
/// their own, by which `feeds` then has them. Gives the new names of such values.
std::map<std::string, std::string> put_placeholders(GraphDef& graph, Feeds& feeds);

}  // namespace braid::cli
