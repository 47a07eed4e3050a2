#include "base/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/philox.h"

namespace braid {
namespace {

// Known answers of Random123 1.14 (kat_vectors, "philox4x32 10").
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (PhiloxCounter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(InitTest, BitsAreThePhiloxBlocksOfTheElements) {
  const RngKey key{0x299F31D0A4093822};
  const std::uint64_t first =
      (std::uint64_t{1} << 34) - 5;  // crosses from the low counter word into the high one
  std::vector<std::uint32_t> bits(1000);
  fill_bits(key, first, bits);
  for (std::size_t k = 0; k < bits.size(); ++k) {
    const std::uint64_t block = (first + k) / 4;
    const auto words =
        philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                   {0xA4093822, 0x299F31D0});
    ASSERT_EQ(bits[k], words[(first + k) % 4]) << "element " << k;
  }
}

TEST(InitTest, AnySplitGivesTheSameBits) {
  const RngKey key = make_rng_key(7, "table");
  for (InitSpec spec : {InitSpec{InitKind::Uniform, -1, 1}, InitSpec{InitKind::Normal, 0.5, 2},
                        InitSpec{InitKind::TruncatedNormal, 0, 0.1}}) {
    constexpr std::size_t kFirst = 3, kCount = 5000;
    std::vector<float> whole(kCount), parts(kCount);
    fill_initial(spec, key, kFirst, whole);
    for (std::size_t step : {1, 2, 3, 4, 5, 16, 31, 33, 127, 128, 129, 255, 256, 257, 1024}) {
      std::fill(parts.begin(), parts.end(), 99.0F);
      for (std::size_t at = 0; at < kCount; at += step)
        fill_initial(spec, key, kFirst + at, std::span(parts).subspan(at, std::min(step, kCount - at)));
      ASSERT_EQ(whole, parts) << "pieces of " << step;
    }
  }
}

// Values fixed on purpose: they are part of every job's reproducibility and may not change between versions.
TEST(InitTest, KeysAndHashesNeverChange) {
  EXPECT_EQ(stable_hash(""), stable_hash(std::string_view{}));
  EXPECT_EQ(stable_hash("dense/kernel"), 0x5AA175D1E6CBBD33ULL);
  EXPECT_EQ(make_rng_key(42, "dense/kernel").value, 0xF779677621AC3272ULL);
}

TEST(InitTest, KeysDifferBySeedNameAndStep) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const char* name : {"", "a", "b", "ab", "a/b"})
      for (std::uint64_t step = 0; step < 20; ++step) keys.insert(make_rng_key(seed, name, step).value);
  EXPECT_EQ(keys.size(), 20U * 5 * 20);
}

double mean(const std::vector<float>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / x.size(); }
double central_moment(const std::vector<float>& x, int power) {
  const double m = mean(x);
  double sum = 0;
  for (float v : x) sum += std::pow(v - m, power);
  return sum / x.size();
}

constexpr std::size_t kSamples = 400'000;
const double kSigmas =
    5 / std::sqrt(double{kSamples});  // five standard errors per unit of standard deviation

TEST(InitTest, UniformHasItsMomentsAndFillsItsRangeEvenly) {
  std::vector<float> x(kSamples);
  fill_uniform01(make_rng_key(1, "u"), 0, x);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), 0.0F);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 1.0F);
  EXPECT_NEAR(mean(x), 0.5, kSigmas * std::sqrt(1 / 12.0));
  EXPECT_NEAR(central_moment(x, 2), 1 / 12.0, kSigmas * std::sqrt(1 / 180.0));
  std::vector<double> cells(256);
  for (float v : x) ++cells[static_cast<std::size_t>(v * 256)];
  const double expected = kSamples / 256.0;
  double chi2 = 0;
  for (double n : cells) chi2 += (n - expected) * (n - expected) / expected;
  EXPECT_NEAR(chi2, 255, 5 * std::sqrt(2 * 255.0));
}

TEST(InitTest, NeighboursAreNotCorrelated) {
  std::vector<float> x(kSamples);
  fill_normal01(make_rng_key(1, "n"), 0, x);
  for (std::size_t lag : {1, 2, 3, 4, 8, 128, 256}) {
    double sum = 0;
    for (std::size_t i = lag; i < x.size(); ++i) sum += double{x[i]} * x[i - lag];
    EXPECT_NEAR(sum / kSamples, 0, kSigmas) << "lag " << lag;
  }
}

TEST(InitTest, NormalHasItsMoments) {
  std::vector<float> x(kSamples);
  fill_normal01(make_rng_key(1, "n"), 0, x);
  EXPECT_NEAR(mean(x), 0, kSigmas);
  EXPECT_NEAR(central_moment(x, 2), 1, kSigmas * std::sqrt(2.0));
  EXPECT_NEAR(central_moment(x, 3), 0, kSigmas * std::sqrt(15.0));
  EXPECT_NEAR(central_moment(x, 4), 3, kSigmas * std::sqrt(96.0));
  const auto beyond3 = std::count_if(x.begin(), x.end(), [](float v) { return std::abs(v) > 3; });
  EXPECT_NEAR(beyond3, kSamples * 0.0026998, 5 * std::sqrt(kSamples * 0.0026998));
}

TEST(InitTest, TruncatedNormalStaysWithinTwoAndHasItsVariance) {
  std::vector<float> x(kSamples);
  fill_truncated_normal01(make_rng_key(1, "t"), 0, x);
  EXPECT_GT(*std::min_element(x.begin(), x.end()), -2.0F);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 2.0F);
  // 1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2))
  const double variance = 1 - 4 * (std::exp(-2.0) / std::sqrt(2 * M_PI)) / std::erf(std::sqrt(2.0));
  EXPECT_NEAR(mean(x), 0, kSigmas);
  EXPECT_NEAR(central_moment(x, 2), variance, kSigmas * std::sqrt(2.0));
}

TEST(InitTest, QuantileInvertsTheDistributionFunction) {
  for (double p = 0x1p-25; p < 1; p = p < 0.001 ? p * 1.37 : p + 0.000731) {
    const double z = normal_quantile(p), back = 0.5 * std::erfc(-z / std::sqrt(2.0));
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    EXPECT_NEAR((back - p) / density, 0, 1.3e-9 * std::max(std::abs(z), 1e-3))
        << "p = " << p;  // the error in z
    EXPECT_NEAR(normal_quantile(1 - p), -z, 1e-8 * std::abs(z) + 1e-15 / density) << "p = " << p;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 3e-9);
}

TEST(InitTest, FillInitialScalesAndShifts) {
  const RngKey key = make_rng_key(3, "w");
  std::vector<float> x(10'000), unit(10'000);
  fill_initial({InitKind::Zeros, 5, 6}, key, 0, x);
  EXPECT_TRUE(std::all_of(x.begin(), x.end(), [](float v) { return v == 0; }));
  fill_initial({InitKind::Constant, 0.25, 0}, key, 0, x);
  EXPECT_TRUE(std::all_of(x.begin(), x.end(), [](float v) { return v == 0.25F; }));
  fill_normal01(key, 0, unit);
  fill_initial({InitKind::Normal, 2, 3}, key, 0, x);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 2 + 3 * unit[i]);
}

TEST(InitTest, UniformNeverReachesItsUpperEnd) {
  std::vector<float> x(200'000);
  fill_initial({InitKind::Uniform, 16'777'214, 16'777'216}, make_rng_key(3, "w"), 0,
               x);  // two floats fit in between
  EXPECT_EQ(*std::min_element(x.begin(), x.end()), 16'777'214.0F);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 16'777'215.0F);
  fill_initial({InitKind::Uniform, 3, 3}, make_rng_key(3, "w"), 0, x);
  EXPECT_TRUE(std::all_of(x.begin(), x.end(), [](float v) { return v == 3; }));
}

}  // namespace
}  // namespace braid
