// Models of equal towers, the graphs that batching of siblings is tested with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {

constexpr std::int64_t kRows = 6, kWide = 16;

struct TowersOptions {
  int towers = 4;
  int layers = 3;
  bool own_input = false;    // each tower has its own
  bool own_streams = false;  // each tower is in a scope
  OptimizerKind optimizer = OptimizerKind::Adam;
};

struct Towers {
  Graph graph;
  CompileRequest request;
  std::vector<std::string> tops;
};

/// Adds gradients and updates of all variables.
void add_training(Towers& made, OptimizerKind optimizer);

/// Towers of dense layers on one input (or one each), side by side into a mean of squares.
Towers make_towers(const TowersOptions& options, bool training);

/// Of a model that is not batched.
std::shared_ptr<const Program> compile_for(const Towers& model, Domain domain = Domain::Device);

/// Where the error of a value is measured.
enum class ErrorOf { Itself, LargestOfItsVariable };
/// Expects that a step of `program`, run by the interpreter from random values, leaves the variables as one
/// of the graph as it was written does, to 1e-5. REQUIRES: `x` is all that is fed.
void expect_variables_of_a_step(const Towers& model, const Program& program, ErrorOf error = ErrorOf::Itself);

std::shared_ptr<const Program> compile_towers(const Towers& towers, BatchSiblings batching, int streams = 1);
std::vector<Tensor> feeds_of(const Towers& towers, std::uint64_t step);

/// Losses of some steps from the variables' initial values.
std::vector<float> losses(const Towers& towers, const std::shared_ptr<const Program>& program,
                          Runtime& runtime, std::uint64_t steps = 12);
void expect_close(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace braid::testing
