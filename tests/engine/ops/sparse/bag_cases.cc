#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

const AttrMap& plain() {
  static const AttrMap attrs{{"dtype", DType::Float64}};
  return attrs;
}

AttrMap with(AttrMap attrs, const char* pooling, bool ragged, bool weighted) {
  attrs.set("pooling", pooling);
  if (ragged) attrs.set("ragged", true);
  if (weighted) attrs.set("weighted", true);
  return attrs;
}

/// dtype says float64, so there is no variant of float32.
OpCase bag(std::string label, AttrMap attrs, std::vector<Tensor> inputs) {
  return {.label = std::move(label),
          .inputs = std::move(inputs),
          .attrs = std::move(attrs),
          .variables = {0},
          .float32_tolerance = 0};
}

Tensor f32_table(Shape shape, std::uint64_t seed) {
  return converted(random_f64(std::move(shape), seed), DType::Float32);
}

/// What an op of gradients reads beside x: ids that may be in bags of three.
struct Bags {
  const char* label;
  bool ragged, weighted;
  std::vector<Tensor> lists;
};

std::vector<Bags> all_bags() {
  return {{"lists", false, false, {i64({3, 2}, {0, 4, 1, 1, 3, 0})}},
          {"weighted lists", false, true, {i32({3, 2}, {0, 4, 1, 1, 3, 0}), random_f64({3, 2}, 5, 0.5, 2)}},
          {"ragged", true, false, {i64({7}, {0, 4, 1, 1, 3, -1, 99}), i64({4}, {0, 4, 4, 5})}},
          {"ragged, weighted",
           true,
           true,
           {i32({5}, {0, 4, 1, 1, 3}), i32({4}, {0, 0, 2, 5}), random_f64({5}, 6, 0.5, 2)}},
          {"no bags", true, false, {i64({2}, {7, 7}), i64({1}, {0})}}};
}

/// The largest elements of each bag's rows, in float64.
Tensor largest(const Tensor& table, const Bags& bags, std::int64_t rows) {
  const std::vector<std::int64_t> ids = tensor_to_int64s(bags.lists[0]);
  const std::int64_t width = table.shape()[1], hot = bags.ragged ? 0 : bags.lists[0].shape()[1];
  const auto begin = [&](std::int64_t b) {
    return bags.ragged ? tensor_to_int64s(bags.lists[1])[static_cast<std::size_t>(b)] : b * hot;
  };
  Tensor y = Tensor::zeros(DType::Float64, Shape{rows, width});
  for (std::int64_t b = 0; b < rows; ++b)
    for (std::int64_t k = begin(b); k < begin(b + 1); ++k)
      for (std::int64_t i = 0; i < width; ++i) {
        double& most = y.data<double>()[static_cast<std::size_t>(b * width + i)];
        const double value =
            table.data<double>()[static_cast<std::size_t>(ids[static_cast<std::size_t>(k)] * width + i)];
        if (k == begin(b) || value > most) most = value;
      }
  return y;
}

}  // namespace

BRAID_OP_CASES(bag) {
  const Tensor table_of_5 = random_f64({5, 3}, 1);
  for (const Bags& bags : all_bags())
    for (const char* pooling : {"sum", "mean", "sqrtn", "max"}) {
      if (bags.weighted && std::string(pooling) == "max") continue;
      std::vector<Tensor> inputs{table_of_5};
      inputs.insert(inputs.end(), bags.lists.begin(), bags.lists.end());
      OpCase made = bag(std::string(bags.label) + ", " + pooling,
                        with(plain(), pooling, bags.ragged, bags.weighted), inputs);
      table.add("braid.Bag", made);
      table.add("braid.BagMany", made);
    }
  table.add("braid.Bag", bag("lists of none", plain(), {table_of_5, i64({3, 0}, {})}));
  OpCase nothing = bag("weights that add up to nothing", with(plain(), "mean", false, true),
                       {table_of_5, i64({1, 2}, {0, 1}), f64({1, 2}, {1, -1})});
  nothing.numeric_gradient = false;  // it leaps there
  table.add("braid.Bag", nothing);
  // What is cut into blocks and packs, one long bag among short ones.
  Tensor offsets(DType::Int64, Shape{402});
  for (std::int64_t b = 0; b < 402; ++b)
    offsets.data<std::int64_t>()[static_cast<std::size_t>(b)] = b < 200 ? b / 3 : 10'000 + b;
  for (const std::int64_t dim : {1, 7, 36, 132}) {
    OpCase many{.label = "tables of " + std::to_string(dim),
                .attrs = {{"dtype", DType::Float32}, {"pooling", "mean"}, {"ragged", true}},
                .variables = {0, 3},
                .numeric_gradient = false};  // too many elements; the rule is the same
    for (const std::uint64_t seed : {1, 2}) {
      many.inputs.push_back(f32_table({50, dim}, seed));
      many.inputs.push_back(random_i64({10'500}, seed, 0, 50));
      many.inputs.push_back(offsets);
    }
    table.add("braid.BagMany", many);
  }
  // Lists of all lengths in wide rows, of which lanes take several bags at once, one, or a part.
  for (const char* pooling : {"sum", "sqrtn", "max"})
    for (const std::int64_t dim : {32, 100, 128, 129, 264}) {
      OpCase lists{.label = std::string(pooling) + " of lists, " + std::to_string(dim),
                   .attrs = {{"dtype", DType::Float32}, {"pooling", pooling}},
                   .numeric_gradient = false};
      for (const std::int64_t hot : {1, 2, 3, 4, 5, 8, 9, 33}) {
        lists.variables.push_back(static_cast<int>(lists.inputs.size()));
        lists.inputs.push_back(f32_table({20 + hot, dim}, static_cast<std::uint64_t>(hot)));
        lists.inputs.push_back(random_i64({29, hot}, static_cast<std::uint64_t>(hot), 0, 20 + hot));
      }
      table.add("braid.BagMany", lists);
    }
  // Columns of one output, beside an output of its own.
  for (const std::int64_t dim : {1, 12, 128}) {
    OpCase joined{.label = "joined, " + std::to_string(dim),
                  .attrs = {{"dtype", DType::Float32},
                            {"join_offsets", std::vector<std::int64_t>{dim, -1, 0, 2 * dim}},
                            {"join_width", 3 * dim}},
                  .numeric_gradient = false};
    for (const std::int64_t hot : {1, 3, 9, 2}) {
      joined.variables.push_back(static_cast<int>(joined.inputs.size()));
      joined.inputs.push_back(f32_table({20, dim}, static_cast<std::uint64_t>(hot)));
      joined.inputs.push_back(random_i64({31, hot}, static_cast<std::uint64_t>(hot), 0, 20));
    }
    table.add("braid.BagMany", joined);
  }
  OpCase tables{.label = "many tables", .attrs = {{"dtype", DType::Float32}}};
  for (int i = 0; i < 50; ++i) {
    tables.inputs.push_back(f32_table({20 + i, 8}, static_cast<std::uint64_t>(i)));
    tables.inputs.push_back(random_i64({30 + i, 1 + i % 11}, static_cast<std::uint64_t>(i), 0, 20));
    tables.variables.push_back(2 * i);
  }
  table.add("braid.BagMany", tables);
}

BRAID_OP_CASES(bag_grad) {
  for (const Bags& bags : all_bags()) {
    const std::int64_t rows = bags.ragged ? bags.lists[1].shape()[0] - 1 : bags.lists[0].shape()[0];
    for (const char* pooling : {"sum", "mean", "sqrtn"}) {
      OpCase made{.label = std::string(bags.label) + ", " + pooling,
                  .inputs = {random_f64({rows, 3}, 2)},
                  .attrs = with({}, pooling, bags.ragged, bags.weighted)};
      made.inputs.insert(made.inputs.end(), bags.lists.begin(), bags.lists.end());
      table.add("braid.BagScale", made);
      if (std::string(pooling) == "sum") table.add("braid.BagRows", made);
    }
    if (!bags.weighted) {
      const Tensor table_of_5 = random_f64({5, 3}, 1);
      std::vector<Tensor> inputs{table_of_5};
      inputs.insert(inputs.end(), bags.lists.begin(), bags.lists.end());
      inputs.push_back(random_f64({rows, 3}, 2));
      inputs.push_back(largest(table_of_5, bags, rows));
      table.add("braid.BagMaxRows", bag(bags.label, with({}, "max", bags.ragged, false), inputs));
    }
    if (!bags.ragged) continue;
    const std::vector<Tensor> lists{bags.lists[0], bags.lists[1]};
    table.add("braid.BagIds", {.label = bags.label, .inputs = lists});
    table.add("braid.BagOf", {.label = bags.label, .inputs = lists, .attrs = {{"first", 4}}});
  }
  table.add("braid.BagOf", {.label = "lists", .inputs = {random_f64({4, 3}, 1)}, .attrs = {{"hot", 3}}});
  table.add("braid.BagOf", {.label = "one each", .inputs = {i64({4}, {1, 2, 3, 4})}});
}

}  // namespace braid::testing
