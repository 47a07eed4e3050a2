#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_resource_apply_adaptive(OpCaseTable& table) {
  const auto f32_of = [](Shape shape, std::uint64_t seed) {
    return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
  };
  const Tensor w = f32_of({4, 3}, 1), s = f32_of({4, 3}, 2), t = f32_of({4, 3}, 3), u = f32_of({4, 3}, 6);
  const Tensor mean = f32({4, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor lr = f32({}, {0.1F}), rho = f32({}, {0.9F}), eps = f32({}, {1e-3F}), power = f32({}, {-0.4F});
  const Tensor indices = axes({2, 0, 2});
  for (const bool sparse : {false, true}) {
    const std::string prefix = sparse ? "ResourceSparseApply" : "ResourceApply";
    std::vector<Tensor> gradient{f32_of({sparse ? 3 : 4, 3}, 5)};
    if (sparse) gradient.push_back(indices);
    const auto add = [&](const std::string& op, std::vector<Tensor> before, const std::vector<Tensor>& after,
                         std::vector<int> variables) {
      before.insert(before.end(), gradient.begin(), gradient.end());
      before.insert(before.end(), after.begin(), after.end());
      table.add(prefix + op, {.label = op, .inputs = std::move(before), .variables = std::move(variables)});
    };
    add("RMSProp", {w, s, t, lr, rho, rho, eps}, {}, {0, 1, 2});
    add("CenteredRMSProp", {w, mean, s, t, lr, rho, rho, eps}, {}, {0, 1, 2, 3});
    add("Adadelta", {w, s, u, lr, rho, eps}, {}, {0, 1, 2});
    add("Ftrl", {w, s, t}, {lr, eps, eps, power}, {0, 1, 2});
    add("FtrlV2", {w, s, t}, {lr, eps, eps, eps, power}, {0, 1, 2});
  }
}

}  // namespace braid::testing
