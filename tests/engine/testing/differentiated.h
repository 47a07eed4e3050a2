// A model with the gradients of its variables, for tests of passes that rewrite what a device runs: a program
// of it means the same as the graph.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {

struct Differentiated {
  Graph graph;
  std::vector<std::pair<std::string, Tensor>> feeds;
  std::vector<std::string> fetches;  // the loss and the gradients of all dense variables

  std::shared_ptr<const Program> compiled(Domain domain = Domain::Device, int streams = 1,
                                          BatchSiblings batching = BatchSiblings::Off) const;
  /// Another node, of one input, that is fetched.
  void look_at(const std::string& name, ValueRef value, NodeId colocate_with = kNoNode);
};

Differentiated differentiated(const GraphBuilder& b, const Output& loss,
                              std::vector<std::pair<std::string, Tensor>> feeds);

/// The interpreter computes what is fetched from the program's graph as from the model's, but for rounding:
/// to `tolerance` of the largest element.
void expect_same_values(const Differentiated& model, const Program& program, float tolerance = 1e-5F);

}  // namespace braid::testing
