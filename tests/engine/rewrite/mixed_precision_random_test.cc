// Mixed precision of random models (mixed_models.h): near float32, and NaN stays in the rows that have it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Errors {
  std::vector<double> gradients, rows;
};

TEST(RandomMixedPrecision, StaysNearFloat32) {
  const int models = tries("BRAID_RANDOM_PRECISION", 250, 40);
  Errors bfloat16, float16;
  int models_without_halves = 0;
  for (int seed = 0; seed < models && !HasFailure(); ++seed) {
    const MixedModel model = random_model(static_cast<std::uint64_t>(seed));
    const std::vector<Tensor> expected = run_model(model, precision_options(DType::Float32));
    bool rounded = false;
    for (const bool fusion : {false, true})
      for (const DType half : {DType::BFloat16, DType::Float16}) {
        SCOPED_TRACE(fmt::format("seed {}, {}{}", seed, dtype_name(half), fusion ? ", regions" : ""));
        const std::vector<Tensor> got = run_model(model, precision_options(half, Domain::Host, fusion));
        ASSERT_EQ(got.size(), expected.size());
        const Apart error = apart(model, got, expected);
        const double step = half == DType::BFloat16 ? 1.0 / 256 : 1.0 / 2048;
        // A gradient behind several products and a kink (ReLU, maximum) may be off by many roundings; the
        // quantiles below tell whether too much is rounded.
        EXPECT_LT(error.loss, 32 * step);
        EXPECT_LT(error.rows, 64 * step);
        EXPECT_LT(error.gradient, 0.5) << error.worst;
        Errors& errors = half == DType::BFloat16 ? bfloat16 : float16;
        errors.gradients.push_back(error.gradient);
        errors.rows.push_back(error.rows);
        rounded |= error.gradient + error.rows > 0;
      }
    models_without_halves += !rounded;
  }
  if (HasFailure()) return;
  for (const auto& [name, errors] : {std::pair{"bfloat16", &bfloat16}, {"float16", &float16}})
    fmt::print("{}: gradients apart {:.1e} (half of the models), {:.1e} (19 of 20), rows {:.1e}, {:.1e}\n",
               name, quantile(errors->gradients, 0.5), quantile(errors->gradients, 0.95),
               quantile(errors->rows, 0.5), quantile(errors->rows, 0.95));
  EXPECT_LE(models_without_halves, models / 10);
  EXPECT_LT(quantile(bfloat16.gradients, 0.5), 4.0 / 256);
  EXPECT_LT(quantile(float16.gradients, 0.5), 4.0 / 2048);
  EXPECT_LT(quantile(bfloat16.rows, 0.5), 1.0 / 256);
  EXPECT_LT(quantile(float16.rows, 0.5), 1.0 / 2048);
}

TEST(RandomMixedPrecision, NaNAndInfinitiesStayInTheRowsThatHaveThem) {
  const int models = tries("BRAID_RANDOM_PRECISION", 250, 40);
  int bad_rows = 0;
  for (int seed = 0; seed < models && !HasFailure(); ++seed) {
    MixedModel model = random_model(static_cast<std::uint64_t>(seed));
    Tensor& x = model.feeds[0];
    const std::int64_t width = x.shape()[1];
    for (std::int64_t row = 0; row < x.shape()[0]; row += 5)
      x.data<float>()[static_cast<std::size_t>(row * width)] =
          row % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    const Tensor expected = run_model(model, precision_options(DType::Float32)).back();
    for (const DType half : {DType::BFloat16, DType::Float16})
      for (const bool fusion : {false, true}) {
        SCOPED_TRACE(fmt::format("seed {}, {}{}", seed, dtype_name(half), fusion ? ", regions" : ""));
        const Tensor got = run_model(model, precision_options(half, Domain::Host, fusion)).back();
        const std::int64_t classes = expected.shape()[1];
        for (std::int64_t row = 0; row < expected.shape()[0]; ++row)
          for (std::int64_t c = 0; c < classes; ++c) {
            const auto at = static_cast<std::size_t>(row * classes + c);
            const float want = expected.data<float>()[at], have = got.data<float>()[at];
            if (row % 5 != 0) {
              ASSERT_TRUE(std::isfinite(have)) << "row " << row << " is a number in float32: " << want;
            } else if (row % 2 == 0) {
              ASSERT_EQ(std::isnan(have), std::isnan(want)) << "row " << row << ": " << want << ", " << have;
              bad_rows += std::isnan(have);
            } else if (std::isfinite(want)) {
              ASSERT_NEAR(have, want, 0.3 * (1 + std::abs(want))) << "row " << row;
            } else {
              ASSERT_FALSE(std::isfinite(have)) << "row " << row << ": " << want;
            }
          }
      }
  }
  EXPECT_GT(bad_rows, models);
}

}  // namespace
}  // namespace braid::testing
