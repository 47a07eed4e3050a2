// Only names of outputs of ops with several differently named ones must be known (OpTraits::outputs): of all
// others k is the output's number.
#include "engine/import/function_library.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/import/function_values.h"
#include "engine/import/op_role.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

/// How many outputs the list has. `count` is an attribute, a list of types, or "*" for the last list.
int list_size(const NodeDef& node, std::string_view count) {
  const auto at = node.attr().find(std::string(count));
  return at == node.attr().end() ? 0 : at->second.list().type_size();
}

/// Ops that the registry does not have, since nothing of them is left in a graph.
constexpr std::pair<std::string_view, std::string_view> kSecondOutputs[] = {{"TensorListPopBack", "tensor"}};

/// The number of the first output of that name, by the op's own list; 0 where it does not say.
int first_output(const NodeDef& node, std::string_view name) {
  for (const auto& [second_of, output] : kSecondOutputs)
    if (node.op() == second_of && name == output) return 1;
  const OpDef* op = OpRegistry::global().find(node.op());
  if (!op || !op->traits.outputs) return 0;
  int before = 0;
  for (const OutputName& output : *op->traits.outputs) {
    if (output.name == name) return before;
    before += output.list.empty() ? 1 : list_size(node, output.list);
  }
  return 0;
}

bool is_case(const NodeDef& node) { return node.op() == "Case" || node.op() == "StatelessCase"; }
bool is_if(const NodeDef& node) { return node.op() == "If" || node.op() == "StatelessIf"; }

}  // namespace

FunctionLibrary::FunctionLibrary(const GraphDef& graph) {
  for (const FunctionDef& function : graph.library().function())
    functions_.emplace(function.signature().name(), &function);
  for (const GradientDef& gradient : graph.library().gradient())
    gradients_.emplace(gradient.function_name(), gradient.gradient_func());
}

FunctionCall FunctionLibrary::call_of(const NodeDef& node) const {
  if (const auto at = functions_.find(node.op()); at != functions_.end()) return {at->second, &node.attr()};
  if (node.op() == "PartitionedCall" || node.op() == "StatefulPartitionedCall")
    return function_attr(node, "f");
  if (is_guarded_assertion(node)) {
    FunctionCall call = function_attr(node, "else_branch");
    call.first_argument = 1;
    return call;
  }
  return {};
}

FunctionCall FunctionLibrary::function_attr(const NodeDef& node, const char* name) const {
  const auto f = node.attr().find(name);
  return f == node.attr().end() ? FunctionCall{} : function_of(f->second.func());
}

FunctionCall FunctionLibrary::function_of(const NameAttrList& function) const {
  const auto at = functions_.find(function.name());
  return at == functions_.end() ? FunctionCall{} : FunctionCall{at->second, &function.attr()};
}

AttrValue FunctionChoice::attr_of(const NodeDef& node, std::size_t branch) const {
  if (!by_number) return node.attr().at(branch == 0 ? "then_branch" : "else_branch");
  AttrValue attr;
  *attr.mutable_func() = node.attr().at("branches").list().func(static_cast<int>(branch));
  return attr;
}

/// TensorFlow 2 writes Assert(c, ...) as If(c, c, ...) with an Assert(c, ...) in the else branch and
/// nothing in the other. The else branch alone does the same.
bool FunctionLibrary::is_guarded_assertion(const NodeDef& node) const {
  if (!is_if(node)) return false;
  const FunctionCall taken = function_attr(node, "then_branch"), other = function_attr(node, "else_branch");
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
bool FunctionLibrary::only_computes(const FunctionDef& function, std::size_t nested) const {
  static constexpr std::string_view kEffects[] = {"Assert",  "Assign", "Print",         "Resource",
                                                  "Scatter", "Save",   "Queue",         "CheckNumerics",
                                                  "Apply",   "While",  "StatelessWhile"};
  return nested < kMostNested &&
         std::all_of(function.node_def().begin(), function.node_def().end(), [&](const NodeDef& inner) {
           const bool acts = std::any_of(std::begin(kEffects), std::end(kEffects),
                                         [&](std::string_view e) { return inner.op().starts_with(e); });
           if (acts && !inner.op().starts_with("ResourceGather")) return false;
           const FunctionCall call = call_of(inner);
           if (call.function) return only_computes(*call.function, nested + 1);
           return !(is_if(inner) || is_case(inner)) || !choice_at(inner, nested + 1).branches.empty();
         });
}

FunctionChoice FunctionLibrary::choice_at(const NodeDef& node, std::size_t nested) const {
  if (node.input_size() == 0) return {};
  FunctionChoice choice;
  if (is_if(node)) {
    const auto condition = node.attr().find("Tcond");
    if (condition == node.attr().end() || condition->second.type() != DT_BOOL) return {};
    choice.branches = {function_attr(node, "then_branch"), function_attr(node, "else_branch")};
  } else if (const auto branches = node.attr().find("branches");
             is_case(node) && branches != node.attr().end()) {
    choice.by_number = true;
    for (const NameAttrList& function : branches->second.list().func())
      choice.branches.push_back(function_of(function));
  }
  const auto can_be_computed = [&](const FunctionCall& branch) {
    return branch.function && branch.function->signature().output_arg_size() > 0 &&
           branch.function->signature().output_arg_size() ==
               choice.branches[0].function->signature().output_arg_size() &&
           only_computes(*branch.function, nested);
  };
  const auto& branches = choice.branches;
  return std::all_of(branches.begin(), branches.end(), can_be_computed) ? choice : FunctionChoice{};
}

int FunctionLibrary::output_number(const NodeDef& node, const std::vector<std::string>& parts) const {
  if (parts.size() == 2 && value_number(parts[1]) >= 0) return value_number(parts[1]);
  const int k = parts.size() > 2 ? std::max(value_number(parts[2]), 0) : 0;
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

std::string FunctionLibrary::own_gradient(const FunctionDef& function, const NodeDef& call) const {
  const auto at = gradients_.find(function.signature().name());
  if (at != gradients_.end()) return at->second;
  const auto type = call.attr().find(kOwnGradient);
  if (type == call.attr().end()) return {};
  const std::string& name = type->second.s();
  const bool is_usual = name == call.op() || name.starts_with("PartitionedCall-") ||
                        name.starts_with("StatefulPartitionedCall-");
  return is_usual ? std::string() : name;
}

std::set<std::string> unread_nodes(const FunctionDef& function) {
  std::set<std::string> names;
  for (const NodeDef& node : function.node_def()) names.insert(node.name());
  const auto use = [&](const std::string& input) {
    names.erase(value_parts(input.starts_with('^') ? input.substr(1) : input)[0]);
  };
  for (const NodeDef& node : function.node_def())
    for (const std::string& input : node.input()) use(input);
  for (const auto& [name, value] : function.ret()) use(value);
  return names;
}

}  // namespace braid
