// Random graphs of test ops for property tests: reads and ordered writes of variables, views, joins,
// constants, control edges, operations in place, asynchronous nodes, and random streams.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/engine/testing/test_ops.h"

namespace braid::testing {

struct RandomGraph {
  TestGraph g;
  std::vector<FeedSpec> feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  CompileOptions options;
};

struct RandomGraphOptions {
  int nodes = 30;
  bool lanes = true;  // asynchronous nodes
  bool variables = true;
  Domain domain = Domain::Host;
  int on_host = 0;  // percent of the nodes of a device's program that ask for the host
};

/// The same seed gives the same graph. Some have reads and writes that no order satisfies; compile() says so.
RandomGraph make_random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

/// How often a property is tried: as the environment's `variable` says, else `usual`; `sanitized` in a build
/// under sanitizers.
int tries(const char* variable, int usual, int sanitized);

}  // namespace braid::testing
