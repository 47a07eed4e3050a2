#include "engine/import/inline_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "engine/import/branch_gates.h"
#include "engine/import/choose_branches.h"
#include "engine/import/function_library.h"
#include "engine/import/function_values.h"
#include "engine/import/loops_as_functions.h"
#include "engine/import/optional_values.h"
#include "engine/import/pending_graph.h"
#include "engine/import/tensor_lists.h"
#include "engine/import/unroll_loops.h"

namespace braid {
namespace {

constexpr const char* kOwnGradient = "_gradient_op_type";

/// A function that is being expanded, for as long as this lives.
class OpenFunction {
 public:
  OpenFunction(std::set<std::string>& open, const std::string& name)
      : open_(open), at_(open.insert(name).first) {}
  ~OpenFunction() { open_.erase(at_); }
  OpenFunction(const OpenFunction&) = delete;
  OpenFunction& operator=(const OpenFunction&) = delete;

 private:
  std::set<std::string>& open_;
  std::set<std::string>::iterator at_;
};

class Inliner {
 public:
  explicit Inliner(const GraphDef& graph) : source_(graph), library_(graph) {}

  InlinedGraph run() {
    *result_.graph.mutable_versions() = source_.versions();
    for (const NodeDef& node : source_.node()) expand(node);
    for (NodeDef& node : *result_.graph.mutable_node())
      for (std::string& input : *node.mutable_input()) input = resolved(input);
    lower_tensor_lists(result_.graph);
    lower_optionals(result_.graph);
    return std::move(result_);
  }

 private:
  /// All branches are calls, and Selects of the outputs stand for the conditional: of a Case from the last
  /// branch on, which all other numbers take.
  void expand_choice(const NodeDef& node, const FunctionChoice& choice) {
    if (const auto taken = known_branch(node, choice)) return expand_only(node, choice, *taken);
    std::vector<std::string> conditions, calls;
    for (std::size_t b = 0; b < choice.branches.size(); ++b) {
      conditions.push_back(condition_of(node, choice, b));
      calls.push_back(node.name() + "/" + choice.name_of(b));
      expand_branch(node, choice, b, calls[b], conditions[b]);
    }
    NodeDef whole;
    whole.set_name(node.name());
    whole.set_device(node.device());
    annotate(whole, node);
    std::vector<std::string>& values = results_[node.name()];
    const int outputs = choice.branches[0].function->signature().output_arg_size();
    for (int o = 0; o < outputs; ++o) {
      std::string value = value_of(calls.back(), o);
      for (std::size_t b = calls.size() - 1; b-- > 0;) {
        NodeDef select;
        select.set_name(fmt::format("{}/choice{}{}", node.name(), o, b == 0 ? "" : fmt::format("_{}", b)));
        select.set_op("Select");
        select.set_device(node.device());
        annotate(select, node);
        for (const std::string& input : {conditions[b], value_of(calls[b], o), value})
          select.add_input(input);
        value = select.name();
        *result_.graph.add_node() = std::move(select);
      }
      values.push_back(value);
      whole.add_input(value);
    }
    whole.set_op(outputs == 1 ? "Identity" : "IdentityN");
    for (const std::string& input : node.input())
      if (input.starts_with('^')) whole.add_input(input);
    *result_.graph.add_node() = std::move(whole);
  }

  /// The branch that is taken where that follows from the graph: the others may not even fit its shapes.
  std::optional<std::size_t> known_branch(const NodeDef& node, const FunctionChoice& choice) const {
    const auto known = value_without_feeds(result_.graph, node.input(0),
                                           [this](std::string input) { return resolved(std::move(input)); });
    if (!known || known->elements() != 1) return std::nullopt;
    if (!choice.by_number)
      return known->dtype() == DType::Bool ? std::optional<std::size_t>(known->data<bool>()[0] ? 0 : 1)
                                           : std::nullopt;
    if (known->dtype() != DType::Int32) return std::nullopt;
    const auto number = static_cast<std::size_t>(known->data<std::int32_t>()[0]);  // a negative one is large
    return std::min(number, choice.branches.size() - 1);
  }

  void expand_only(const NodeDef& node, const FunctionChoice& choice, std::size_t taken) {
    NodeDef call = node;
    call.set_op("PartitionedCall");
    call.clear_attr();
    call.mutable_input()->DeleteSubrange(0, 1);
    (*call.mutable_attr())["f"] = choice.attr_of(node, taken);
    annotate(call, node);
    expand(call);
  }

  /// A bool that says whether a branch is taken; of the last of a Case, which is taken where no other is,
  /// none.
  std::string condition_of(const NodeDef& node, const FunctionChoice& choice, std::size_t branch) {
    if (!choice.by_number) return node.input(0);
    if (branch + 1 == choice.branches.size()) return {};
    const std::string name = node.name() + "/" + choice.name_of(branch);
    add_comparison(result_.graph, name + "/is_taken", node.input(0), static_cast<int>(branch));
    return name + "/is_taken";
  }

  /// The call of a branch; what enters it and what it reads stand behind gates.
  void expand_branch(const NodeDef& node, const FunctionChoice& choice, std::size_t b,
                     const std::string& name, const std::string& condition) {
    const bool when = choice.by_number || b == 0;
    NodeDef branch;
    branch.set_name(name);
    branch.set_op("PartitionedCall");
    branch.set_device(node.device());
    const auto& arguments = choice.branches[b].function->signature().input_arg();
    for (int i = 1; i < node.input_size(); ++i) {
      const std::string& input = node.input(i);
      const bool is_gated = !condition.empty() && !input.starts_with('^') && i <= arguments.size() &&
                            has_gradients(arguments[i - 1].type());
      if (is_gated) add_gate(result_.graph, fmt::format("{}/gate{}", name, i), input, condition, when, node);
      branch.add_input(is_gated ? fmt::format("{}/gate{}", name, i) : input);
    }
    (*branch.mutable_attr())["f"] = choice.attr_of(node, b);
    annotate(branch, node);
    const int first = result_.graph.node_size();
    expand(branch);
    if (!condition.empty()) gate_reads(result_.graph, first, condition, when);
  }

  void expand(const NodeDef& node) {
    const FunctionCall call = library_.call_of(node);
    if (!call.function) {
      if (const FunctionChoice choice = library_.choice_of(node); !choice.branches.empty())
        return expand_choice(node, choice);
      if (node.op() == "While" || node.op() == "StatelessWhile") return expand_loop(node);
      *result_.graph.add_node() = node;
      return;
    }
    const int nodes_before = result_.graph.node_size();
    try {
      expand_call(node, call);
    } catch (const InvalidArgument& error) {
      // Nothing of it stays but the call, which is reported.
      result_.graph.mutable_node()->DeleteSubrange(nodes_before, result_.graph.node_size() - nodes_before);
      NodeDef* left = result_.graph.add_node();
      *left = node;
      left->clear_attr();
      result_.problems.emplace(node.name(), error.message());
    }
  }

  /// The turns of a loop, and an Identity of what they leave in its place.
  void expand_loop(const NodeDef& node) {
    const int nodes_before = result_.graph.node_size();
    try {
      LoopParts loop;
      for (const auto& [part, name] : {std::pair{&loop.test, "cond"}, {&loop.body, "body"}}) {
        const FunctionCall call = library_.function_attr(node, name);
        if (!call.function) throw InvalidArgument("the loop has no function '" + std::string(name) + "'");
        part->set_op(call.function->signature().name());
        *part->mutable_attr() = *call.attrs;
        part->set_device(node.device());
        annotate(*part, node);
        if (part == &loop.test) continue;
        for (const auto& argument : call.function->signature().input_arg())
          loop.types.push_back(argument.type());
      }
      std::vector<std::string> controls;
      for (const std::string& input : node.input())
        (input.starts_with('^') ? controls : loop.first).push_back(input);
      const std::vector<std::string> results = unroll_loop(
          loop, node.name(), result_.graph, [this](const NodeDef& turn) { expand(turn); },
          [this](std::string input) { return resolved(std::move(input)); });
      NodeDef whole;
      whole.set_name(node.name());
      whole.set_op("NoOp");  // outputs may be lists, which no Identity takes
      for (const std::string& control : controls) whole.add_input(control);
      results_[node.name()] = results;
      *result_.graph.add_node() = std::move(whole);
    } catch (const InvalidArgument& error) {
      result_.graph.mutable_node()->DeleteSubrange(nodes_before, result_.graph.node_size() - nodes_before);
      NodeDef* left = result_.graph.add_node();
      *left = node;
      left->clear_attr();
      result_.problems.emplace(node.name(), error.message());
    }
  }

  void expand_call(const NodeDef& node, const FunctionCall& call) {
    const FunctionDef& function = *call.function;
    const std::string& name = function.signature().name();
    if (open_.contains(name)) throw InvalidArgument("function '" + name + "' calls itself");
    if (open_.size() >= FunctionLibrary::kMostNested)
      throw InvalidArgument(
          fmt::format("calls of functions are nested more than {} deep", FunctionLibrary::kMostNested));
    Scope scope{node, function, {}, {}, {}, {}};
    for (const std::string& input : node.input())
      (input.starts_with('^') ? scope.controls : scope.inputs).push_back(input);
    scope.inputs.erase(scope.inputs.begin(),
                       scope.inputs.begin() +
                           static_cast<std::ptrdiff_t>(std::min(call.first_argument, scope.inputs.size())));
    if (scope.inputs.size() != static_cast<std::size_t>(function.signature().input_arg_size()))
      throw InvalidArgument(fmt::format("function '{}' takes {} arguments, the call has {}", name,
                                        function.signature().input_arg_size(), scope.inputs.size()));
    for (int i = 0; i < function.signature().input_arg_size(); ++i) {
      const auto& arg = function.signature().input_arg(i);
      if (!arg.number_attr().empty() || !arg.type_list_attr().empty())
        throw InvalidArgument("function '" + name + "' has the list '" + arg.name() + "' as an argument");
      scope.arguments.emplace(arg.name(), scope.inputs[static_cast<std::size_t>(i)]);
    }
    for (const NodeDef& inner : function.node_def()) scope.body.emplace(inner.name(), &inner);
    {
      const OpenFunction open(open_, name);
      for (const NodeDef& inner : function.node_def()) expand(placed(inner, scope, call));
    }
    add_results(scope);
  }

  struct Scope {
    const NodeDef& call;
    const FunctionDef& function;
    std::vector<std::string> inputs, controls;
    std::map<std::string, std::string> arguments;  // -> the caller's value
    std::map<std::string, const NodeDef*> body;
  };

  /// Constraints that name nodes of the body keep; TensorFlow leaves others of the place where it was traced.
  static void colocate_inside(NodeDef& node, const Scope& scope) {
    const auto at = node.mutable_attr()->find("_class");
    if (at == node.mutable_attr()->end()) return;
    AttrValue kept;
    kept.mutable_list();
    for (const std::string& constraint : at->second.list().s())
      if (constraint.starts_with(kColocatePrefix) &&
          scope.body.contains(constraint.substr(kColocatePrefix.size())))
        kept.mutable_list()->add_s(std::string(kColocatePrefix) + scope.call.name() + "/" +
                                   constraint.substr(kColocatePrefix.size()));
    at->second = kept;
  }

  /// A call's stream and colocation are those of the nodes that stand for it, unless they have their own.
  static void annotate(NodeDef& node, const NodeDef& call) {
    for (const char* name : {"_stream_id", "_include_grad"})
      if (const auto of_call = call.attr().find(name); of_call != call.attr().end())
        node.mutable_attr()->insert({name, of_call->second});
    const auto of_call = call.attr().find("_class");
    if (of_call == call.attr().end()) return;
    auto& own = *(*node.mutable_attr())["_class"].mutable_list();
    if (own.s_size() > 0) return;
    for (const std::string& constraint : of_call->second.list().s())
      if (constraint != std::string(kColocatePrefix) + call.name()) own.add_s(constraint);
  }

  /// A node of a function's body as a node of the graph.
  NodeDef placed(const NodeDef& inner, const Scope& scope, const FunctionCall& call) const {
    NodeDef node = inner;
    node.set_name(scope.call.name() + "/" + inner.name());
    if (node.device().empty()) node.set_device(scope.call.device());
    colocate_inside(node, scope);
    annotate(node, scope.call);
    for (auto& [name, value] : *node.mutable_attr()) substitute(value, scope.function, *call.attrs);
    bool follows_inside = false;
    for (std::string& input : *node.mutable_input()) {
      follows_inside = follows_inside || !scope.arguments.contains(input);
      input = outside(input, scope);
    }
    // What waits for the call's control inputs is whatever starts without waiting for another node of the
    // body.
    if (!follows_inside)
      for (const std::string& control : scope.controls) node.add_input(control);
    // Control inputs come last.
    std::stable_partition(node.mutable_input()->begin(), node.mutable_input()->end(),
                          [](const std::string& input) { return !input.starts_with('^'); });
    return node;
  }

  static void substitute(AttrValue& value, const FunctionDef& function, const FunctionCall::Attrs& attrs) {
    if (value.value_case() == AttrValue::kFunc) {
      for (auto& [name, inner] : *value.mutable_func()->mutable_attr()) substitute(inner, function, attrs);
      return;
    }
    if (value.value_case() != AttrValue::kPlaceholder) return;
    const std::string name = value.placeholder();
    if (const auto at = attrs.find(name); at != attrs.end()) {
      value = at->second;
      return;
    }
    for (const auto& attr : function.signature().attr())
      if (attr.name() == name && attr.has_default_value()) {
        value = attr.default_value();
        return;
      }
    throw InvalidArgument("function '" + function.signature().name() + "' needs attribute '" + name + "'");
  }

  /// A value's name inside the function as one outside.
  std::string outside(const std::string& input, const Scope& scope) const {
    if (const auto at = scope.arguments.find(input); at != scope.arguments.end()) return at->second;
    const bool control = input.starts_with('^');
    const std::vector<std::string> parts = value_parts(control ? input.substr(1) : input);
    const auto at = scope.body.find(parts[0]);
    if (at == scope.body.end())
      throw InvalidArgument("function '" + scope.function.signature().name() + "' has no value '" + input +
                            "'");
    const std::string node = scope.call.name() + "/" + parts[0];
    return control ? "^" + node : value_of(node, library_.output_number(*at->second, parts));
  }

  /// The node that stands for the call, and what its outputs are.
  void add_results(const Scope& scope) {
    NodeDef node;
    node.set_name(scope.call.name());
    node.set_device(scope.call.device());
    annotate(node, scope.call);
    std::vector<std::string> values;
    for (const auto& output : scope.function.signature().output_arg()) {
      const auto value = scope.function.ret().find(output.name());
      if (value == scope.function.ret().end())
        throw InvalidArgument("function '" + scope.function.signature().name() + "' does not say what '" +
                              output.name() + "' is");
      // Calls inside are expanded already, so a chain of them is walked once.
      values.push_back(resolved(outside(value->second, scope)));
      node.add_input(values.back());
    }
    node.set_op(values.empty() ? "NoOp" : values.size() == 1 ? "Identity" : "IdentityN");
    for (const std::string& control : scope.controls) node.add_input(control);
    std::set<std::string> effects;
    for (const auto& [name, inner] : scope.function.control_ret()) effects.insert(inner);
    if (effects.empty()) effects = unread_nodes(scope.function);
    for (const std::string& effect : effects) node.add_input("^" + scope.call.name() + "/" + effect);
    // Nobody reads past a node that says where the usual gradient ends.
    if (const std::string own = library_.own_gradient(scope.function, scope.call); !own.empty())
      (*node.mutable_attr())[kOwnGradient].set_s(own);
    else
      results_[scope.call.name()] = std::move(values);
    *result_.graph.add_node() = node;
  }

  /// A call's output is the value inside it, which may be another call's.
  std::string resolved(std::string input) const {
    while (!input.starts_with('^')) {
      const std::size_t colon = input.rfind(':');
      const auto at = results_.find(input.substr(0, colon));
      const int output =
          colon == std::string::npos ? 0 : value_number(std::string_view(input).substr(colon + 1));
      if (at == results_.end() || output < 0 || output >= static_cast<int>(at->second.size())) break;
      input = at->second[static_cast<std::size_t>(output)];
    }
    return input;
  }

  const GraphDef& source_;
  const FunctionLibrary library_;
  std::set<std::string> open_;  // the functions that are being expanded
  std::map<std::string, std::vector<std::string>> results_;
  InlinedGraph result_;
};

}  // namespace

std::optional<InlinedGraph> inline_functions(const GraphDef& original) {
  const std::optional<ChosenBranches> branches = choose_branches(original);
  const GraphDef& chosen = branches ? branches->graph : original;
  const std::optional<GraphDef> loops = loops_as_functions(chosen);
  const GraphDef& graph = loops ? *loops : chosen;
  if (!branches && !loops && graph.library().function_size() == 0) return std::nullopt;
  InlinedGraph inlined = Inliner(graph).run();
  if (branches) inlined.problems.insert(branches->problems.begin(), branches->problems.end());
  return inlined;
}

}  // namespace braid
