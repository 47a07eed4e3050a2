// Passes from the graph to ops on streams: what is an op, in which order, on which stream. Each is one
// function and one file; engine/compile/passes.cc has the order. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Nodes to ops, values to buffers: views, constants, handles and feeds are no ops.
void lower(Plan& plan);

/// Every unordered read of a variable goes before its writes.
/// Throws: InvalidArgument naming two writes that nothing orders.
void order_variables(Plan& plan);

/// The stream of every op. Throws: InvalidArgument naming nodes with ids out of range or in conflict.
void assign_streams(Plan& plan);

/// Sorts the ops into issue order.
void set_issue_order(Plan& plan);

/// Writes the streams' instruction lists and numbers the events.
void write_instructions(Plan& plan);

}  // namespace braid
