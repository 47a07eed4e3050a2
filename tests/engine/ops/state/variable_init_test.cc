// The values that variables begin with: by seed and name, kind and type.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/init.h"
#include "engine/ops/state/variable_init.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

Node handle_node(AttrMap attrs) {
  Node node;
  node.name = "layer/kernel";
  node.op = &OpRegistry::global().require("VarHandleOp");
  node.attrs = std::move(attrs);
  return node;
}

TEST(VariableInitTest, DependsOnSeedAndNameOnly) {
  const AttrMap attrs{{"_init_kind", static_cast<int>(InitKind::Normal)}, {"_init_a", 1.0}, {"_init_b", 0.5}};
  Tensor a(DType::Float32, Shape{4, 5});
  initialize_variable(handle_node(attrs), 42, a);
  std::vector<float> expected(20);
  fill_initial({InitKind::Normal, 1.0F, 0.5F}, make_rng_key(42, "layer/kernel"), 0, expected);
  EXPECT_TRUE(std::ranges::equal(a.data<float>(), expected));

  AttrMap shared = attrs;
  shared.set("shared_name", "other");
  Tensor b(DType::Float32, Shape{4, 5});
  initialize_variable(handle_node(shared), 42, b);
  EXPECT_FALSE(std::ranges::equal(b.data<float>(), expected));
}

TEST(VariableInitTest, OtherTypesTakeZerosOrAConstant) {
  Tensor steps = i64({2}, {5, 6});
  initialize_variable(handle_node({}), 1, steps);
  EXPECT_EQ(to_doubles(steps), (std::vector<double>{0, 0}));
  initialize_variable(handle_node({{"_init_kind", 1}, {"_init_a", 3.0}}), 1, steps);
  EXPECT_EQ(to_doubles(steps), (std::vector<double>{3, 3}));
  EXPECT_THROW(initialize_variable(handle_node({{"_init_kind", 3}}), 1, steps), InvalidArgument);
  EXPECT_THROW(initialize_variable(handle_node({{"_init_kind", 9}}), 1, steps), InvalidArgument);
}

TEST(VariableInitTest, IntegersAreUniformBelowTheBound) {
  Tensor ids(DType::Int64, Shape{1000});
  initialize_variable(handle_node({{"_init_kind", 2}, {"_init_a", 2.0}, {"_init_b", 5.0}}), 1, ids);
  const auto values = ids.data<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(values.begin(), values.end()), (std::set<std::int64_t>{2, 3, 4}));
}

}  // namespace
}  // namespace braid::testing
