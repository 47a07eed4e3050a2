// What the passes hand on to each other: the program as far as it is made, and what only passes need. Each
// pass is one function; engine/compile/passes.cc has the order. Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/infer.h"
#include "engine/program/clocks.h"
#include "engine/program/options.h"
#include "engine/program/program.h"

namespace braid {

/// A use of a variable's memory as a value. What an op reads through views of ReadVariableOp `read` is the
/// value that the variable has at that node, which is after the ops `after`.
struct VariableRead {
  int op = 0;
  int input = 0;          // of that op
  NodeId read = kNoNode;  // none: the op takes the handle itself and reads when it runs
  std::vector<int> after;
};

struct Plan {
  Plan(const CompileRequest& request, const CompileOptions& options) : request(request), options(options) {}

  const CompileRequest& request;
  const CompileOptions& options;
  Program program;
  std::string_view pass;  // that runs now; its name in engine/compile/passes.cc

  // Made by resolve_request, from names.
  std::vector<FeedInfo> feeds;
  std::vector<ValueRef> fetches;
  std::vector<NodeId> targets;
  /// The feed of a value, or -1.
  int feed_of(ValueRef value) const;
  /// Whether all outputs of the node are fed, so that it does not run.
  bool is_fed(const Node& node) const;

  std::vector<Domain> domains;  // made by place, by node
  Domain domain_of(NodeId node) const { return domains[static_cast<std::size_t>(node)]; }

  std::vector<VariableRead> reads;  // made by lower; op numbers are those before set_issue_order

  // By op, made by place_events and order_steps.
  Clocks clocks;                                 // what is complete when the op starts
  std::vector<std::vector<int>> waits;           // ops of this step
  std::vector<std::vector<int>> previous_waits;  // ops of the step before

  ProgramOp& op(int index) { return program.ops[static_cast<std::size_t>(index)]; }
  const ProgramOp& op(int index) const { return program.ops[static_cast<std::size_t>(index)]; }
  ProgramBuffer& buffer(int index) { return program.buffers[static_cast<std::size_t>(index)]; }
  const ProgramBuffer& buffer(int index) const { return program.buffers[static_cast<std::size_t>(index)]; }
  /// What the pass that runs has to say about the program. compile() names it, as the table of passes does.
  void note(Severity severity, std::string text) {
    program.notes.push_back({severity, std::string(pass), std::move(text)});
  }
  void note(std::string text) { note(Severity::Detail, std::move(text)); }
  int ops() const { return static_cast<int>(program.ops.size()); }
  /// The node that the op stands for, or null.
  const Node* node_of(int index) const {
    const NodeId id = op(index).node;
    return id == kNoNode ? nullptr : &program.graph.node(id);
  }
};

/// Whether the op uses nothing but the shape of this input.
bool uses_shape_only(const Node& node, std::size_t input);

}  // namespace braid
