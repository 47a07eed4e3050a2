// The registry's own rules, and the texts of the checks that shape rules share.
#include <gtest/gtest.h>

#include "engine/ir/op.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

OpDef minimal(const std::string& name) {
  OpDef def;
  def.name = name;
  def.infer = [](InferContext& c) { c.output(DType::Float32, Shape{}); };
  def.no_gradient_reason = "it is a test's";
  return def;
}

std::string add_error(OpRegistry& registry, OpDef def) {
  return message_of<Internal>([&] { registry.add(std::move(def)); });
}

TEST(OpRegistryTest, RefusesWhatIsIncompleteOrDouble) {
  OpRegistry registry;
  registry.add(minimal("test.One"));
  EXPECT_EQ(add_error(registry, minimal("test.One")), "[OpRegistry] op 'test.One' is registered twice");
  OpDef no_rule = minimal("test.Two");
  no_rule.infer = nullptr;
  EXPECT_EQ(add_error(registry, no_rule), "[OpRegistry] op 'test.Two' has no shape rule");
  OpDef no_reason = minimal("test.Two");
  no_reason.no_gradient_reason.clear();
  EXPECT_EQ(add_error(registry, no_reason), "[OpRegistry] op 'test.Two' has neither a gradient nor a reason");
  OpDef both = minimal("test.Two");
  both.gradient = [](GradContext&) {};
  EXPECT_EQ(add_error(registry, both), "[OpRegistry] op 'test.Two' has a gradient and a reason for none");
  EXPECT_EQ(registry.all().size(), 1U);
}

TEST(OpRegistryTest, FindsByNameAndNamesWhatIsMissing) {
  OpRegistry registry;
  registry.add(minimal("test.B"));
  registry.add(minimal("test.A"));
  EXPECT_EQ(registry.all()[0]->name, "test.A");
  EXPECT_EQ(registry.find("test.C"), nullptr);
  EXPECT_EQ(&registry.require("test.A"), registry.find("test.A"));
  EXPECT_EQ(message_of([&] { registry.require("test.C"); }), "op 'test.C' is not known");
}

TEST(OpRegistryTest, WhatAnOpLeavesUnsaidIsNamed) {
  OpDef def = minimal("test.One");
  EXPECT_EQ(missing_traits(def), "batching, elements, widening, names of outputs, type attributes");
  def.traits = computes();
  EXPECT_EQ(missing_traits(def), "");
  def.traits = pointwise({});
  EXPECT_EQ(missing_traits(def), "a formula, or why there is none");
  def.traits = pointwise({"-a"});
  EXPECT_EQ(missing_traits(def), "");
  def.gradient = [](GradContext&) {};
  EXPECT_EQ(missing_traits(def), "the formula's slopes");
  def.traits = pointwise({"-a", {"-1"}});
  EXPECT_EQ(missing_traits(def), "");
}

TEST(OpRegistryTest, GlobalHoldsTheEnginesOps) {
  EXPECT_GE(OpRegistry::global().all().size(), 50U);
  for (const char* op : {"MatMul", "AddV2", "Softmax", "Sum", "braid.ReduceToShapeOf"})
    EXPECT_NE(OpRegistry::global().find(op), nullptr) << op;
}

}  // namespace
}  // namespace braid::testing
