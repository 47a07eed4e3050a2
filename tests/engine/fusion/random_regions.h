// Random graphs of ops that regions take, with what keeps them apart in between: elementwise ops of floats,
// integers and bools, casts, halves, dropout, broadcasts of scalars, rows and columns, reductions of rows,
// softmax and its gradient, views, parts taken out and joined, and nodes that no region takes. Inputs have
// NaN, infinities, zeros of both signs and numbers of all sizes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/program/options.h"

namespace braid::testing {

struct RandomRegions {
  Graph graph;
  std::vector<std::pair<std::string, Tensor>> feeds;
  std::vector<std::string> fetches;

  CompileRequest request() const;
  /// The fetches, node by node, in the step of these parameters.
  std::vector<Tensor> interpreted(const StepParams& params) const;
};

enum class Numbers {
  Any,     // inputs have NaN, infinities and huge numbers
  Smooth,  // and only ops through which a rounding error stays small
};
RandomRegions make_random_regions(std::uint64_t seed, Numbers numbers = Numbers::Any);

/// Empty where they are equal: the same bits, any NaN for any other. With `tolerance` above 0, numbers may
/// differ by that share of the largest finite one.
std::string difference(const Tensor& expected, const Tensor& got, double tolerance = 0);

}  // namespace braid::testing
