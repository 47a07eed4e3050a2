#include <fmt/format.h>

#include <algorithm>

#include "base/optim.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Tensor f32_of(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed, 0.5, 1.5), DType::Float32);
}

/// The update of one variable of that shape; slots of a row-wise optimizer are [rows].
OpCase of(const OptimizerSpec& spec, const Shape& shape, std::vector<Tensor> gradient) {
  OpCase made{.label = std::string(optimizer_name(spec.kind)), .attrs = optimizer_attrs(spec)};
  for (std::size_t i = 0; i <= optimizer_slots(spec).size(); ++i) {
    made.inputs.push_back(f32_of(i > 0 && spec.row_wise ? Shape{shape[0]} : shape, i));
    made.variables.push_back(static_cast<int>(i));
  }
  made.inputs.insert(made.inputs.end(), gradient.begin(), gradient.end());
  return made;
}
OpCase of(OptimizerKind kind, const Shape& shape, std::vector<Tensor> gradient) {
  return of(OptimizerSpec{.kind = kind}, shape, std::move(gradient));
}

/// Every formula, and what may surround one.
std::vector<OptimizerSpec> all_specs() {
  std::vector<OptimizerSpec> specs;
  for (const OptimizerKind kind : kOptimizerKinds) specs.push_back({.kind = kind});
  using enum OptimizerKind;
  specs.push_back({.kind = Ftrl, .learning_rate_power = -0.7F, .l2_shrinkage = 0.1F, .l1 = 0.1F});
  specs.push_back({.kind = RmsProp, .momentum = 0});
  // The slots of the cases are random, so the square of the mean must stay below the mean of the squares.
  specs.push_back({.kind = RmsProp, .momentum = 0, .epsilon = 4, .centered = true});
  specs.push_back({.kind = RmsProp, .epsilon = 4, .centered = true});
  specs.push_back({.kind = Adam,
                   .weight_decay = 0.1F,
                   .l1 = 0.2F,
                   .l2 = 0.3F,
                   .clip_value = 0.9F,
                   .learning_rate_factor = 0.5F});
  return specs;
}

/// The update of the variables of two cases.
OpCase both(OpCase first, const OpCase& second) {
  const int offset = static_cast<int>(first.inputs.size());
  first.inputs.insert(first.inputs.end(), second.inputs.begin(), second.inputs.end());
  for (const int variable : second.variables) first.variables.push_back(offset + variable);
  return first;
}

/// An update by grouped entries, from one by indices.
OpCase grouped(const OpCase& sparse) {
  OpCase made{.label = sparse.label, .attrs = sparse.attrs};
  const std::size_t stride = optimizer_slots(optimizer_spec(sparse.attrs)).size() + 3;
  std::vector<std::int64_t> entries;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < sparse.inputs.size(); ++i) {
    const Tensor& input = sparse.inputs[i];
    if (i % stride != stride - 2) {
      if (i % stride < stride - 2) made.variables.push_back(static_cast<int>(made.inputs.size()));
      made.inputs.push_back(input);
      continue;
    }
    const std::vector<std::int64_t> indices = tensor_to_int64s(input);
    const auto first = static_cast<std::int64_t>(entries.size());
    for (std::int64_t k = 0; k < std::ssize(indices); ++k)
      entries.push_back((row + indices[static_cast<std::size_t>(k)]) << 32 | (first + k));
    std::sort(entries.begin() + first, entries.end());
    row += sparse.inputs[i + 2 - stride].shape()[0] + 1;
  }
  Tensor joined(DType::Int64, Shape{std::ssize(entries)});
  std::ranges::copy(entries, joined.data<std::int64_t>().begin());
  made.inputs.push_back(joined);
  return made;
}

/// A sparse update whose values are those of bags of `hot`, from a table of that shape.
OpCase of_bags(const OptimizerSpec& spec, const Shape& shape, std::int64_t bags, std::int64_t hot) {
  OpCase made = of(spec, shape, {random_i64({bags * hot}, 4, 0, shape[0]), f32_of({bags, shape[1]}, 6)});
  made.attrs.set("hots", std::vector<std::int64_t>{hot});
  return made;
}

/// The same with a row of values said for each index, and weights.
OpCase of_any_bags(const OptimizerSpec& spec, const Shape& shape, std::int64_t bags, std::int64_t n,
                   bool bagged, bool weighted, bool padded = false) {
  Tensor indices = random_i64({n}, 4, padded ? -3 : 0, shape[0]);
  OpCase made = of(spec, shape, {indices, f32_of({bagged ? bags : n, shape[1]}, 6)});
  if (bagged) made.inputs.push_back(converted(random_i64({n}, 8, 0, bags), DType::Int32));
  if (weighted) made.inputs.push_back(f32_of({n}, 9));
  if (bagged) made.attrs.set("has_bags", true);
  if (weighted) made.attrs.set("weighted", true);
  if (padded) made.attrs.set("skip_negative", true);
  return made;
}

void add_bags(OpCaseTable& table) {
  using enum OptimizerKind;
  const OptimizerSpec rows_of_adagrad{.kind = Adagrad, .adagrad_epsilon = 1e-3F, .row_wise = true};
  const auto add = [&](std::string label, OpCase made) {
    made.label = std::move(label);
    if (!made.attrs.has("skip_negative") && !made.attrs.has("has_bags") && !made.attrs.has("weighted"))
      table.add("braid.SparseApplyGrouped", grouped(made));
    table.add("braid.SparseApplyOptimizer", std::move(made));
  };
  for (const OptimizerSpec& spec : {OptimizerSpec{.kind = Sgd}, OptimizerSpec{.kind = Adam}, rows_of_adagrad,
                                    OptimizerSpec{.kind = Adagrad, .adagrad_epsilon = 1e-3F}}) {
    const std::string kind = std::string(optimizer_name(spec.kind)) + (spec.row_wise ? " by rows" : "");
    for (const std::int64_t dim : {3, 16, 128, 264}) {
      add(fmt::format("{}, bags, {}", kind, dim), of_bags(spec, {40, dim}, 37, 3));
      add(fmt::format("{}, hot rows of bags, {}", kind, dim), of_bags(spec, {3, dim}, 100, 9));
      add(fmt::format("{}, said bags, {}", kind, dim), of_any_bags(spec, {40, dim}, 20, 111, true, false));
      add(fmt::format("{}, weighted bags, {}", kind, dim), of_any_bags(spec, {5, dim}, 20, 500, true, true));
    }
    add(kind + ", weights", of_any_bags(spec, {9, 8}, 0, 70, false, true));
    add(kind + ", padded bags", of_any_bags(spec, {9, 8}, 7, 90, true, true, true));
  }
  OptimizerSpec surrounded = rows_of_adagrad;
  surrounded.weight_decay = 0.1F;
  surrounded.l1 = 0.2F;
  surrounded.l2 = 0.3F;
  surrounded.clip_value = 0.9F;
  add("by rows, surrounded", of(surrounded, {12, 20}, {random_i64({50}, 4, 0, 12), f32_of({50, 20}, 6)}));
  OpCase many = both(of_bags(rows_of_adagrad, {40, 16}, 37, 3), of_bags(rows_of_adagrad, {7, 16}, 90, 8));
  many.attrs.set("hots", std::vector<std::int64_t>{3, 8});
  many.label = "bags of two tables";
  table.add("braid.SparseApplyOptimizerMany", many);
  table.add("braid.SparseApplyGrouped", grouped(many));
}

/// What is cut into several blocks or has rows of several packs, many duplicates, or nothing at all.
void add_large(OpCaseTable& table) {
  using enum OptimizerKind;
  const auto add = [&](const char* label, const std::string& op, OpCase made) {
    made.label = label;
    if (op.find("Sparse") != std::string::npos) table.add("braid.SparseApplyGrouped", grouped(made));
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
  OpCase padded = of(Adam, {9, 4}, {i64({6}, {7, -1, 2, 7, -1, -1}), f32_of({6, 4}, 6)});
  padded.attrs.set("skip_negative", true);
  padded.label = "padded";
  table.add("braid.SparseApplyOptimizer", padded);
  table.add("braid.SparseApplyOptimizerMany", both(padded, padded));
  add("tables", "braid.SparseApplyOptimizerMany", both(both(hot, cold), hot));
  OpCase tables = of(Sgd, {30, 2}, {random_i64({40}, 4, 0, 30), f32_of({40, 2}, 6)});
  for (int i = 1; i < 70; ++i)
    tables = both(tables, of(Sgd, {30 + i, 2}, {random_i64({40}, 5, 0, 30), f32_of({40, 2}, 7)}));
  add("many tables", "braid.SparseApplyOptimizerMany", tables);
  add("widths and nothing", "braid.SparseApplyOptimizerMany",
      both(both(of(Sgd, {30, 2}, {random_i64({40}, 4, 0, 30), f32_of({40, 2}, 6)}),
                of(Sgd, {0, 2}, {i64({0}, {}), f32_of({0, 2}, 6)})),
           of(Sgd, {3}, {axes({2, 2}), f32_of({2}, 6)})));
}

/// Rows that are named so often that their gradients are added in parts of parts. Gradients are whole
/// numbers, whose sums are the same in any order.
void add_long_runs(OpCaseTable& table) {
  for (const auto& [n, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {33, 4}, {64, 128}, {65, 128}, {9000, 128}, {7000, 132}, {70'000, 8}, {40'000, 1}})
    for (const bool row_wise : {false, true}) {
      Tensor indices(DType::Int64, Shape{n});
      for (std::int64_t k = 0; k < n; ++k)
        indices.data<std::int64_t>()[static_cast<std::size_t>(k)] = k % 97 == 5   ? 9 - k % 3
                                                                    : k % 11 == 0 ? 0
                                                                                  : 3;
      const OptimizerSpec spec{.kind = row_wise ? OptimizerKind::Adagrad : OptimizerKind::Sgd,
                               .adagrad_epsilon = 1e-3F,
                               .row_wise = row_wise};
      OpCase made =
          of(spec, {10, width}, {indices, converted(random_i64({n, width}, 6, -4, 5), DType::Float32)});
      made.label = fmt::format("runs of {} entries, {}{}", n, width, row_wise ? ", by rows" : "");
      table.add("braid.SparseApplyGrouped", grouped(made));
      table.add("braid.SparseApplyOptimizer", std::move(made));
    }
}

/// The same, whose values are columns of wider rows, from `offset` on.
OpCase in_wider_rows(OpCase made, std::int64_t offset, std::int64_t further) {
  Tensor& values = made.inputs[optimizer_slots(optimizer_spec(made.attrs)).size() + 2];
  const std::int64_t rows = values.shape()[0], width = values.shape()[1], all = offset + width + further;
  Tensor wide = f32_of({rows, all}, 12);
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(values.data<float>().data() + r * width, width, wide.data<float>().data() + r * all + offset);
  values = wide;
  made.attrs.set("value_offsets", std::vector<std::int64_t>{offset});
  return made;
}

void add_wider_rows(OpCaseTable& table) {
  using enum OptimizerKind;
  for (const OptimizerSpec& spec :
       {OptimizerSpec{.kind = Sgd}, OptimizerSpec{.kind = Adam},
        OptimizerSpec{.kind = Adagrad, .adagrad_epsilon = 1e-3F, .row_wise = true}}) {
    for (const auto& [offset, further] : {std::pair{4, 8}, {0, 3}, {5, 0}}) {
      const OpCase sparse = of(spec, {40, 8}, {random_i64({300}, 4, 0, 9), f32_of({300, 8}, 6)});
      OpCase one = in_wider_rows(sparse, offset, further),
             bags = in_wider_rows(of_bags(spec, {40, 16}, 37, 3), offset, further);
      one.label += fmt::format(", columns from {} of {}", offset, offset + 8 + further);
      bags.label += fmt::format(", bags, columns from {} of {}", offset, offset + 16 + further);
      OpCase many = both(one, of(spec, {7, 8}, {random_i64({50}, 5, 0, 7), f32_of({50, 8}, 7)}));
      many.attrs.set("value_offsets", std::vector<std::int64_t>{offset, -1});
      table.add("braid.SparseApplyGrouped", grouped(one));
      table.add("braid.SparseApplyGrouped", grouped(many));
      table.add("braid.SparseApplyOptimizer", std::move(one));
      table.add("braid.SparseApplyOptimizer", std::move(bags));
      table.add("braid.SparseApplyOptimizerMany", std::move(many));
    }
  }
}

/// Behind all other inputs a number that gradients are multiplied by.
void add_factors(OpCaseTable& table) {
  using enum OptimizerKind;
  const auto add = [&](const std::string& op, OpCase made) {
    made.label += " by a factor";
    made.attrs.set("has_factor", true);
    made.inputs.push_back(f32({}, {0.3F}));
    table.add(op, std::move(made));
  };
  for (const OptimizerSpec& spec :
       {OptimizerSpec{.kind = Sgd}, OptimizerSpec{.kind = Adam, .clip_value = 0.2F},
        OptimizerSpec{.kind = Adagrad, .adagrad_epsilon = 1e-3F, .row_wise = true}}) {
    const OpCase sparse = of(spec, {40, 8}, {random_i64({300}, 4, 0, 40), f32_of({300, 8}, 6)});
    const OpCase two = both(sparse, of(spec, {7, 8}, {random_i64({50}, 5, 0, 7), f32_of({50, 8}, 7)}));
    add("braid.SparseApplyOptimizer", sparse);
    add("braid.SparseApplyOptimizerMany", two);
    add("braid.SparseApplyGrouped", grouped(two));
    add("braid.SparseApplyOptimizer", of_any_bags(spec, {9, 8}, 7, 90, true, true));
    if (spec.row_wise) continue;
    const OpCase dense = of(spec, {41, 5}, {f32_of({41, 5}, 3)});
    add("braid.ApplyOptimizer", dense);
    add("braid.ApplyOptimizerMany", both(dense, of(spec, {6}, {f32_of({6}, 4)})));
  }
}

}  // namespace

BRAID_OP_CASES(apply_optimizer) {
  for (const OptimizerSpec& kind : all_specs()) {
    const OpCase dense = of(kind, {4, 3}, {f32_of({4, 3}, 7)});
    const OpCase sparse = of(kind, {4, 3}, {i64({3}, {2, 0, 2}), f32_of({3, 3}, 8)});
    table.add("braid.ApplyOptimizer", dense);
    OpCase to = dense;  // the slots are values
    to.variables = {0};
    if (!optimizer_slots(kind).empty()) table.add("braid.ApplyOptimizerTo", std::move(to));
    table.add("braid.SparseApplyOptimizer", sparse);
    table.add("braid.ApplyOptimizerMany", both(dense, of(kind, {5}, {f32_of({5}, 9)})));
    const OpCase two = both(sparse, of(kind, {7, 3}, {i64({5}, {6, 6, 0, 6, 3}), f32_of({5, 3}, 9)}));
    table.add("braid.SparseApplyOptimizerMany", two);
    table.add("braid.SparseApplyGrouped", grouped(sparse));
    table.add("braid.SparseApplyGrouped", grouped(two));
  }
  add_large(table);
  add_bags(table);
  add_long_runs(table);
  add_factors(table);
  add_wider_rows(table);
}

}  // namespace braid::testing
