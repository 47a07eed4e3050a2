#include "engine/import/pending_graph.h"

#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "engine/import/convert.h"
#include "engine/import/nearest_name.h"
#include "engine/import/op_role.h"
#include "engine/ir/device_name.h"

namespace braid {

int PendingGraph::add(PendingNode node) {
  const std::string base = node.name;
  for (int suffix = 1; !names.insert(node.name).second; ++suffix)
    node.name = base + "_" + std::to_string(suffix);
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

TopologicalOrder PendingGraph::order() const {
  return sort_topologically(static_cast<std::int32_t>(nodes.size()),
                            [this](std::int32_t index, FunctionRef<void(std::int32_t)> visit) {
                              const PendingNode& node = nodes[static_cast<std::size_t>(index)];
                              for (const PendingInput input : node.inputs) visit(input.node);
                              for (const int control : node.controls) visit(control);
                            });
}

namespace {

struct InputName {
  std::string_view node;
  int output = 0;
  bool control = false;
};

// False for a text like "a:b".
bool parse_input_name(std::string_view text, InputName& name) {
  name = {text, 0, text.starts_with('^')};
  if (name.control) {
    name.node.remove_prefix(1);
    return true;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return true;
  name.node = text.substr(0, colon);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, name.output);
  return error == std::errc() && stop == end && name.output >= 0;
}

class Parser {
 public:
  explicit Parser(const GraphDef& graph) : def_(graph) {
    for (int i = 0; i < def_.node_size(); ++i) index_.try_emplace(def_.node(i).name(), i);
  }

  PendingGraph parse(const ImportOptions& options) {
    const std::vector<char> wanted = wanted_nodes(options.roots);
    std::vector<int> position(static_cast<std::size_t>(def_.node_size()), -1);
    PendingGraph graph;
    for (int i = 0; i < def_.node_size(); ++i) {
      if (!wanted[static_cast<std::size_t>(i)]) {
        graph.left_out.insert(def_.node(i).name());
        continue;
      }
      position[static_cast<std::size_t>(i)] = static_cast<int>(graph.nodes.size());
      graph.nodes.push_back(parse_node(i));
      graph.names.insert(def_.node(i).name());
    }
    for (int i = 0; i < def_.node_size(); ++i) {
      if (!wanted[static_cast<std::size_t>(i)]) continue;
      parse_inputs(i, position, graph.nodes[static_cast<std::size_t>(position[static_cast<std::size_t>(i)])]);
    }
    return graph;
  }

 private:
  int find(std::string_view name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? -1 : it->second;
  }

  std::string hint(std::string_view name) const {
    if (hints_left_ == 0) return {};
    --hints_left_;
    std::vector<std::string_view> names;
    for (const NodeDef& node : def_.node()) names.push_back(node.name());
    std::string nearest = nearest_name(name, names);
    // The name of a layer: its last node is what the layer makes.
    const std::string prefix = std::string(name) + "/";
    for (const std::string_view other : names)
      if (other.starts_with(prefix)) nearest = other;
    return nearest.empty() ? std::string() : "; did you mean '" + nearest + "'?";
  }

  std::vector<char> wanted_nodes(const std::vector<std::string>& roots) const {
    const auto count = static_cast<std::size_t>(def_.node_size());
    if (roots.empty()) return std::vector<char>(count, 1);
    std::vector<char> wanted(count);
    std::vector<int> open;
    const auto want = [&](int index) {
      if (index < 0 || wanted[static_cast<std::size_t>(index)]) return;
      wanted[static_cast<std::size_t>(index)] = 1;
      open.push_back(index);
    };
    for (const std::string& root : roots) {
      InputName name;
      const int index = parse_input_name(root, name) ? find(name.node) : -1;
      if (index < 0) throw InvalidArgument("there is no node '" + root + "'" + hint(root));
      want(index);
    }
    while (!open.empty()) {
      const NodeDef& node = def_.node(open.back());
      open.pop_back();
      for (const std::string& input : node.input()) {
        InputName name;
        if (parse_input_name(input, name)) want(find(name.node));
      }
    }
    return wanted;
  }

  PendingNode parse_node(int index) const {
    const NodeDef& def = def_.node(index);
    PendingNode node;
    node.name = def.name();
    node.op = def.op();
    node.device = def.device();
    if (def.name().empty()) node.add_problem("has no name");
    if (find(def.name()) != index) node.add_problem("another node has this name");
    for (const auto& [name, value] : attrs_by_name(def)) {
      try {
        if (std::optional<Attr> attr = from_proto(*value)) node.attrs.set(name, *std::move(attr));
      } catch (const InvalidArgument& error) {
        // Attributes with a leading underscore are hints of other tools.
        if (!name.starts_with('_')) node.add_problem("attribute '" + name + "': " + error.message());
      }
    }
    read_annotations(node);
    check_device(node);
    forget_legacy_shape(node);
    return node;
  }

  static void check_device(PendingNode& node) {
    try {
      parse_device_name(node.device);
    } catch (const InvalidArgument& error) {
      node.add_problem("device " + error.message());
    }
  }

  /// Graphs up to version 21 write a placeholder of unknown shape as one of shape [].
  void forget_legacy_shape(PendingNode& node) const {
    constexpr int kLastVersion = 21;
    const int version = def_.versions().producer();
    if (role_of(node.op) != OpRole::Placeholder || version <= 0 || version > kLastVersion) return;
    const Attr* attr = node.attrs.find("shape");
    const Shape* shape = attr ? std::get_if<Shape>(static_cast<const AttrValue_*>(attr)) : nullptr;
    if (shape && *shape == Shape{}) node.attrs.set("shape", Shape::unknown_rank());
  }

  // The first problem must not depend on the order of a hash map.
  static std::map<std::string, const AttrValue*> attrs_by_name(const NodeDef& def) {
    std::map<std::string, const AttrValue*> attrs;
    for (const auto& [name, value] : def.attr()) attrs.emplace(name, &value);
    return attrs;
  }

  static void read_annotations(PendingNode& node) {
    try {
      const auto stream = node.attrs.get<std::int64_t>("_stream_id", kNoStream);
      if (node.attrs.has("_stream_id") && (stream < 0 || stream > std::numeric_limits<int>::max())) {
        node.add_problem("attribute '_stream_id': " + std::to_string(stream) + " is not a stream");
      }
      node.stream = static_cast<int>(stream);
      node.include_grad = node.attrs.get<bool>("_include_grad", true);
      for (const std::string& constraint : node.attrs.get<std::vector<std::string>>("_class", {})) {
        if (!constraint.starts_with(kColocatePrefix)) continue;
        // Lists may have the node's own name beside its target's.
        if (const auto target = constraint.substr(kColocatePrefix.size()); target != node.name)
          node.colocate_with.push_back(target);
      }
    } catch (const InvalidArgument& error) {
      node.add_problem(error.message());
    }
  }

  void parse_inputs(int index, const std::vector<int>& position, PendingNode& node) const {
    for (const std::string& text : def_.node(index).input()) {
      InputName name;
      if (!parse_input_name(text, name)) {
        node.add_problem("input '" + text + "' is not of the form 'node', 'node:output' or '^node'");
        continue;
      }
      const int source = find(name.node);
      if (source < 0) {
        node.add_problem("input '" + std::string(name.node) + "' does not exist" + hint(name.node));
        continue;
      }
      const int at = position[static_cast<std::size_t>(source)];
      if (name.control) {
        node.controls.push_back(at);
      } else {
        node.inputs.push_back({at, name.output});
      }
    }
  }

  const GraphDef& def_;
  std::unordered_map<std::string_view, int> index_;
  mutable int hints_left_ = 100;  // each looks at all names
};

}  // namespace

PendingGraph parse_nodes(const GraphDef& graph, const ImportOptions& options) {
  return Parser(graph).parse(options);
}

}  // namespace braid
