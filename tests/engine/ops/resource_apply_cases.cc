#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_resource_apply(OpCaseTable& table) {
  const auto f32_of = [](Shape shape, std::uint64_t seed) {
    return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
  };
  const Tensor w = f32_of({4, 3}, 1), m = f32_of({4, 3}, 2), v = f32_of({4, 3}, 3), g = f32_of({4, 3}, 4);
  const Tensor rows = f32_of({3, 3}, 5), indices = axes({2, 0, 2});
  const Tensor lr = f32({}, {0.1F}), mu = f32({}, {0.9F}), eps = f32({}, {1e-3F}), power = f32({}, {0.5F});
  const auto add = [&](const char* op, std::vector<Tensor> inputs, std::vector<int> variables) {
    table.add(op, {.label = op, .inputs = std::move(inputs), .variables = std::move(variables)});
  };
  add("ResourceApplyGradientDescent", {w, lr, g}, {0});
  add("ResourceApplyMomentum", {w, m, lr, g, mu}, {0, 1});
  add("ResourceApplyKerasMomentum", {w, m, lr, g, mu}, {0, 1});
  add("ResourceApplyAdagrad", {w, m, lr, g}, {0, 1});
  add("ResourceApplyAdagradV2", {w, m, lr, eps, g}, {0, 1});
  add("ResourceApplyAdam", {w, m, v, power, power, lr, mu, mu, eps, g}, {0, 1, 2});
  add("ResourceSparseApplyMomentum", {w, m, lr, rows, indices, mu}, {0, 1});
  add("ResourceSparseApplyKerasMomentum", {w, m, lr, rows, indices, mu}, {0, 1});
  add("ResourceSparseApplyAdagrad", {w, m, lr, rows, indices}, {0, 1});
  add("ResourceSparseApplyAdagradV2", {w, m, lr, eps, rows, indices}, {0, 1});
}

}  // namespace braid::testing
