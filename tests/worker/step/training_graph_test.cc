// Gradients in buckets: which are sent together, and in which order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {
namespace {

using Sizes = std::vector<std::vector<std::int64_t>>;

/// The elements of each bucket's variables; negative in: a table whose gradient is rows.
Sizes buckets_of(const std::vector<std::int64_t>& elements, std::int64_t bucket_bytes) {
  std::vector<VariableGradient> gradients(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) {
    gradients[i].variable.shape = Shape{std::abs(elements[i])};
    if (elements[i] < 0) gradients[i].slices.emplace();
  }
  Sizes sizes;
  for (const auto& bucket : bucket_gradients(gradients, bucket_bytes)) {
    sizes.emplace_back();
    for (const VariableGradient& gradient : bucket)
      sizes.back().push_back(gradient.variable.shape.elements());
  }
  return sizes;
}

TEST(BucketsTest, TheLastLayersComeFirstAndNoVariableIsCut) {
  EXPECT_EQ(buckets_of({10, 20, 1000, 30, 40}, 400), (Sizes{{40, 30}, {1000}, {20, 10}}));
  EXPECT_EQ(buckets_of({}, 400), Sizes{});
}

TEST(BucketsTest, RowsCountNothing) {
  EXPECT_EQ(buckets_of({50, -1'000'000, 50}, 400), (Sizes{{50, 1'000'000, 50}}));
}

}  // namespace
}  // namespace braid::worker
