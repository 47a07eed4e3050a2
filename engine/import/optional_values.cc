#include "engine/import/optional_values.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/import/node_inputs.h"

namespace braid {
namespace {

class OptionalLowering {
 public:
  explicit OptionalLowering(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
  }

  void run() {
    std::unordered_map<std::string, std::vector<std::string>> taken;  // OptionalGetValue -> its values
    for (const NodeDef& node : graph_.node())
      if (node.op() == "OptionalGetValue" && node.input_size() > 0)
        if (const NodeDef* from = maker_of(node.input(0)))
          taken[node.name()].assign(from->input().begin(), from->input().end());
    const auto value_of = [&](std::string input) {
      for (;;) {
        const auto at = input.starts_with('^') ? taken.end() : taken.find(node_of(input));
        const auto output = static_cast<std::size_t>(output_of(input));
        if (at == taken.end() || output >= at->second.size() || at->second[output].starts_with('^'))
          return input;
        input = at->second[output];
      }
    };
    for (NodeDef& node : *graph_.mutable_node())
      for (std::string& input : *node.mutable_input()) input = value_of(input);
    for (NodeDef& node : *graph_.mutable_node())
      if (taken.contains(node.name()) || makes_optional(node)) take_away(node);
    for (NodeDef& node : *graph_.mutable_node())
      if (node.op() == "IdentityN" || node.op() == "Identity") forget_optionals(node);
  }

 private:
  const NodeDef* find(const std::string& value) const {
    const auto at = places_.find(node_of(value));
    return at == places_.end() ? nullptr : &graph_.node(at->second);
  }

  /// The one OptionalFromValue that a value may come from.
  const NodeDef* maker_of(const std::string& value) const {
    std::vector<std::string> open{value};
    std::set<std::string> seen;
    const NodeDef* maker = nullptr;
    while (!open.empty()) {
      const std::string at = open.back();
      open.pop_back();
      const NodeDef* node = find(at);
      if (!node || !seen.insert(at).second) continue;
      if (node->op() == "OptionalFromValue") {
        if (maker && maker != node) return nullptr;
        maker = node;
      } else if (node->op() == "Select" && node->input_size() > 2) {
        open.insert(open.end(), {node->input(1), node->input(2)});
      } else if (node->op().starts_with("Identity") && output_of(at) < node->input_size()) {
        open.push_back(node->input(output_of(at)));
      } else if (node->op() != "OptionalNone") {
        return nullptr;
      }
    }
    return maker;
  }

  /// Also a choice between optionals.
  bool makes_optional(const NodeDef& node) const {
    if (node.op() == "OptionalFromValue" || node.op() == "OptionalNone") return true;
    if (node.op() != "Select" || node.input_size() < 3) return false;
    return std::all_of(node.input().begin() + 1, node.input().begin() + 3, [&](const std::string& side) {
      const NodeDef* from = find(side);
      return from && (is_gone_.contains(from->name()) || makes_optional(*from));
    });
  }

  void take_away(NodeDef& node) {
    is_gone_.insert(node.name());
    only_wait(node);
  }

  /// The node of a conditional is there to be waited for; who reads its outputs reads past it.
  void forget_optionals(NodeDef& node) {
    const auto is_gone = [&](const std::string& input) {
      return !input.starts_with('^') && is_gone_.contains(node_of(input));
    };
    if (std::any_of(node.input().begin(), node.input().end(), is_gone)) take_away(node);
  }

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  std::set<std::string> is_gone_;
};

}  // namespace

void lower_optionals(GraphDef& graph) {
  const bool any = std::any_of(graph.node().begin(), graph.node().end(),
                               [](const NodeDef& node) { return node.op().starts_with("Optional"); });
  if (any) OptionalLowering(graph).run();
}

}  // namespace braid
