#include "tests/engine/ops/optimizer/updates.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/message_of.h"

namespace braid::testing {

Tensor drawn_f32(Shape shape, std::uint64_t seed, double low) {
  return converted(random_f64(std::move(shape), seed, low, 1.5), DType::Float32);
}

std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, std::vector<int> variables,
                           AttrMap attrs, const StepParams& params, int pool_width) {
  return run_update(op,
                    {.label = op,
                     .inputs = std::move(inputs),
                     .attrs = std::move(attrs),
                     .variables = std::move(variables)},
                    params, pool_width);
}

std::vector<Tensor> update(const std::string& op, std::vector<Tensor> inputs, int variables, AttrMap attrs,
                           const StepParams& params, int pool_width) {
  std::vector<int> first(static_cast<std::size_t>(variables));
  std::iota(first.begin(), first.end(), 0);
  return update(op, std::move(inputs), std::move(first), std::move(attrs), params, pool_width);
}

void expect_same(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.data<float>(), e = expected.data<float>();
  for (std::size_t k = 0; k < a.size(); ++k) ASSERT_EQ(a[k], e[k]) << "element " << k;
}

std::string update_refusal(const std::string& op, std::vector<Tensor> inputs, int variables, AttrMap attrs) {
  return message_of([&] { update(op, std::move(inputs), variables, std::move(attrs), {}); });
}

}  // namespace braid::testing
