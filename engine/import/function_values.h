// Names of values inside of functions of a GraphDef, "argument", "^node", or "node:output:k" (output by its
// name in the op's signature, k-th of a list), and outside of them, "node:output". Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// "node:output:k" -> {"node", "output", "k"}.
std::vector<std::string> value_parts(const std::string& text);

/// The number that a part is; -1 when it is none.
int value_number(std::string_view text);

/// An output of a node as a value outside of functions: "node" or "node:1".
std::string value_of(const std::string& node, int output);

}  // namespace braid
