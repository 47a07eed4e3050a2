// Mixed precision on a device: models of the zoo and random ones beside float32 of the host, the same bits in
// each run, launched and captured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/rewrite/mixed_bags.h"
#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

std::shared_ptr<Accelerator> exact_device() {
  AcceleratorOptions options;
  options.tf32 = false;
  return open_cuda(options);
}

void expect_near_float32(const MixedModel& model, const std::vector<Tensor>& expected, bool fusion,
                         double most_of_float32) {
  constexpr int kSteps = 4;  // launched, captured, replayed
  const auto device = exact_device();
  for (const DType half : {DType::Float32, DType::BFloat16, DType::Float16}) {
    SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
    CompileOptions options = precision_options(half, Domain::Device, fusion);
    options.batch_siblings = BatchSiblings::AcrossScopes;
    const std::vector<Tensor> got = run_model(model, options, kSteps, device);
    ASSERT_EQ(got.size(), expected.size());
    const Apart error = apart(model, got, expected);
    // As on the host: behind a kink another element may be the largest.
    const double most = half == DType::Float32 ? most_of_float32 : 0.5;
    EXPECT_LT(error.loss, half == DType::Float32 ? most : 0.15) << error.loss;
    EXPECT_LT(error.gradient, most) << error.worst;
    const std::vector<Tensor> again = run_model(model, options, kSteps, device);
    for (std::size_t f = 0; f < got.size(); ++f)
      EXPECT_EQ(std::memcmp(got[f].raw(), again[f].raw(), got[f].bytes()), 0) << model.request.fetches[f];
  }
}

class MixedZooOnDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(MixedZooOnDevice, LossAndGradientsStayCloseToThoseOfFloat32) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  const MixedModel model = zoo_model(GetParam());
  const std::vector<Tensor> expected = run_model(model, precision_options(DType::Float32));
  for (const bool fusion : {false, true}) expect_near_float32(model, expected, fusion, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, MixedZooOnDevice,
                         ::testing::Values("mlp", "wide_deep", "deepfm", "dcn_v2", "dlrm", "mmoe", "din",
                                           "cnn", "hstu", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RandomMixedPrecisionOnDevice, StaysNearFloat32) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  const int models = tries("BRAID_RANDOM_PRECISION", 40, 10);
  for (int seed = 0; seed < models; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const MixedModel model = random_model(static_cast<std::uint64_t>(seed));
    const std::vector<Tensor> expected = run_model(model, precision_options(DType::Float32));
    try {
      expect_near_float32(model, expected, seed % 2 == 0, 5e-3);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(MixedBagsOnDevice, LossesOfStepsAreNearThoseOfFloat32) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  constexpr int kSteps = 13;  // before small differences grow
  const MixedModel model = trained_bags();
  const std::vector<float> expected = losses_of(model, precision_options(DType::Float32), kSteps);
  const auto device = exact_device();
  for (const DType half : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const bool fusion : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
      CompileOptions options = precision_options(half, Domain::Device, fusion);
      options.streams.count = 3;
      const std::vector<float> got = losses_of(model, options, kSteps, device);
      const double most = half == DType::Float32 ? 1e-3 : 0.02;
      for (std::size_t step = 0; step < got.size(); ++step)
        EXPECT_NEAR(got[step], expected[step], most) << "step " << step;
      EXPECT_EQ(losses_of(model, options, kSteps, device), got) << "the same bits in each run";
    }
}

}  // namespace
}  // namespace braid::testing
