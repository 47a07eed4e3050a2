#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

namespace {

/// All ops on variables of that type.
void add_all(OpCaseTable& table, const std::string& label, DType dtype) {
  const auto variable = [&](std::uint64_t seed) {
    return converted(random_f64({4, 3}, seed, 0.5, 1.5), dtype);
  };
  const auto scalar = [&](double value) { return converted(f64({}, {value}), dtype); };
  const Tensor w = variable(1), m = variable(2), v = variable(3), indices = axes({2, 0, 2});
  const Tensor g = converted(random_f64({4, 3}, 4, 0.5, 1.5), dtype);
  const Tensor rows = converted(random_f64({3, 3}, 5, 0.5, 1.5), dtype);
  const Tensor lr = scalar(0.1), mu = scalar(0.9), eps = scalar(1e-3), power = scalar(0.5);
  const auto add = [&](const char* op, std::vector<Tensor> inputs, std::vector<int> variables,
                       AttrMap attrs = {}) {
    table.add(op, {.label = attrs.has("use_nesterov") ? label + ", nesterov" : label,
                   .inputs = std::move(inputs),
                   .attrs = std::move(attrs),
                   .variables = std::move(variables)});
  };
  add("ResourceApplyGradientDescent", {w, lr, g}, {0});
  add("ResourceApplyMomentum", {w, m, lr, g, mu}, {0, 1});
  add("ResourceApplyMomentum", {w, m, lr, g, mu}, {0, 1}, {{"use_nesterov", true}});
  add("ResourceApplyKerasMomentum", {w, m, lr, g, mu}, {0, 1});
  add("ResourceApplyAdagrad", {w, m, lr, g}, {0, 1});
  add("ResourceApplyAdagradV2", {w, m, lr, eps, g}, {0, 1});
  add("ResourceApplyAdam", {w, m, v, power, power, lr, mu, mu, eps, g}, {0, 1, 2});
  add("ResourceApplyAdam", {w, m, v, power, power, lr, mu, mu, eps, g}, {0, 1, 2}, {{"use_nesterov", true}});
  add("ResourceSparseApplyMomentum", {w, m, lr, rows, indices, mu}, {0, 1});
  add("ResourceSparseApplyKerasMomentum", {w, m, lr, rows, indices, mu}, {0, 1});
  add("ResourceSparseApplyAdagrad", {w, m, lr, rows, indices}, {0, 1});
  add("ResourceSparseApplyAdagradV2", {w, m, lr, eps, rows, indices}, {0, 1});
}

}  // namespace

BRAID_OP_CASES(resource_apply) {
  add_all(table, "float32", DType::Float32);
  add_all(table, "float64", DType::Float64);
}

}  // namespace braid::testing
