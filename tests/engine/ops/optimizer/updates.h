// Runs update ops for their tests: what their variables hold afterwards, and what is refused.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {

inline constexpr StepParams kAnyStep{.step = 3, .learning_rate = 0.05F, .grad_scale = 0.5F};

/// Between `low` and 1.5.
Tensor drawn_f32(Shape shape, std::uint64_t seed, double low = -1);

/// Runs an update; the variables' values afterwards.
std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, std::vector<int> variables,
                           AttrMap attrs, const StepParams& params, int pool_width = 1);
/// The same where the first inputs are the variables.
std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, int variables, AttrMap attrs,
                           const StepParams& params, int pool_width = 1);
/// The message of what an update throws whose first inputs are the variables.
std::string update_refusal(const std::string& op, std::vector<Tensor> inputs, int variables,
                           AttrMap attrs = {});

/// Both are float32, with equal elements.
void expect_same(const Tensor& actual, const Tensor& expected);

}  // namespace braid::testing
