// What the passes hand on to each other: the program as far as it is made, and what only passes need. Each
// pass is one function and one file; compile.cc calls them in order. Thread rule: one thread.
#pragma once

#include <vector>

#include "engine/exec/program.h"
#include "engine/ir/infer.h"
#include "engine/passes/clocks.h"
#include "engine/passes/compile.h"

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
  int ops() const { return static_cast<int>(program.ops.size()); }
  /// The node that the op stands for, or null.
  const Node* node_of(int index) const {
    const NodeId id = op(index).node;
    return id == kNoNode ? nullptr : &program.graph.node(id);
  }
};

/// Whether the op uses nothing but the shape of this input.
bool uses_shape_only(const Node& node, std::size_t input);

// In the order in which compile() calls them.

/// Names to values and nodes. Throws: InvalidArgument for one that does not exist, or is fed twice.
void resolve_request(Plan& plan);
/// Removes what no fetch or target needs. Runs again when shapes are known: then inputs of which only the
/// shape is used need their producers no longer.
void prune(Plan& plan, bool shapes_known);
/// Shapes and compile-time values for these feeds. Throws: InvalidArgument for a needed placeholder without
/// feed.
void infer_shapes(Plan& plan);
/// Bypasses nodes that are identities for these shapes.
void simplify(Plan& plan);
/// Merges pure nodes that compute the same from the same inputs.
void merge_duplicates(Plan& plan);
/// Products of pairs of vectors of which some are gathered, and their gradients, as one node on a device.
void fuse_pair_dots(Plan& plan);
/// The sum of outer products of many pairs of vectors as one node on a device.
void fuse_outer_products(Plan& plan);
/// Zeros beside the columns of a device's products, where rows would not be a multiple of 16 bytes.
void align_products(Plan& plan);
/// Puts chains of short nodes of a device's program into one.
void fuse(Plan& plan);
/// On a device: lanes that are joined are written, and their gradients read, where they belong.
void join_outputs(Plan& plan);
/// On a device: the gradients of a head of one output, of its weights and of the layer below, in one node.
void fuse_heads(Plan& plan);
/// On a device: the gradients of a layer that reads few inputs of the model, in one node.
void fuse_input_gradients(Plan& plan);
/// On a device: plain gradient descent as the last step of the product that is the gradient.
void fuse_updates(Plan& plan);
/// On a device: gradients of layers lie as the products that sum over their rows like it.
void column_gradients(Plan& plan);
/// Which nodes run on the device; adds copies where values cross. Notes say what does not run there and why.
void place(Plan& plan);
/// One node for many gathers, and one for many small updates, of a device's program.
void group_gathers(Plan& plan);
void group_updates(Plan& plan);
/// Of sparse updates, the grouping of their rows as a node that waits for indices only.
void split_updates(Plan& plan);
/// Nodes to ops, values to buffers: views, constants, handles and feeds are no ops.
void lower(Plan& plan);
/// Every unordered read of a variable goes before its writes.
/// Throws: InvalidArgument naming two writes that nothing orders.
void order_variables(Plan& plan);
/// OpDef costs to microseconds.
void model_costs(Plan& plan);
/// The stream of every op. Throws: InvalidArgument naming nodes with ids out of range or in conflict.
void assign_streams(Plan& plan);
/// Sorts the ops into issue order.
void set_issue_order(Plan& plan);
/// The two that follow; where the arena shrinks by them, with dependencies between streams that let large
/// buffers share memory and are predicted to stop nobody.
void place_events_and_memory(Plan& plan);
/// The smallest set of waits within a step.
void place_events(Plan& plan);
/// Arena offsets, in-place outputs.
void plan_memory(Plan& plan);
/// Waits on the step before, where two steps may be in flight.
void order_steps(Plan& plan);
/// Writes the streams' instruction lists and numbers the events.
void write_instructions(Plan& plan);

}  // namespace braid
