#include "engine/import/loops_as_functions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/import/function_values.h"
#include "engine/import/node_inputs.h"

namespace braid {
namespace {

bool is_enter(const NodeDef& node) { return node.op() == "Enter" || node.op() == "RefEnter"; }

std::string text_attr(const NodeDef& node, const char* name) {
  const auto at = node.attr().find(name);
  return at == node.attr().end() ? std::string() : at->second.s();
}

void become(NodeDef& node, const char* op, std::vector<std::string> inputs) {
  node.set_op(op);
  replace_data_inputs(node, std::move(inputs));
}

/// TensorArrays: the flow of an array is the list.
class ArrayLowering {
 public:
  explicit ArrayLowering(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
  }

  void run() {
    const int nodes = graph_.node_size();
    for (int i = 0; i < nodes; ++i) rewrite(*graph_.mutable_node(i));
    for (NodeDef& node : *graph_.mutable_node())
      for (std::string& input : *node.mutable_input())
        if (input.ends_with(":1") && arrays_.contains(node_of(input))) input = node_of(input);
    for (NodeDef& node : added_) *graph_.add_node() = std::move(node);
  }

 private:
  void rewrite(NodeDef& node) {
    const std::string op = node.op();
    if (!op.starts_with("TensorArray") || !op.ends_with("V3") || node.input_size() == 0) return;
    AttrValue type;
    if (const auto dtype = node.attr().find(op == "TensorArrayV3" ? "dtype" : "T");
        dtype != node.attr().end())
      type = dtype->second;
    else if (const auto read = node.attr().find("dtype"); read != node.attr().end())
      type = read->second;
    if (op == "TensorArrayV3") {
      arrays_.insert(node.name());
      make(node, "TensorListReserve", {shape(node), node.input(0)}, type);
    } else if (op == "TensorArrayReadV3") {
      make(node, "TensorListGetItem", {node.input(2), node.input(1), shape(node)}, type);
    } else if (op == "TensorArrayWriteV3") {
      make(node, "TensorListSetItem", {node.input(3), node.input(1), node.input(2)}, type);
    } else if (op == "TensorArrayScatterV3" && counts_up(node.input(1))) {
      make(node, "TensorListFromTensor", {node.input(2), shape(node)}, type);
    } else if (op == "TensorArrayGatherV3" && counts_up(node.input(1))) {
      make(node, "TensorListStack", {node.input(2), shape(node)}, type);
    } else if (op == "TensorArraySizeV3") {
      make(node, "TensorListLength", {node.input(1)}, type);
    }
  }

  static void make(NodeDef& node, const char* op, std::vector<std::string> inputs, const AttrValue& type) {
    become(node, op, std::move(inputs));
    node.clear_attr();
    (*node.mutable_attr())["element_dtype"] = type;
  }

  /// Whether the places are those of a Range.
  bool counts_up(const std::string& places) const {
    const auto at = places_.find(node_of(places));
    return at != places_.end() && graph_.node(at->second).op() == "Range";
  }

  /// An element's shape, which need not be known.
  std::string shape(const NodeDef& node) {
    NodeDef& value = added_.emplace_back();
    value.set_name(node.name() + "/element_shape");
    value.set_op("Const");
    (*value.mutable_attr())["dtype"].set_type(DT_INT32);
    auto& tensor = *(*value.mutable_attr())["value"].mutable_tensor();
    tensor.set_dtype(DT_INT32);
    tensor.mutable_tensor_shape();
    tensor.add_int_val(-1);
    return value.name();
  }

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  std::set<std::string> arrays_;
  std::vector<NodeDef> added_;
};

/// What carries a loop's variable.
struct LoopVariable {
  std::string enter, merge, next, side, exit;  // names of nodes; `side` the Switch; `exit` may be empty
};

struct Frame {
  std::string name, condition;  // of the LoopCond
  std::vector<LoopVariable> variables;
  std::vector<std::string> constants;  // Enters that do not change
};

class LoopLowering {
 public:
  explicit LoopLowering(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) {
      places_.try_emplace(graph.node(i).name(), i);
      for (const std::string& input : graph.node(i).input()) readers_[node_of(input)].push_back(i);
    }
  }

  void run() {
    std::map<std::string, std::vector<int>> enters;
    for (int i = 0; i < graph_.node_size(); ++i)
      if (is_enter(graph_.node(i))) enters[text_attr(graph_.node(i), "frame_name")].push_back(i);
    for (const auto& [name, places] : enters)
      if (const auto frame = frame_of(name, places)) lower(*frame);
    for (const int i : std::set<int, std::greater<>>(gone_.begin(), gone_.end()))
      graph_.mutable_node()->DeleteSubrange(i, 1);
    for (NodeDef& node : added_) *graph_.add_node() = std::move(node);
  }

 private:
  const NodeDef* find(const std::string& input) const {
    const auto at = places_.find(node_of(input));
    return at == places_.end() ? nullptr : &graph_.node(at->second);
  }

  const NodeDef* reader(const std::string& name, std::string_view op) const {
    const auto at = readers_.find(name);
    if (at == readers_.end()) return nullptr;
    for (const int place : at->second)
      if (graph_.node(place).op().ends_with(op)) return &graph_.node(place);
    return nullptr;
  }

  std::optional<Frame> frame_of(const std::string& name, const std::vector<int>& enters) const {
    Frame frame{name, {}, {}, {}};
    for (const int place : enters) {
      const NodeDef& enter = graph_.node(place);
      const NodeDef* merge = reader(enter.name(), "Merge");
      if (!merge) {
        frame.constants.push_back(enter.name());
        continue;
      }
      const NodeDef* side = reader(merge->name(), "Switch");
      if (!side || side->input_size() < 2 || merge->input_size() < 2) return std::nullopt;
      const NodeDef *condition = find(side->input(1)), *next = find(merge->input(1));
      if (!condition || condition->op() != "LoopCond" || !next || !next->op().ends_with("NextIteration"))
        return std::nullopt;
      if (!frame.condition.empty() && frame.condition != condition->name()) return std::nullopt;
      frame.condition = condition->name();
      const NodeDef* exit = reader(side->name(), "Exit");
      frame.variables.push_back(
          {enter.name(), merge->name(), next->name(), side->name(), exit ? exit->name() : ""});
    }
    return frame.condition.empty() ? std::nullopt : std::optional(frame);
  }

  /// A function of all variables and constants of the frame; `given` are the nodes that its arguments stand
  /// for.
  struct Body {
    FunctionDef function;
    std::map<std::string, std::string> given;  // node -> argument
    std::set<std::string> inside;
    bool whole = true;  // false: it has a frame inside
  };

  void declare(Body& body, const Frame& frame, const std::string& name) {
    body.function.mutable_signature()->set_name(name);
    const auto argument = [&](const std::string& enter, const std::string& text) {
      auto& arg = *body.function.mutable_signature()->add_input_arg();
      arg.set_name(text);
      if (const NodeDef* node = find(enter); node && node->attr().contains("T"))
        arg.set_type(node->attr().at("T").type());
      return text;
    };
    for (std::size_t v = 0; v < frame.variables.size(); ++v) {
      const LoopVariable& variable = frame.variables[v];
      const std::string text = argument(variable.enter, "variable_" + std::to_string(v));
      body.given[variable.merge] = body.given[variable.side] = text;
    }
    for (std::size_t c = 0; c < frame.constants.size(); ++c)
      body.given[frame.constants[c]] = argument(frame.constants[c], "constant_" + std::to_string(c));
  }

  /// Adds what `value` needs; gives its name inside.
  std::string add(Body& body, const std::string& value) {
    if (const auto at = body.given.find(node_of(value)); at != body.given.end()) return at->second;
    std::vector<std::string> open{node_of(value)};
    while (!open.empty()) {
      const NodeDef* node = find(open.back());
      open.pop_back();
      if (!node || !body.inside.insert(node->name()).second) continue;
      if (is_enter(*node) || node->op().ends_with("NextIteration") || node->op() == "LoopCond")
        body.whole = false;
      NodeDef& copy = *body.function.add_node_def();
      copy = *node;
      copy.clear_input();
      for (const std::string& input : node->input()) {
        const bool control = input.starts_with('^');
        const auto given = body.given.find(node_of(input));
        if (given == body.given.end()) {
          open.push_back(node_of(input));
          copy.add_input(input);
        } else if (!control) {
          copy.add_input(given->second);
        }
      }
    }
    return value;
  }

  void lower(const Frame& frame) {
    Body test, turn;
    declare(test, frame, "loop/" + frame.name + "/test");
    declare(turn, frame, "loop/" + frame.name + "/turn");
    result(test, "goes_on", DT_BOOL, add(test, find(frame.condition)->input(0)));
    NodeDef whole;
    whole.set_name(frame.condition + "/loop");
    whole.set_op("While");
    const std::size_t count = frame.variables.size() + frame.constants.size();
    for (std::size_t v = 0; v < count; ++v) {
      const bool changes = v < frame.variables.size();
      const std::string enter =
          changes ? frame.variables[v].enter : frame.constants[v - frame.variables.size()];
      const auto& argument = turn.function.signature().input_arg(static_cast<int>(v));
      const std::string value =
          changes ? add(turn, find(frame.variables[v].next)->input(0)) : argument.name();
      result(turn, "next_" + std::to_string(v), argument.type(), value);
      whole.add_input(find(enter)->input(0));
    }
    if (!test.whole || !turn.whole) return;
    (*whole.mutable_attr())["cond"].mutable_func()->set_name(test.function.signature().name());
    (*whole.mutable_attr())["body"].mutable_func()->set_name(turn.function.signature().name());
    replace(frame, test, turn, whole.name());
    *graph_.mutable_library()->add_function() = std::move(test.function);
    *graph_.mutable_library()->add_function() = std::move(turn.function);
    added_.push_back(std::move(whole));
  }

  static void result(Body& body, const std::string& name, DataType type, const std::string& value) {
    auto& output = *body.function.mutable_signature()->add_output_arg();
    output.set_name(name);
    output.set_type(type);
    (*body.function.mutable_ret())[name] = value;
  }

  /// The loop's results are what was in the place of its Exits; the frame's other nodes go.
  void replace(const Frame& frame, const Body& test, const Body& turn, const std::string& loop) {
    std::set<std::string> gone{frame.condition}, exits;
    for (const std::string& enter : frame.constants) gone.insert(enter);
    for (std::size_t v = 0; v < frame.variables.size(); ++v) {
      const LoopVariable& variable = frame.variables[v];
      gone.insert({variable.enter, variable.merge, variable.next, variable.side});
      if (variable.exit.empty()) continue;
      NodeDef& exit = *graph_.mutable_node(places_.at(variable.exit));
      exits.insert(variable.exit);
      become(exit, "Identity", {value_of(loop, static_cast<int>(v))});
    }
    for (const Body* body : {&test, &turn}) gone.insert(body->inside.begin(), body->inside.end());
    // Gradients that the file has read values of the turns: those stay, and whoever needs them is refused.
    const bool is_read = std::any_of(gone.begin(), gone.end(), [&](const std::string& name) {
      const auto at = readers_.find(name);
      return at != readers_.end() && std::any_of(at->second.begin(), at->second.end(), [&](int place) {
               const std::string& reader = graph_.node(place).name();
               return !gone.contains(reader) && !exits.contains(reader);
             });
    });
    if (is_read) return;
    for (const std::string& name : gone) gone_.insert(places_.at(name));
  }

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  std::unordered_map<std::string, std::vector<int>> readers_;
  std::set<int> gone_;
  std::vector<NodeDef> added_;
};

}  // namespace

std::optional<GraphDef> loops_as_functions(const GraphDef& graph) {
  const bool any = std::any_of(graph.node().begin(), graph.node().end(), [](const NodeDef& node) {
    return is_enter(node) || node.op().starts_with("TensorArray");
  });
  if (!any) return std::nullopt;
  GraphDef lowered = graph;
  ArrayLowering(lowered).run();
  LoopLowering(lowered).run();
  return lowered;
}

}  // namespace braid
