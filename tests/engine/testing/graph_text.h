// GraphDefs of tests, written as protobuf text.
#pragma once

#include <string>

namespace braid {

class GraphDef;

/// Fails the test where `text` is no GraphDef.
GraphDef parse_graph(const std::string& text);

/// "node { ... }"; `inputs` are separated by spaces, `rest` is what else stands inside.
std::string node(const std::string& name, const std::string& op, const std::string& inputs,
                 const std::string& rest = "");

}  // namespace braid
