#include "cli/fed_values.h"

#include <charconv>
#include <set>

#include "engine/import/convert.h"
#include "proto/graph.pb.h"

namespace braid::cli {
namespace {

struct ValueName {
  std::string node;
  int output = 0;
};

ValueName parsed(const std::string& text) {
  ValueName name{text, 0};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return name;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, name.output);
  if (error != std::errc() || stop != end) return {text, 0};
  name.node = text.substr(0, colon);
  return name;
}

/// What the graph says that the output is, else the type that is fed.
AttrValue type_of(const NodeDef& node, int output, const Tensor& fed) {
  for (const char* name : {"output_types", "component_types", "Tout"})
    if (const auto at = node.attr().find(name);
        at != node.attr().end() && at->second.list().type_size() > output) {
      AttrValue type;
      type.set_type(static_cast<DataType>(at->second.list().type(output)));
      return type;
    }
  const auto declared = node.attr().find("T");
  const bool is_type = declared != node.attr().end() && declared->second.value_case() == AttrValue::kType;
  return is_type ? declared->second : to_proto(Attr(fed.dtype()));
}

void make_placeholder(NodeDef& node, const AttrValue& dtype, const Shape& shape) {
  node.set_op("Placeholder");
  node.clear_input();
  node.clear_attr();
  (*node.mutable_attr())["dtype"] = dtype;
  (*node.mutable_attr())["shape"] = to_proto(Attr(shape));
}

}  // namespace

std::map<std::string, std::string> put_placeholders(GraphDef& graph, Feeds& feeds) {
  std::map<std::string, NodeDef*> nodes;
  std::set<std::string> has_more;  // nodes whose output 1 or a later one is used or fed
  for (NodeDef& node : *graph.mutable_node()) {
    nodes.emplace(node.name(), &node);
    for (const std::string& input : node.input())
      if (const ValueName value = parsed(input); value.output > 0) has_more.insert(value.node);
  }
  for (const auto& [name, tensor] : feeds)
    if (const ValueName value = parsed(name); value.output > 0) has_more.insert(value.node);

  std::map<std::string, std::string> renamed;
  std::vector<NodeDef> added;
  Feeds result;
  for (auto& [name, tensor] : feeds) {
    const ValueName value = parsed(name);
    const auto at = nodes.find(value.node);
    const bool stays = at == nodes.end() || at->second->op().starts_with("Placeholder");
    if (stays || !has_more.contains(value.node)) {
      if (!stays) make_placeholder(*at->second, type_of(*at->second, 0, tensor), tensor.shape());
      result.emplace(name, std::move(tensor));
      continue;
    }
    NodeDef& placeholder = added.emplace_back();
    std::string own = value.node + "/output_" + std::to_string(value.output);
    while (nodes.contains(own)) own += "_";
    placeholder.set_name(own);
    make_placeholder(placeholder, type_of(*at->second, value.output, tensor), tensor.shape());
    renamed.emplace(name, own);
    if (value.output == 0) renamed.emplace(name + ":0", own);
    result.emplace(own, std::move(tensor));
  }
  feeds = std::move(result);
  for (NodeDef& node : *graph.mutable_node())
    for (std::string& input : *node.mutable_input())
      if (const auto at = renamed.find(input); at != renamed.end()) input = at->second;
  for (NodeDef& node : added) *graph.add_node() = std::move(node);
  return renamed;
}

}  // namespace braid::cli
