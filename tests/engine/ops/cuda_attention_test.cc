// Dense attention on a device beside the host's, on random shapes: all layouts and masks, queries that see
// nothing, one query, thousands of keys; float32 as it is, rounded to TF32, halves, float64. The same bits in
// each run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/engine/ops/cuda_runner.h"
#include "tests/engine/ops/half_cases.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

struct Precision {
  const char* name;
  DType dtype;  // of values
  Products products;
  double tolerance;
};
constexpr Precision kPrecisions[] = {{"float32", DType::Float32, Products::Exact, 5e-5},
                                     {"TF32", DType::Float32, Products::Tf32, 2e-2},
                                     {"float16", DType::Float16, Products::Exact, 1.5e-2},
                                     {"bfloat16", DType::BFloat16, Products::Exact, 4e-2},
                                     {"float64", DType::Float64, Products::Exact, 1e-9}};

struct Sizes {
  std::int64_t outer = 1, heads = 1, queries = 1, keys = 1, qk = 8, v = 8;
  bool inside = false;
  int mask = 0;  // 0: none, 1: added, 2: chosen, 3: causal, 4: causal, chosen

  Shape of(std::int64_t rows, std::int64_t width) const {
    return inside ? Shape{outer, rows, heads, width} : Shape{outer, heads, rows, width};
  }
  std::string text() const {
    return fmt::format("{} x {} heads, {} queries, {} keys, widths {} and {}, mask {}{}", outer, heads,
                       queries, keys, qk, v, mask, inside ? ", heads inside" : "");
  }
};

class Attention {
 public:
  Attention(const Sizes& sizes, std::uint64_t seed) : s_(sizes), random_(seed) {
    for (const auto& [rows, width] : {std::pair{s_.queries, s_.qk}, {s_.keys, s_.qk}, {s_.keys, s_.v}})
      forward_.inputs.push_back(random_f64(s_.of(rows, width), random_(), -2, 2));
    d_out_ = random_f64(s_.of(s_.queries, s_.v), random_(), -2, 2);
    forward_.label = "attention";
    forward_.attrs = {{"heads_inside", s_.inside}, {"scale", 0.7 / std::sqrt(static_cast<double>(s_.qk))}};
    if (s_.mask == 1) mask_.push_back(added());
    if (s_.mask == 2 || s_.mask == 4) mask_.push_back(chosen());
    if (s_.mask >= 3) {
      forward_.attrs.set("causal", true);
      forward_.attrs.set("causal_offset", below(7) - 2);  // below 0: some queries see nothing
    }
  }

  void compare(const Precision& precision) const {
    SCOPED_TRACE(fmt::format("{}, {}", precision.name, s_.text()));
    const OpDef& def = OpRegistry::global().require("braid.Attention");
    const OpCase narrow = with_mask(forward_, precision, 3);
    // What the host's gradient reads is of the same rounded values.
    const Results host = run_program(def, narrow, Domain::Host, 1);
    expect_same("braid.Attention", narrow, precision, {"output", "sums"});
    OpCase back = forward_;
    back.inputs.push_back(d_out_);
    back = with_mask(back, precision, 4);
    const auto mask = back.inputs.size() > 4 ? std::vector{back.inputs.back()} : std::vector<Tensor>{};
    back.inputs.resize(4);
    back.inputs.insert(back.inputs.end(), host.outputs.begin(), host.outputs.end());
    back.inputs.insert(back.inputs.end(), mask.begin(), mask.end());
    // What scores get, with few keys, are differences of sums that are nearly equal; keys add up their
    // rounding.
    const double least = std::max(1.0, std::sqrt(static_cast<double>(s_.queries)) / 8);
    expect_same("braid.AttentionGrad", back, precision, {"dq", "dk", "dv"}, least);
    if (s_.mask != 1 || mask.empty() || mask[0].shape()[mask[0].shape().rank() - 2] != s_.queries) return;
    back.attrs.set("mask_gradient", true);
    expect_same("braid.AttentionGrad", back, precision, {"dq", "dk", "dv", "d_mask"}, least);
  }

 private:
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  Shape mask_shape() {
    const Shape all[] = {{s_.outer, 1, 1, s_.keys},
                         {s_.queries, s_.keys},
                         {1, s_.heads, s_.queries, s_.keys},
                         {s_.outer, s_.heads, s_.queries, s_.keys}};
    return all[below(4)];
  }
  /// Numbers, -1e9, and -infinity, which hides all keys of some queries.
  Tensor added() {
    Tensor t = random_f64(mask_shape(), random_());
    const std::span<double> x = t.data<double>();
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      const bool all = i / s_.keys % 5 == 3;
      if (all || below(3) == 0)
        x[static_cast<std::size_t>(i)] =
            all || below(2) == 0 ? -std::numeric_limits<double>::infinity() : -1e9;
    }
    return t;
  }
  Tensor chosen() {
    Tensor t(DType::Bool, mask_shape());
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.data<bool>()[static_cast<std::size_t>(i)] = i / s_.keys % 5 != 3 && below(3) > 0;
    return t;
  }

  /// The first `values` inputs, and the mask, as the precision has them.
  OpCase with_mask(OpCase c, const Precision& precision, std::size_t values) const {
    const DType wide = precision.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
    for (std::size_t i = 0; i < values; ++i)
      c.inputs[i] = cast(converted(c.inputs[i], wide), precision.dtype);
    for (const Tensor& mask : mask_)
      c.inputs.push_back(mask.dtype() == DType::Bool ? mask : converted(mask, wide));
    return c;
  }

  /// Relative to the largest number expected, or `least`; infinities must be the same.
  static double difference(const Tensor& expected, const Tensor& actual, double least) {
    const bool is_double = expected.dtype() == DType::Float64;
    const auto a = to_doubles(is_double ? expected : cast(expected, DType::Float32));
    const auto b = to_doubles(is_double ? actual : cast(actual, DType::Float32));
    double most = least, worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
      if (std::abs(a[i]) < 1e8) most = std::max(most, std::abs(a[i]));  // not by what is behind a mask
      worst = std::max(worst, std::abs(a[i]) < 1e8 ? std::abs(a[i] - b[i]) : std::abs(1 - b[i] / a[i]));
    }
    return worst / most;
  }

  static void expect_same(const char* op, const OpCase& c, const Precision& precision,
                          const std::vector<const char*>& names, double least = 1e-3) {
    const OpDef& def = OpRegistry::global().require(op);
    const Results host = run_program(def, c, Domain::Host, 1);
    const Results device = run_program(def, c, Domain::Device, 3, 1, precision.products);
    ASSERT_TRUE(device.on_device) << op;
    const Results again = run_program(def, c, Domain::Device, 1, 1, precision.products);
    for (std::size_t o = 0; o < names.size(); ++o) {
      EXPECT_LT(difference(host.outputs[o], device.outputs[o], least), precision.tolerance)
          << op << ' ' << names[o];
      EXPECT_EQ(std::memcmp(device.outputs[o].raw(), again.outputs[o].raw(), again.outputs[o].bytes()), 0)
          << names[o] << " differs from run to run";
    }
  }

  Sizes s_;
  mutable std::mt19937_64 random_;
  OpCase forward_;
  Tensor d_out_;
  std::vector<Tensor> mask_;  // none or one
};

class CudaAttention : public ::testing::TestWithParam<Precision> {};

TEST_P(CudaAttention, IsTheHostsOnRandomShapes) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const std::int64_t widths[] = {8, 16, 24, 32, 48, 64, 96, 128, 1, 3, 20, 130};
  for (std::uint64_t seed = 0; seed < 80 && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Sizes s{1 + below(3), 1 + below(3), 1 + below(seed % 4 == 0 ? 400 : 90)};
    s.keys = below(2) == 0 ? s.queries : 1 + below(seed % 4 == 1 ? 400 : 90);
    s.qk = widths[below(seed % 5 == 4 ? 12 : 8)];
    s.v = below(2) == 0 ? s.qk : widths[below(seed % 5 == 4 ? 12 : 8)];
    s.inside = below(2) == 0;
    s.mask = static_cast<int>(below(5));
    Attention(s, seed).compare(GetParam());
  }
}

TEST_P(CudaAttention, TakesOneQueryAndThousandsOfKeys) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  Precision of_long_sums = GetParam();
  of_long_sums.tolerance = std::max(of_long_sums.tolerance, 1e-4);  // of both float32 sums
  std::uint64_t seed = 0;
  for (const auto& [queries, keys] :
       {std::pair<std::int64_t, std::int64_t>{1, 4095}, {4095, 1}, {700, 4095}, {1, 1}})
    for (const int mask : {0, 1, 2, 3})
      Attention({1, 2, queries, keys, 64, 64, mask % 2 == 1, mask}, ++seed).compare(of_long_sums);
}

TEST_P(CudaAttention, NothingIsNothing) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  Attention({2, 2, 0, 5, 16, 16}, 1).compare(GetParam());
  Attention({2, 2, 5, 0, 16, 16}, 2).compare(GetParam());
  Attention({0, 2, 5, 5, 16, 16}, 3).compare(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaAttention, ::testing::ValuesIn(kPrecisions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace braid::testing
