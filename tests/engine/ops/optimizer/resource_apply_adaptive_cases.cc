#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

namespace {

/// All ops on a variable of that shape; sparse ones update the rows that `indices` name.
void add_all(OpCaseTable& table, const std::string& label, const Shape& shape, const Tensor& indices,
             DType dtype = DType::Float32) {
  const auto random = [&](const Shape& of, std::uint64_t seed) {
    return converted(random_f64(of, seed, 0.5, 1.5), dtype);
  };
  const auto scalar = [&](double value) { return converted(f64({}, {value}), dtype); };
  const Tensor w = random(shape, 1), s = random(shape, 2), t = random(shape, 3);
  const Tensor u = random(shape, 6);
  const Tensor mean = Tensor::zeros(dtype, shape);
  const Tensor lr = scalar(0.1), rho = scalar(0.9), eps = scalar(1e-3), power = scalar(-0.4);
  for (const bool sparse : {false, true}) {
    const std::string prefix = sparse ? "ResourceSparseApply" : "ResourceApply";
    Shape gradient_shape = shape;
    if (sparse) gradient_shape.set_dim(0, indices.elements());
    std::vector<Tensor> gradient{random(gradient_shape, 5)};
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
    add("ProximalGradientDescent", {w, lr, rho, eps}, {}, {0});
    add("ProximalAdagrad", {w, s, lr, rho, eps}, {}, {0, 1});
    if (!sparse) {
      add("AdaMax", {w, s, t, rho, lr, rho, rho, eps}, {}, {0, 1, 2});
      add("AdamWithAmsgrad", {w, s, t, u, rho, rho, lr, rho, rho, eps}, {}, {0, 1, 2, 3});
      add("AddSign", {w, s, lr, rho, rho, rho}, {}, {0, 1});
      add("PowerSign", {w, s, lr, rho, rho, rho}, {}, {0, 1});
    }
    add("Ftrl", {w, s, t}, {lr, eps, eps, power}, {0, 1, 2});
    add("FtrlV2", {w, s, t}, {lr, eps, eps, eps, power}, {0, 1, 2});
  }
}

}  // namespace

BRAID_OP_CASES(resource_apply_adaptive) {
  add_all(table, "rows of 3", {4, 3}, axes({2, 0, 2}));
  add_all(table, "float64", {4, 3}, axes({2, 0, 2}), DType::Float64);
  add_all(table, "rows of 40, int64", {6, 40}, i64({5}, {5, 1, 5, 5, 0}));
}

}  // namespace braid::testing
