// Gates' products with their experts have a gradient that is one node on a device, and means the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "examples/models/multi_branch.h"
#include "tests/engine/exec/differentiated.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kRows = 12, kWidth = 20;

Differentiated mixture(int tasks, int streams) {
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kRows, kWidth}, 1)}};
  std::vector<Output> labels;
  for (int t = 0; t < tasks; ++t) {
    feeds.emplace_back("y" + std::to_string(t), random_floats({kRows}, 2 + static_cast<unsigned>(t)));
    labels.push_back(b.placeholder(feeds.back().first, DType::Float32, Shape{kRows}));
  }
  const Output loss =
      build_mmoe(b, b.placeholder("x", DType::Float32, Shape{kRows, kWidth}), kWidth, labels, 3, streams);
  return differentiated(b, loss, std::move(feeds));
}

TEST(FuseOuterProductsTest, TheGradientOfExpertsIsOneNodeWhateverTheirStreams) {
  for (const int streams : {0, 3}) {
    const Differentiated model = mixture(4, streams);
    const auto program = model.compiled(Domain::Device, std::max(1, streams));
    EXPECT_EQ(count_ops(*program, "braid.SumOfOuterProducts"), 1);
    expect_same_values(model, *program);
  }
}

TEST(FuseOuterProductsTest, OneGateAndHostProgramsKeepTheirProducts) {
  EXPECT_EQ(count_ops(*mixture(1, 0).compiled(), "braid.SumOfOuterProducts"), 0);
  EXPECT_EQ(count_ops(*mixture(4, 0).compiled(Domain::Host), "braid.SumOfOuterProducts"), 0);
}

}  // namespace
}  // namespace braid::testing
