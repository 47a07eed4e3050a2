// Gradients of gathers of few rows are added to these rows alone, on a device, and mean the same.
#include <gtest/gtest.h>

#include "tests/engine/testing/differentiated.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kFewRows = 80, kFewColumns = 6;

/// h = tanh(x) W goes into the loss as a whole, and by the rows `few`, gathered `gathers` times.
Differentiated model(const std::vector<std::int64_t>& few, int gathers = 1, std::int64_t axis = 0) {
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds{{"x", random_floats({kFewRows, kFewColumns}, 1)}};
  const Output x = b.placeholder("x", DType::Float32, Shape{kFewRows, kFewColumns});
  const Output w =
      b.read(b.variable("w", Shape{kFewColumns, kFewRows}, {.init = {InitKind::Normal, 0.0F, 1.0F}}));
  const Output h = b.op("Tanh", {b.matmul(b.op("Tanh", {x}), w)});
  Output loss = b.op("L2Loss", {h});
  for (int g = 0; g < gathers; ++g) {
    const std::string name = "few" + std::to_string(g);
    const Shape shape{static_cast<std::int64_t>(few.size())};
    feeds.emplace_back(name, Tensor::from<std::int64_t>(shape, few));
    const Output taken = b.op("GatherV2", {h, b.placeholder(name, DType::Int64, shape),
                                           b.constant(Tensor::scalar<std::int64_t>(axis), "axis")});
    loss = b.add(loss, b.op("L2Loss", {b.op("Exp", {taken})}));
  }
  return differentiated(b, loss, std::move(feeds));
}

TEST(FewRowsTest, AreAddedToWhatIsThere) {
  const Differentiated of = model({7, 79, 0, 7, 7});
  const auto program = of.compiled();
  EXPECT_EQ(count_ops(*program, "braid.AddRows"), 1);
  EXPECT_EQ(count_ops(*program, "braid.GatherGrad"), 0);
  expect_same_values(of, *program);
}

TEST(FewRowsTest, SeveralGathersOfAValueAreAddedOneAfterTheOther) {
  const Differentiated of = model({3, 3, 41}, 3);
  const auto program = of.compiled();
  EXPECT_EQ(count_ops(*program, "braid.AddRows"), 3);
  EXPECT_EQ(count_ops(*program, "braid.GatherGrad"), 0);
  expect_same_values(of, *program);
}

TEST(FewRowsTest, ManyRowsOtherAxesAndHostProgramsKeepTheirSums) {
  std::vector<std::int64_t> eleven(11);
  EXPECT_EQ(count_ops(*model(eleven).compiled(), "braid.AddRows"), 0) << "more than an eighth";
  EXPECT_EQ(count_ops(*model({1, 2}, 1, 1).compiled(), "braid.AddRows"), 0);
  EXPECT_EQ(count_ops(*model({1, 2}).compiled(Domain::Host), "braid.AddRows"), 0);
}

}  // namespace
}  // namespace braid::testing
