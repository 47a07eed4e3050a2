// Inside a function a value is "argument", "^node", or "node:output:k" (output by its name in the op's
// signature, k-th of a list). Only names of outputs of ops with several differently named ones must be known
// (OpTraits::outputs): of all others k is the output's number.
#include "engine/import/inline_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/import/choose_branches.h"
#include "engine/import/loops_as_functions.h"
#include "engine/import/op_role.h"
#include "engine/import/pending_graph.h"
#include "engine/import/tensor_lists.h"
#include "engine/import/unroll_loops.h"

namespace braid {
namespace {

constexpr const char* kOwnGradient = "_gradient_op_type";
constexpr std::size_t kMostNested = 200;  // each takes some of the stack, and adds to the names

/// How many outputs the list has. `count` is an attribute, a list of types, or "*" for the last list.
int list_size(const NodeDef& node, std::string_view count) {
  const auto at = node.attr().find(std::string(count));
  return at == node.attr().end() ? 0 : at->second.list().type_size();
}

/// The number of the first output of that name, by the op's own list; 0 where it does not say.
int first_output(const NodeDef& node, std::string_view name) {
  const OpDef* op = OpRegistry::global().find(node.op());
  if (!op || !op->traits.outputs) return 0;
  int before = 0;
  for (const OutputName& output : *op->traits.outputs) {
    if (output.name == name) return before;
    before += output.list.empty() ? 1 : list_size(node, output.list);
  }
  return 0;
}

std::vector<std::string> split_at_colons(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t colon; (colon = text.find(':', at)) != std::string::npos; at = colon + 1)
    parts.push_back(text.substr(at, colon - at));
  parts.push_back(text.substr(at));
  return parts;
}

/// -1 when it is none.
int number_of(std::string_view text) {
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? number : -1;
}

std::string value_name(const std::string& node, int output) {
  return output == 0 ? node : node + ":" + std::to_string(output);
}

using Attrs = google::protobuf::Map<std::string, AttrValue>;

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

/// A call: the function and the attributes that its placeholders stand for.
struct Call {
  const FunctionDef* function = nullptr;
  const Attrs* attrs = nullptr;
  std::size_t first_argument = 0;  // among the node's inputs
};

class Inliner {
 public:
  explicit Inliner(const GraphDef& graph) : source_(graph) {
    for (const FunctionDef& function : graph.library().function())
      functions_.emplace(function.signature().name(), &function);
    for (const GradientDef& gradient : graph.library().gradient())
      gradients_.emplace(gradient.function_name(), gradient.gradient_func());
  }

  InlinedGraph run() {
    *result_.graph.mutable_versions() = source_.versions();
    for (const NodeDef& node : source_.node()) expand(node);
    for (NodeDef& node : *result_.graph.mutable_node())
      for (std::string& input : *node.mutable_input()) input = resolved(input);
    lower_tensor_lists(result_.graph);
    return std::move(result_);
  }

 private:
  Call call_of(const NodeDef& node) const {
    if (const auto at = functions_.find(node.op()); at != functions_.end()) return {at->second, &node.attr()};
    if (node.op() == "PartitionedCall" || node.op() == "StatefulPartitionedCall")
      return function_attr(node, "f");
    if (is_guarded_assertion(node)) {
      Call call = function_attr(node, "else_branch");
      call.first_argument = 1;
      return call;
    }
    return {};
  }

  /// The function that an attribute names, if the library has it.
  Call function_attr(const NodeDef& node, const char* name) const {
    const auto f = node.attr().find(name);
    if (f == node.attr().end()) return {};
    const auto at = functions_.find(f->second.func().name());
    return at == functions_.end() ? Call{} : Call{at->second, &f->second.func().attr()};
  }

  /// TensorFlow 2 writes Assert(c, ...) as If(c, c, ...) with an Assert(c, ...) in the else branch and
  /// nothing in the other. The else branch alone does the same.
  bool is_guarded_assertion(const NodeDef& node) const {
    if (!is_if(node)) return false;
    const Call taken = function_attr(node, "then_branch"), other = function_attr(node, "else_branch");
    if (!taken.function || !other.function || node.input_size() < 2) return false;
    const auto passes_on = [](const NodeDef& inner) {
      const OpRole role = role_of(inner.op());
      return role == OpRole::Identity || role == OpRole::Nothing;
    };
    const auto& body = taken.function->node_def();
    if (!std::all_of(body.begin(), body.end(), passes_on)) return false;
    int assertions = 0;
    for (const NodeDef& inner : other.function->node_def()) {
      if (passes_on(inner) || role_of(inner.op()) == OpRole::Constant) continue;
      if (inner.op() != "Assert" || inner.input_size() == 0) return false;
      const auto& arguments = other.function->signature().input_arg();
      const auto at = std::find_if(arguments.begin(), arguments.end(),
                                   [&](const auto& a) { return a.name() == inner.input(0); });
      const auto input = static_cast<int>(at - arguments.begin()) + 1;
      if (at == arguments.end() || input >= node.input_size() || node.input(input) != node.input(0))
        return false;
      ++assertions;
    }
    return assertions > 0;
  }

  /// Whether the nodes only compute, as far as a function's and those of functions that it calls go.
  bool only_computes(const FunctionDef& function, std::size_t nested = 0) const {
    static constexpr std::string_view kEffects[] = {"Assert",  "Assign", "Print",         "Resource",
                                                    "Scatter", "Save",   "Queue",         "CheckNumerics",
                                                    "Apply",   "While",  "StatelessWhile"};
    return nested < kMostNested &&
           std::all_of(function.node_def().begin(), function.node_def().end(), [&](const NodeDef& inner) {
             const bool acts = std::any_of(std::begin(kEffects), std::end(kEffects),
                                           [&](std::string_view e) { return inner.op().starts_with(e); });
             if (acts && inner.op() != "ResourceGather") return false;
             const Call call = call_of(inner);
             if (call.function) return only_computes(*call.function, nested + 1);
             return !is_if(inner) || choice_of(inner, nested + 1).taken.function != nullptr;
           });
  }

  struct Choice {
    Call taken, other;
  };

  static bool is_if(const NodeDef& node) { return node.op() == "If" || node.op() == "StatelessIf"; }

  /// The branches of an If that can both be computed: they have no effects, and its condition is a bool.
  Choice choice_of(const NodeDef& node, std::size_t nested = 0) const {
    if (!is_if(node) || node.input_size() == 0) return {};
    const auto condition = node.attr().find("Tcond");
    if (condition == node.attr().end() || condition->second.type() != DT_BOOL) return {};
    const Choice choice{function_attr(node, "then_branch"), function_attr(node, "else_branch")};
    for (const Call& branch : {choice.taken, choice.other})
      if (!branch.function || !only_computes(*branch.function, nested)) return {};
    const int outputs = choice.taken.function->signature().output_arg_size();
    return outputs > 0 && outputs == choice.other.function->signature().output_arg_size() ? choice : Choice{};
  }

  /// Both branches are calls, and a Select an output stands for the If.
  void expand_choice(const NodeDef& node, int outputs) {
    for (const char* side : {"then", "else"}) {
      NodeDef branch;
      branch.set_name(node.name() + "/" + side);
      branch.set_op("PartitionedCall");
      branch.set_device(node.device());
      for (int i = 1; i < node.input_size(); ++i) branch.add_input(node.input(i));
      (*branch.mutable_attr())["f"] = node.attr().at(std::string(side) + "_branch");
      annotate(branch, node);
      expand(branch);
    }
    NodeDef whole;
    whole.set_name(node.name());
    whole.set_device(node.device());
    annotate(whole, node);
    std::vector<std::string>& values = results_[node.name()];
    for (int o = 0; o < outputs; ++o) {
      NodeDef select;
      select.set_name(node.name() + "/choice" + std::to_string(o));
      select.set_op("Select");
      select.set_device(node.device());
      annotate(select, node);
      select.add_input(node.input(0));
      for (const char* side : {"/then", "/else"}) select.add_input(value_name(node.name() + side, o));
      values.push_back(select.name());
      whole.add_input(select.name());
      *result_.graph.add_node() = std::move(select);
    }
    whole.set_op(outputs == 1 ? "Identity" : "IdentityN");
    for (const std::string& input : node.input())
      if (input.starts_with('^')) whole.add_input(input);
    *result_.graph.add_node() = std::move(whole);
  }

  void expand(const NodeDef& node) {
    const Call call = call_of(node);
    if (!call.function) {
      if (const Choice choice = choice_of(node); choice.taken.function)
        return expand_choice(node, choice.taken.function->signature().output_arg_size());
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
        const Call call = function_attr(node, name);
        if (!call.function) throw InvalidArgument("the loop has no function '" + std::string(name) + "'");
        part->set_op(call.function->signature().name());
        *part->mutable_attr() = *call.attrs;
        part->set_device(node.device());
        annotate(*part, node);
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

  void expand_call(const NodeDef& node, const Call& call) {
    const FunctionDef& function = *call.function;
    const std::string& name = function.signature().name();
    if (open_.contains(name)) throw InvalidArgument("function '" + name + "' calls itself");
    if (open_.size() >= kMostNested)
      throw InvalidArgument(fmt::format("calls of functions are nested more than {} deep", kMostNested));
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
  NodeDef placed(const NodeDef& inner, const Scope& scope, const Call& call) const {
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

  static void substitute(AttrValue& value, const FunctionDef& function, const Attrs& attrs) {
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
    const std::vector<std::string> parts = split_at_colons(control ? input.substr(1) : input);
    const auto at = scope.body.find(parts[0]);
    if (at == scope.body.end())
      throw InvalidArgument("function '" + scope.function.signature().name() + "' has no value '" + input +
                            "'");
    const std::string node = scope.call.name() + "/" + parts[0];
    return control ? "^" + node : value_name(node, output_number(*at->second, parts));
  }

  /// Of {node, output name, k}, or {node, k}.
  int output_number(const NodeDef& node, const std::vector<std::string>& parts) const {
    if (parts.size() == 2 && number_of(parts[1]) >= 0) return number_of(parts[1]);
    const int k = parts.size() > 2 ? std::max(number_of(parts[2]), 0) : 0;
    if (parts.size() < 2) return k;
    // The outputs of PartitionedCall are one list, those of a call by name have the function's names.
    if (const auto named = functions_.find(node.op()); named != functions_.end()) {
      const auto& outputs = named->second->signature().output_arg();
      const auto at =
          std::find_if(outputs.begin(), outputs.end(), [&](const auto& o) { return o.name() == parts[1]; });
      return static_cast<int>(at - outputs.begin()) + k;
    }
    return first_output(node, parts[1]) + k;
  }

  /// The gradient that the call has instead of its nodes'; empty: none. What TensorFlow 2 writes on every
  /// call, "PartitionedCall-7", is the name of the usual one.
  std::string own_gradient(const Scope& scope) const {
    const auto at = gradients_.find(scope.function.signature().name());
    if (at != gradients_.end()) return at->second;
    const auto type = scope.call.attr().find(kOwnGradient);
    if (type == scope.call.attr().end()) return {};
    const std::string& name = type->second.s();
    const bool is_usual = name == scope.call.op() || name.starts_with("PartitionedCall-") ||
                          name.starts_with("StatefulPartitionedCall-");
    return is_usual ? std::string() : name;
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
    if (effects.empty()) effects = unused(scope.function);
    for (const std::string& effect : effects) node.add_input("^" + scope.call.name() + "/" + effect);
    // Nobody reads past a node that says where the usual gradient ends.
    if (const std::string own = own_gradient(scope); !own.empty())
      (*node.mutable_attr())[kOwnGradient].set_s(own);
    else
      results_[scope.call.name()] = std::move(values);
    *result_.graph.add_node() = node;
  }

  /// Nodes that nobody in the function reads: in older files those that run for their effect.
  static std::set<std::string> unused(const FunctionDef& function) {
    std::set<std::string> names;
    for (const NodeDef& node : function.node_def()) names.insert(node.name());
    const auto use = [&](const std::string& input) {
      names.erase(split_at_colons(input.starts_with('^') ? input.substr(1) : input)[0]);
    };
    for (const NodeDef& node : function.node_def())
      for (const std::string& input : node.input()) use(input);
    for (const auto& [name, value] : function.ret()) use(value);
    return names;
  }

  /// A call's output is the value inside it, which may be another call's.
  std::string resolved(std::string input) const {
    while (!input.starts_with('^')) {
      const std::size_t colon = input.rfind(':');
      const auto at = results_.find(input.substr(0, colon));
      const int output =
          colon == std::string::npos ? 0 : number_of(std::string_view(input).substr(colon + 1));
      if (at == results_.end() || output < 0 || output >= static_cast<int>(at->second.size())) break;
      input = at->second[static_cast<std::size_t>(output)];
    }
    return input;
  }

  const GraphDef& source_;
  std::unordered_map<std::string, const FunctionDef*> functions_;
  std::unordered_map<std::string, std::string> gradients_;  // of functions that have one of their own
  std::set<std::string> open_;                              // the functions that are being expanded
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
