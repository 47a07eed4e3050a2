// braid.Bag against PyTorch's EmbeddingBag (golden/make_bags.py), and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/ir/op.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

Tensor floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::from<float>(shape, values);
}

OpCase bag_case(std::vector<Tensor> inputs, const char* pooling, bool ragged, bool weighted) {
  return {
      .label = "bag",
      .inputs = std::move(inputs),
      .attrs = {{"dtype", DType::Float32}, {"pooling", pooling}, {"ragged", ragged}, {"weighted", weighted}},
      .variables = {0}};
}

void expect_near(const Tensor& actual, const std::vector<float>& expected) {
  const auto got = actual.data<float>();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << "element " << i;
}

TEST(BagTest, PoolsAsPyTorchsEmbeddingBag) {
  std::ifstream file(std::filesystem::path(BRAID_SOURCE_DIR) / "tests/engine/ops/sparse/golden/bags.json");
  const auto recorded = nlohmann::json::parse(file);
  ASSERT_EQ(recorded["cases"].size(), 7U);
  for (const auto& each : recorded["cases"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    const std::int64_t rows = each["rows"], dim = each["dim"];
    const auto ids = each["ids"].get<std::vector<std::int64_t>>(),
               offsets = each["offsets"].get<std::vector<std::int64_t>>();
    const auto weights = each["weights"].get<std::vector<float>>();
    const auto n = std::ssize(ids), bags = std::ssize(offsets) - 1;
    const bool weighted = !weights.empty();
    std::vector<Tensor> lists{Tensor::from<std::int64_t>(Shape{n}, ids),
                              Tensor::from<std::int64_t>(Shape{bags + 1}, offsets)};
    if (weighted) lists.push_back(floats({n}, weights));
    std::vector<Tensor> inputs{floats({rows, dim}, each["table"].get<std::vector<float>>())};
    inputs.insert(inputs.end(), lists.begin(), lists.end());
    const std::string pooling = each["pooling"];
    CaseGraph g = make_case_graph(OpRegistry::global().require("braid.Bag"),
                                  bag_case(inputs, pooling.c_str(), true, weighted));
    expect_near(evaluate(g.graph, g.execution, {{g.node, 0}})[0], each["out"]);

    // The gradient of the table: rows of the ids, by their sums.
    const Tensor gradient = floats({bags, dim}, each["gradient"].get<std::vector<float>>());
    std::vector<Tensor> gradients{gradient};
    gradients.insert(gradients.end(), lists.begin(), lists.end());
    AttrMap attrs{{"ragged", true}, {"weighted", weighted}, {"pooling", pooling}};
    const auto run = [&](const char* op) {
      CaseGraph made = make_case_graph(OpRegistry::global().require(op),
                                       {.label = op, .inputs = gradients, .attrs = attrs});
      return evaluate(made.graph, made.execution, {{made.node, 0}})[0];
    };
    Tensor of_ids;
    if (pooling == "max") {
      OpCase largest = bag_case(inputs, "max", true, false);
      largest.inputs.push_back(gradient);
      largest.inputs.push_back(floats({bags, dim}, each["out"].get<std::vector<float>>()));
      CaseGraph made = make_case_graph(OpRegistry::global().require("braid.BagMaxRows"), largest);
      of_ids = evaluate(made.graph, made.execution, {{made.node, 0}})[0];
    } else {
      gradients[0] = run("braid.BagScale");
      attrs.set("pooling", std::string("sum"));
      of_ids = run("braid.BagRows");
    }
    std::vector<float> table(static_cast<std::size_t>(rows * dim));
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t i = 0; i < dim; ++i)
        table[static_cast<std::size_t>(ids[static_cast<std::size_t>(k)] * dim + i)] +=
            of_ids.data<float>()[static_cast<std::size_t>(k * dim + i)];
    expect_near(floats({rows, dim}, table), each["table_gradient"]);
  }
}

std::string bag_refusal(std::vector<Tensor> inputs, bool ragged) {
  return message_of([&] {
    CaseGraph g = make_case_graph(OpRegistry::global().require("braid.Bag"),
                                  bag_case(std::move(inputs), "sum", ragged, false));
    evaluate(g.graph, g.execution, {{g.node, 0}});
  });
}

TEST(BagTest, RefusesWhatIsNoBag) {
  const Tensor table = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(bag_refusal({table, i64({1, 2}, {2, 3})}, false), ::testing::HasSubstr("= 3 is not in [0, 3)"));
  EXPECT_THAT(bag_refusal({table, i64({2}, {2, 1}), i64({3}, {0, 2, 1})}, true),
              ::testing::HasSubstr("offsets[2] = 1 falls, or is above the 2 ids"));
  EXPECT_THAT(bag_refusal({table, i64({2}, {2, 1}), i64({2}, {0, 3})}, true),
              ::testing::HasSubstr("offsets[1] = 3 falls, or is above the 2 ids"));
  EXPECT_THAT(bag_refusal({table, i64({2}, {2, 1}), i64({2}, {1, 2})}, true),
              ::testing::HasSubstr("offsets begin with 1, not with 0"));
  EXPECT_THAT(bag_refusal({table, i64({2}, {2, 1})}, false), ::testing::HasSubstr("rank"));
  EXPECT_THAT(message_of([&] {
                make_case_graph(
                    OpRegistry::global().require("braid.Bag"),
                    bag_case({table, i64({1, 2}, {2, 1}), f32({1, 2}, {1, 1})}, "max", false, true));
              }),
              ::testing::HasSubstr("pooling max has no weights"));
}

}  // namespace
}  // namespace braid::testing
