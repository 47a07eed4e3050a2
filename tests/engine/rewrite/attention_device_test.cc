// Attention as one node of a device's program, however it is written, beside the plain graph on the host: the
// same bits in each run, launched and captured, with regions, in float32 and in halves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/rewrite/attention_models.h"

namespace braid::testing {
namespace {

constexpr int kSteps = 4;  // launched, captured, replayed

void expect_near(const WrittenAttention& written, DType half, double tolerance) {
  AcceleratorOptions exact;
  exact.tf32 = false;
  const auto device = open_cuda(exact);
  const MixedModel model = runnable(written);
  CompileOptions options;
  options.attention = AttentionNodes::Never;
  const std::vector<Tensor> expected = run_model(model, options, kSteps);
  options.attention = AttentionNodes::Always;
  options.domain = Domain::Device;
  options.fusion = true;
  options.precision.half = half;
  const std::vector<Tensor> got = run_model(model, options, kSteps, device);
  const std::vector<Tensor> again = run_model(model, options, kSteps, device);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t f = 0; f < got.size(); ++f) {
    EXPECT_LT(distance(got[f], expected[f]), tolerance * (norm(expected[f]) + 1e-3))
        << model.request.fetches[f];
    EXPECT_EQ(std::memcmp(got[f].raw(), again[f].raw(), got[f].bytes()), 0) << model.request.fetches[f];
  }
}

TEST(AttentionOnDevice, IsThePlainGraphOfTheHost) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  for (std::uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    const WrittenAttention written = written_attention(seed, Unlike::None, seed % 3 == 0);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, written.text));
    expect_near(written, DType::Float32, 1e-4);
  }
}

TEST(AttentionOnDevice, StaysNearItInHalves) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "there is no device";
  for (std::uint64_t seed = 0; seed < 24 && !HasFailure(); seed += 3) {
    const WrittenAttention written = written_attention(seed, Unlike::None, true);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, written.text));
    expect_near(written, DType::BFloat16, 0.3);
    expect_near(written, DType::Float16, 0.1);
  }
}

}  // namespace
}  // namespace braid::testing
