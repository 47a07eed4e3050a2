#include "base/optim.h"
#include "engine/ops/optimizer_attrs.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Tensor f32_of(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
}

/// The update of one variable of that shape.
OpCase of(OptimizerKind kind, const Shape& shape, std::vector<Tensor> gradient) {
  const OptimizerSpec spec{.kind = kind};
  OpCase made{.label = std::string(optimizer_name(kind)), .attrs = optimizer_attrs(spec)};
  for (std::size_t i = 0; i <= optimizer_slots(spec).size(); ++i) {
    made.inputs.push_back(f32_of(shape, i));
    made.variables.push_back(static_cast<int>(i));
  }
  made.inputs.insert(made.inputs.end(), gradient.begin(), gradient.end());
  return made;
}

/// The update of the variables of two cases.
OpCase both(OpCase first, const OpCase& second) {
  const int offset = static_cast<int>(first.inputs.size());
  first.inputs.insert(first.inputs.end(), second.inputs.begin(), second.inputs.end());
  for (const int variable : second.variables) first.variables.push_back(offset + variable);
  return first;
}

/// What is cut into several blocks or has rows of several packs, many duplicates, or nothing at all.
void add_large(OpCaseTable& table) {
  using enum OptimizerKind;
  const auto add = [&](const char* label, const char* op, OpCase made) {
    made.label = label;
    table.add(op, std::move(made));
  };
  const OpCase odd = of(Adam, {83, 101}, {f32_of({83, 101}, 3)});
  add("odd", "braid.ApplyOptimizer", odd);
  add("nothing", "braid.ApplyOptimizer", of(Momentum, {0, 4}, {f32_of({0, 4}, 3)}));
  OpCase many = odd;
  for (int i = 1; i < 90; ++i) many = both(many, of(Adam, {i}, {f32_of({i}, 5)}));
  add("many", "braid.ApplyOptimizerMany", many);

  const OpCase hot = of(Adagrad, {5, 16}, {random_i64({1500}, 4, 0, 5), f32_of({1500, 16}, 6)});
  const OpCase cold = of(Adagrad, {900, 16}, {random_i64({333}, 5, 0, 900), f32_of({333, 16}, 7)});
  add("hot rows", "braid.SparseApplyOptimizer", hot);
  add("odd rows", "braid.SparseApplyOptimizer",
      of(Adam, {40, 37}, {random_i64({300}, 4, 0, 40), f32_of({300, 37}, 6)}));
  add("long rows", "braid.SparseApplyOptimizer",
      of(Sgd, {9, 1028}, {random_i64({170}, 4, 0, 2), f32_of({170, 1028}, 6)}));
  add("int32 indices", "braid.SparseApplyOptimizer",
      of(Momentum, {4, 2}, {axes({3, 3, 0}), f32_of({3, 2}, 6)}));
  add("one column", "braid.SparseApplyOptimizer",
      of(Adagrad, {6}, {random_i64({200}, 4, 0, 6), f32_of({200}, 6)}));
  add("no indices", "braid.SparseApplyOptimizer", of(Adagrad, {6, 2}, {i64({0}, {}), f32_of({0, 2}, 6)}));
  add("tables", "braid.SparseApplyOptimizerMany", both(both(hot, cold), hot));
}

}  // namespace

void cases_apply_optimizer(OpCaseTable& table) {
  for (OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adagrad, OptimizerKind::Adam}) {
    const OpCase dense = of(kind, {4, 3}, {f32_of({4, 3}, 7)});
    const OpCase sparse = of(kind, {4, 3}, {i64({3}, {2, 0, 2}), f32_of({3, 3}, 8)});
    table.add("braid.ApplyOptimizer", dense);
    table.add("braid.SparseApplyOptimizer", sparse);
    table.add("braid.ApplyOptimizerMany", both(dense, of(kind, {5}, {f32_of({5}, 9)})));
    table.add("braid.SparseApplyOptimizerMany",
              both(sparse, of(kind, {7, 3}, {i64({5}, {6, 6, 0, 6, 3}), f32_of({5, 3}, 9)})));
  }
  add_large(table);
}

}  // namespace braid::testing
