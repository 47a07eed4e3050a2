#include "worker/model/def_graph.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "engine/import/convert.h"

namespace braid::worker {

ValueName parse_value_name(std::string_view text) {
  ValueName name;
  name.control = text.starts_with('^');
  if (name.control) text.remove_prefix(1);
  name.node = text;
  const std::size_t colon = text.rfind(':');
  if (name.control || colon == std::string_view::npos) return name;
  int output = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, output);
  if (error != std::errc() || stop != end || output < 0) return name;
  name.node = text.substr(0, colon);
  name.output = output;
  return name;
}

NodeIndex::NodeIndex(const GraphDef& graph) : graph_(graph) {
  for (int i = 0; i < graph.node_size(); ++i) by_name_.try_emplace(graph.node(i).name(), i);
}

int NodeIndex::place(std::string_view name) const {
  const auto at = by_name_.find(std::string(name));
  return at == by_name_.end() ? -1 : at->second;
}

const NodeDef* NodeIndex::find(std::string_view name) const {
  const int at = place(name);
  return at < 0 ? nullptr : &graph_.node(at);
}

const NodeDef* NodeIndex::input(const NodeDef& node, int index) const {
  if (index >= node.input_size() || node.input(index).starts_with('^')) return nullptr;
  return find(parse_value_name(node.input(index)).node);
}

std::vector<const NodeDef*> NodeIndex::above(const std::vector<std::string>& roots) const {
  std::vector<char> wanted(static_cast<std::size_t>(graph_.node_size()));
  std::vector<int> open;
  const auto want = [&](std::string_view value) {
    const auto at = by_name_.find(parse_value_name(value).node);
    if (at == by_name_.end() || wanted[static_cast<std::size_t>(at->second)]) return;
    wanted[static_cast<std::size_t>(at->second)] = 1;
    open.push_back(at->second);
  };
  for (const std::string& root : roots) want(root);
  while (!open.empty()) {
    const NodeDef& node = graph_.node(open.back());
    open.pop_back();
    for (const std::string& input : node.input()) want(input);
  }
  std::vector<const NodeDef*> nodes;
  for (int i = 0; i < graph_.node_size(); ++i)
    if (wanted[static_cast<std::size_t>(i)]) nodes.push_back(&graph_.node(i));
  return nodes;
}

std::vector<std::string_view> NodeIndex::names() const {
  std::vector<std::string_view> names;
  for (const NodeDef& node : graph_.node()) names.push_back(node.name());
  return names;
}

namespace {

std::optional<DType> type_in(const NodeDef& node, int output) {
  const auto converted = [](int type) -> std::optional<DType> {
    try {
      return from_proto(static_cast<DataType>(type));
    } catch (const InvalidArgument&) {
      return std::nullopt;
    }
  };
  for (const char* name : {"output_types", "component_types", "Tout"})
    if (const auto at = node.attr().find(name);
        at != node.attr().end() && at->second.list().type_size() > output)
      return converted(at->second.list().type(output));
  for (const char* name : {"dtype", "T", "output_type", "DstT"})
    if (const auto at = node.attr().find(name);
        at != node.attr().end() && at->second.value_case() == AttrValue::kType)
      return converted(at->second.type());
  return std::nullopt;
}

std::optional<Shape> shape_in(const NodeDef& node, int output) {
  const auto shapes = node.attr().find("output_shapes");
  if (shapes != node.attr().end() && shapes->second.list().shape_size() > output)
    return from_proto(shapes->second.list().shape(output));
  const auto shape = node.attr().find("shape");
  if (shape != node.attr().end() && shape->second.has_shape()) return from_proto(shape->second.shape());
  return std::nullopt;
}

}  // namespace

DeclaredValue declared_value(const GraphDef& graph, const NodeDef& node, int output) {
  DeclaredValue value;
  value.dtype = type_in(node, output).value_or(DType::Invalid);
  if (const std::optional<Shape> shape = shape_in(node, output)) value.shape = *shape;
  constexpr int kLastOld = 21;  // such graphs write a placeholder of unknown shape as one of shape []
  const int version = graph.versions().producer();
  if (version > 0 && version <= kLastOld && value.shape == Shape{}) value.shape = Shape::unknown_rank();
  return value;
}

void replace_value(GraphDef& graph, const ValueName& from, const std::string& to) {
  for (NodeDef& node : *graph.mutable_node())
    for (std::string& input : *node.mutable_input()) {
      const ValueName used = parse_value_name(input);
      if (!used.control && used.output == from.output && used.node == from.node) input = to;
    }
}

const NodeDef* variable_of(const NodeIndex& index, const NodeDef& user) {
  const NodeDef* at = index.input(user, 0);
  while (at && (at->op() == "Identity" || at->op() == "RefIdentity")) at = index.input(*at, 0);
  return at && is_variable(*at) ? at : nullptr;
}

bool is_variable(const NodeDef& node) {
  return node.op() == "VarHandleOp" || node.op() == "VariableV2" || node.op() == "Variable";
}

std::string variable_name(const NodeDef& variable) {
  const auto at = variable.attr().find("shared_name");
  return at == variable.attr().end() || at->second.s().empty() ? variable.name() : at->second.s();
}

void rename_node(GraphDef& graph, const std::string& from, const std::string& to) {
  const std::string old_place = "loc:@" + from, new_place = "loc:@" + to;
  for (NodeDef& node : *graph.mutable_node()) {
    if (node.name() == from) {
      if (is_variable(node)) (*node.mutable_attr())["shared_name"].set_s(variable_name(node));
      node.set_name(to);
    }
    if (const auto at = node.mutable_attr()->find("_class"); at != node.mutable_attr()->end())
      for (std::string& place : *at->second.mutable_list()->mutable_s())
        if (place == old_place) place = new_place;
    for (std::string& input : *node.mutable_input()) {
      ValueName used = parse_value_name(input);
      if (used.node != from) continue;
      used.node = to;
      input = (used.control ? "^" : "") + used.text();
    }
  }
}

std::string free_name(const NodeIndex& index, const std::string& base) {
  std::string name = base;
  for (int suffix = 1; index.find(name); ++suffix) name = base + "_" + std::to_string(suffix);
  return name;
}

}  // namespace braid::worker
