// Passes on the graph as it was written: what is needed, with which shapes, what is the same, and where it
// runs. Each is one function and one file; engine/compile/passes.cc has the order. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Where the options say so: no node has a stream id.
void ignore_scopes(Plan& plan);

/// Names to values and nodes. Throws: InvalidArgument for one that does not exist, or is fed twice.
void resolve_request(Plan& plan);

/// Removes what no fetch or target needs. Runs again when shapes are known: then inputs of which only the
/// shape is used need their producers no longer.
void prune(Plan& plan, bool shapes_known);

/// Shapes and compile-time values for these feeds. Throws: InvalidArgument for a needed placeholder without
/// feed.
void infer_shapes(Plan& plan);

/// Control edges where an input is known, or only its shape is used: to the writes that were behind it.
void keep_write_order(Plan& plan);

/// Bypasses nodes that are identities for these shapes.
void simplify(Plan& plan);

/// Merges pure nodes that compute the same from the same inputs.
void eliminate_common_subexpressions(Plan& plan);

/// Which nodes run on the device; adds copies where values cross. Notes say what does not run there and why.
void place(Plan& plan);

}  // namespace braid
