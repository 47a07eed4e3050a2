#include "base/optim.h"
#include "engine/ops/optimizer_attrs.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

void cases_apply_optimizer(OpCaseTable& table) {
  const auto f32_of = [](Shape shape, std::uint64_t seed) {
    return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
  };
  for (OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adagrad, OptimizerKind::Adam}) {
    const OptimizerSpec spec{.kind = kind};
    OpCase dense{.label = std::string(optimizer_name(kind)), .attrs = optimizer_attrs(spec)};
    for (std::size_t i = 0; i <= optimizer_slots(spec).size(); ++i) {
      dense.inputs.push_back(f32_of({4, 3}, i));
      dense.variables.push_back(static_cast<int>(i));
    }
    OpCase sparse = dense;
    dense.inputs.push_back(f32_of({4, 3}, 7));
    sparse.inputs.push_back(i64({3}, {2, 0, 2}));
    sparse.inputs.push_back(f32_of({3, 3}, 8));
    table.add("braid.ApplyOptimizer", dense);
    table.add("braid.SparseApplyOptimizer", sparse);
  }
}

}  // namespace braid::testing
