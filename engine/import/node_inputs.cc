#include "engine/import/node_inputs.h"

#include <cstdlib>

namespace braid {

std::pair<std::string, int> split_value(const std::string& value) {
  const std::size_t colon = value.rfind(':');
  if (colon == std::string::npos) return {value, 0};
  return {value.substr(0, colon), std::atoi(value.c_str() + colon + 1)};
}

std::string node_of(const std::string& input) {
  return split_value(input.starts_with('^') ? input.substr(1) : input).first;
}

int output_of(const std::string& input) { return split_value(input).second; }

std::vector<std::string> data_inputs(const NodeDef& node) {
  std::vector<std::string> inputs;
  for (const std::string& input : node.input())
    if (!input.starts_with('^')) inputs.push_back(input);
  return inputs;
}

void replace_data_inputs(NodeDef& node, std::vector<std::string> inputs) {
  for (const std::string& input : node.input())
    if (input.starts_with('^')) inputs.push_back(input);
  node.mutable_input()->Assign(inputs.begin(), inputs.end());
}

void only_wait(NodeDef& node) {
  node.set_op("NoOp");
  node.clear_attr();
  replace_data_inputs(node, {});
}

}  // namespace braid
