// Reference variables -> handles. A VariableV2 `v` becomes a VarHandleOp `v/handle` (variable name `v`) and a
// ReadVariableOp `v`, so that whoever uses or fetches `v` gets its value. An op that writes through a
// reference takes the handle; its output, the reference after the write, becomes a ReadVariableOp that waits
// for it. Reads that carry control inputs get a ReadVariableOp of their own that waits for the same.
// TensorFlow reads a reference when its user runs, also through an Identity, which is the variable's memory:
// a user that comes after a write, over whatever path, sees what was written. Edges make that explicit; reads
// that no path orders come before the step's writes.
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "engine/import/op_role.h"
#include "engine/import/pending_graph.h"

namespace braid {

namespace {

struct RefOp {
  std::string_view op;
  std::string_view lowered;
  int references;         // leading inputs that are references: the variable and its slots
  bool output_is_wanted;  // its output is commonly used or fetched as a value (optimizers: as a target only)
};

constexpr RefOp kRefOps[] = {
    {"Assign", "AssignVariableOp", 1, true},
    {"AssignAdd", "AssignAddVariableOp", 1, true},
    {"AssignSub", "AssignSubVariableOp", 1, true},
    {"ScatterAdd", "ResourceScatterAdd", 1, true},
    {"ScatterSub", "ResourceScatterSub", 1, true},
    {"ScatterMul", "ResourceScatterMul", 1, true},
    {"ScatterDiv", "ResourceScatterDiv", 1, true},
    {"ScatterMin", "ResourceScatterMin", 1, true},
    {"ScatterMax", "ResourceScatterMax", 1, true},
    {"ScatterUpdate", "ResourceScatterUpdate", 1, true},
    {"ScatterNdAdd", "ResourceScatterNdAdd", 1, true},
    {"ScatterNdSub", "ResourceScatterNdSub", 1, true},
    {"ScatterNdUpdate", "ResourceScatterNdUpdate", 1, true},
    {"ScatterNdMin", "ResourceScatterNdMin", 1, true},
    {"ScatterNdMax", "ResourceScatterNdMax", 1, true},
    {"ApplyGradientDescent", "ResourceApplyGradientDescent", 1, false},
    {"ApplyMomentum", "ResourceApplyMomentum", 2, false},
    {"ApplyAdagrad", "ResourceApplyAdagrad", 2, false},
    {"ApplyAdagradV2", "ResourceApplyAdagradV2", 2, false},
    {"ApplyAdadelta", "ResourceApplyAdadelta", 3, false},
    {"ApplyAdam", "ResourceApplyAdam", 3, false},
    {"ApplyRMSProp", "ResourceApplyRMSProp", 3, false},
    {"ApplyCenteredRMSProp", "ResourceApplyCenteredRMSProp", 4, false},
    {"ApplyFtrl", "ResourceApplyFtrl", 3, false},
    {"ApplyFtrlV2", "ResourceApplyFtrlV2", 3, false},
    {"ApplyAdaMax", "ResourceApplyAdaMax", 3, false},
    {"ApplyAddSign", "ResourceApplyAddSign", 2, false},
    {"ApplyPowerSign", "ResourceApplyPowerSign", 2, false},
    {"ApplyProximalGradientDescent", "ResourceApplyProximalGradientDescent", 1, false},
    {"ApplyProximalAdagrad", "ResourceApplyProximalAdagrad", 2, false},
    {"SparseApplyProximalGradientDescent", "ResourceSparseApplyProximalGradientDescent", 1, false},
    {"SparseApplyProximalAdagrad", "ResourceSparseApplyProximalAdagrad", 2, false},
    {"SparseApplyMomentum", "ResourceSparseApplyMomentum", 2, false},
    {"SparseApplyAdagrad", "ResourceSparseApplyAdagrad", 2, false},
    {"SparseApplyAdagradV2", "ResourceSparseApplyAdagradV2", 2, false},
    {"SparseApplyRMSProp", "ResourceSparseApplyRMSProp", 3, false},
    {"SparseApplyCenteredRMSProp", "ResourceSparseApplyCenteredRMSProp", 4, false},
    {"SparseApplyAdadelta", "ResourceSparseApplyAdadelta", 3, false},
    {"SparseApplyFtrl", "ResourceSparseApplyFtrl", 3, false},
    {"SparseApplyFtrlV2", "ResourceSparseApplyFtrlV2", 3, false},
};

const RefOp* find_ref_op(std::string_view op) {
  const auto* it =
      std::find_if(std::begin(kRefOps), std::end(kRefOps), [&](const RefOp& row) { return row.op == op; });
  return it == std::end(kRefOps) ? nullptr : it;
}

struct Reference {
  int handle = 0;  // the VarHandleOp
  int write = -1;  // the reference is what this node has written, or the variable itself
};

class VariableLowering {
 public:
  explicit VariableLowering(PendingGraph& graph) : graph_(graph) {}

  void run() {
    const std::vector<std::int32_t> order = graph_.order().order;
    note_users();
    mark_used();
    for (const std::int32_t index : order) lower(index);
    for (const std::int32_t index : order) {
      const auto row = writes_.find(index);
      if (row == writes_.end() || !row->second->output_is_wanted) continue;
      const bool is_target_only = used_as_control_.contains(index) && !used_as_value_.contains(index);
      if (!is_target_only) value_after(index);
    }
  }

 private:
  PendingNode& node(int index) { return graph_.nodes[static_cast<std::size_t>(index)]; }

  void note_users() {
    users_.resize(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const PendingInput input : graph_.nodes[i].inputs)
        users_[static_cast<std::size_t>(input.node)].push_back(static_cast<int>(i));
      for (const int control : graph_.nodes[i].controls)
        users_[static_cast<std::size_t>(control)].push_back(static_cast<int>(i));
    }
  }

  /// What runs after a write.
  const std::unordered_set<int>& after(int write) {
    const auto [at, is_new] = after_.try_emplace(write);
    if (!is_new) return at->second;
    std::vector<int> open{write};
    while (!open.empty()) {
      const int from = open.back();
      open.pop_back();
      for (const int user : users_[static_cast<std::size_t>(from)])
        if (at->second.insert(user).second) open.push_back(user);
    }
    return at->second;
  }

  /// The writes of a variable that come before `user` on some path.
  std::vector<int> writes_before(int user, int handle) {
    std::vector<int> writes;
    const auto at = writes_of_.find(handle);
    if (at == writes_of_.end()) return writes;
    for (const int write : at->second)
      if (write != user && after(write).contains(user)) writes.push_back(write);
    return writes;
  }

  void mark_used() {
    for (const PendingNode& user : graph_.nodes) {
      for (const PendingInput input : user.inputs) used_as_value_.insert(input.node);
      for (const int control : user.controls) used_as_control_.insert(control);
    }
  }

  void lower(int index) {
    const std::string op = node(index).op;
    if (op == "VariableV2" || op == "Variable") {
      lower_variable(index);
    } else if (const RefOp* row = find_ref_op(op)) {
      lower_ref_op(index, *row);
    } else if (op == "Identity" || op == "RefIdentity") {
      lower_identity(index);
    } else {
      lower_reads(index);
    }
  }

  // A VarHandleOp beside `index`, which keeps its name for the value.
  int add_handle(int index, DType dtype, Shape shape, std::string variable) {
    PendingNode handle;
    handle.name = node(index).name + "/handle";
    handle.op = "VarHandleOp";
    handle.device = node(index).device;
    handle.attrs =
        AttrMap{{"dtype", dtype}, {"shape", std::move(shape)}, {"shared_name", std::move(variable)}};
    for (const char* hint : {"_trainable", "_sparse", "_init_kind", "_init_a", "_init_b"}) {
      if (const Attr* attr = node(index).attrs.find(hint)) handle.attrs.set(hint, *attr);
    }
    return graph_.add(std::move(handle));
  }

  void make_read(int index, const Reference& reference) {
    PendingNode& read = node(index);
    read.op = "ReadVariableOp";
    read.inputs = {{reference.handle, 0}};
    if (reference.write >= 0) read.controls.push_back(reference.write);
    read.attrs.set("dtype", dtype_of_handle(reference.handle));
  }

  DType dtype_of_handle(int handle) { return node(handle).attrs.require<DType>("dtype"); }

  void lower_variable(int index) {
    try {
      const AttrMap& attrs = node(index).attrs;
      std::string variable = attrs.get<std::string>("shared_name", "");
      if (variable.empty()) variable = node(index).name;
      const int handle =
          add_handle(index, attrs.require<DType>("dtype"), attrs.require<Shape>("shape"), variable);
      references_[index] = {handle, -1};
      make_read(index, references_[index]);
    } catch (const InvalidArgument& error) {
      node(index).add_problem(error.message());
    }
  }

  std::optional<Reference> reference_of(const PendingInput& input) {
    const auto it = references_.find(input.node);
    if (it == references_.end() || input.output != 0) return std::nullopt;
    return it->second;
  }

  // Freezing a graph turns variables into constants and leaves the assignments to them. An assignment
  // replaces the constant's value, so the variable needs none.
  std::optional<Reference> reference_of_frozen(const PendingInput& input, std::string_view op) {
    if (op != "Assign" || role_of(node(input.node).op) != OpRole::Constant || input.output != 0)
      return std::nullopt;
    const Attr* value = node(input.node).attrs.find("value");
    const Tensor* tensor = value ? std::get_if<Tensor>(static_cast<const AttrValue_*>(value)) : nullptr;
    if (!tensor) return std::nullopt;
    return Reference{add_handle(input.node, tensor->dtype(), tensor->shape(), node(input.node).name), -1};
  }

  void lower_ref_op(int index, const RefOp& row) {
    if (static_cast<int>(node(index).inputs.size()) < row.references)
      return;  // the op's input count is checked later
    for (int i = 0; i < row.references; ++i) {
      const PendingInput input = node(index).inputs[static_cast<std::size_t>(i)];
      std::optional<Reference> reference = reference_of(input);
      if (!reference) reference = reference_of_frozen(input, row.op);
      if (!reference) {
        node(index).add_problem("input " + std::to_string(i) + " ('" + node(input.node).name +
                                "') is not a variable");
        return;
      }
      node(index).inputs[static_cast<std::size_t>(i)] = {reference->handle, 0};
      if (reference->write >= 0) node(index).controls.push_back(reference->write);
      if (i == 0) references_[index] = {reference->handle, index};
    }
    // An Assign of a value that nobody else holds puts that in place of the variable's memory.
    const bool in_place = row.op != "Assign" || is_held(node(index).inputs.back().node);
    node(index).op = row.lowered;
    node(index).attrs.set("dtype", dtype_of_handle(references_[index].handle));
    writes_[index] = &row;
    lower_reads(index);
    if (in_place) writes_of_[references_[index].handle].push_back(index);
  }

  bool is_held(int value) {
    const OpRole role = role_of(node(value).op);
    return role == OpRole::Constant || role == OpRole::Placeholder;
  }

  void lower_identity(int index) {
    if (node(index).inputs.size() != 1) return;
    const PendingInput input = node(index).inputs[0];
    const std::optional<Reference> reference = reference_of(input);
    if (reference) {
      if (node(index).op == "RefIdentity")
        references_[index] = *reference;
      else
        aliases_[index] = *reference;
      make_read(index, *reference);
    } else if (const auto alias = aliases_.find(input.node); alias != aliases_.end()) {
      aliases_[index] = alias->second;
      const std::vector<int> writes = writes_before(index, alias->second.handle);
      if (writes.empty()) return;
      make_read(index, alias->second);
      node(index).controls.insert(node(index).controls.end(), writes.begin(), writes.end());
    }
  }

  // Uses of references as values.
  void lower_reads(int index) {
    for (std::size_t i = 0; i < node(index).inputs.size(); ++i) {
      const PendingInput input = node(index).inputs[i];
      const std::optional<Reference> reference = reference_of(input);
      const auto alias = aliases_.find(input.node);
      if (!reference && alias == aliases_.end()) continue;
      const Reference& from = reference ? *reference : alias->second;
      const std::vector<int> writes = writes_before(index, from.handle);
      if (!writes.empty() || (reference && !node(index).controls.empty())) {
        node(index).inputs[i] = {add_read(index, from, writes), 0};
      } else if (reference && reference->write >= 0) {
        node(index).inputs[i] = {value_after(reference->write), 0};
      }
    }
  }

  int add_read(int user, const Reference& reference, const std::vector<int>& writes) {
    PendingNode read;
    read.name = node(user).name + "/read";
    read.device = node(user).device;
    read.controls = node(user).controls;
    read.controls.insert(read.controls.end(), writes.begin(), writes.end());
    const int index = graph_.add(std::move(read));
    make_read(index, reference);
    return index;
  }

  // The read that takes over the name of a write whose output is used as a value.
  int value_after(int write) {
    if (const auto it = values_.find(write); it != values_.end()) return it->second;
    PendingNode read;
    read.name = node(write).name;
    read.device = node(write).device;
    node(write).name += "/write";
    graph_.names.erase(read.name);
    while (!graph_.names.insert(node(write).name).second) node(write).name += "_";
    const int index = graph_.add(std::move(read));
    make_read(index, references_.at(write));
    return values_[write] = index;
  }

  PendingGraph& graph_;
  std::map<int, Reference> references_;        // by the node whose output 0 is a reference
  std::map<int, Reference> aliases_;           // by the Identity whose output is a variable's memory
  std::vector<std::vector<int>> users_;        // of each node of the file, also those that only wait for it
  std::map<int, std::vector<int>> writes_of_;  // handle -> what changes its variable's memory
  std::map<int, std::unordered_set<int>> after_;  // write -> all that comes after it
  std::map<int, const RefOp*> writes_;            // nodes that came from kRefOps
  std::map<int, int> values_;                     // write -> the read of what it has written
  std::unordered_set<int> used_as_value_;
  std::unordered_set<int> used_as_control_;
};

}  // namespace

void lower_reference_variables(PendingGraph& graph) { VariableLowering(graph).run(); }

}  // namespace braid
