#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

namespace {

Tensor f32_of(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
}

/// All ops on a variable of that shape; sparse ones update the rows that `indices` name.
void add_all(OpCaseTable& table, const std::string& label, const Shape& shape, const Tensor& indices) {
  const Tensor w = f32_of(shape, 1), s = f32_of(shape, 2), t = f32_of(shape, 3), u = f32_of(shape, 6);
  const Tensor mean = Tensor::zeros(DType::Float32, shape);
  const Tensor lr = f32({}, {0.1F}), rho = f32({}, {0.9F}), eps = f32({}, {1e-3F}), power = f32({}, {-0.4F});
  for (const bool sparse : {false, true}) {
    const std::string prefix = sparse ? "ResourceSparseApply" : "ResourceApply";
    Shape gradient_shape = shape;
    if (sparse) gradient_shape.set_dim(0, indices.elements());
    std::vector<Tensor> gradient{f32_of(gradient_shape, 5)};
    if (sparse) gradient.push_back(indices);
    const auto add = [&](const std::string& op, std::vector<Tensor> before, const std::vector<Tensor>& after,
                         std::vector<int> variables) {
      before.insert(before.end(), gradient.begin(), gradient.end());
      before.insert(before.end(), after.begin(), after.end());
      table.add(prefix + op,
                {.label = label, .inputs = std::move(before), .variables = std::move(variables)});
    };
    add("RMSProp", {w, s, t, lr, rho, rho, eps}, {}, {0, 1, 2});
    add("CenteredRMSProp", {w, mean, s, t, lr, rho, rho, eps}, {}, {0, 1, 2, 3});
    add("Adadelta", {w, s, u, lr, rho, eps}, {}, {0, 1, 2});
    add("Ftrl", {w, s, t}, {lr, eps, eps, power}, {0, 1, 2});
    add("FtrlV2", {w, s, t}, {lr, eps, eps, eps, power}, {0, 1, 2});
  }
}

}  // namespace

void cases_resource_apply_adaptive(OpCaseTable& table) {
  add_all(table, "rows of 3", {4, 3}, axes({2, 0, 2}));
  add_all(table, "rows of 40, int64", {6, 40}, i64({5}, {5, 1, 5, 5, 0}));
}

}  // namespace braid::testing
