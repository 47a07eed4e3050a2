// Convolutions and pooling of volumes against loops that follow the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

#include "base/error.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;
using Three = std::array<std::int64_t, 3>;  // depth, height, width

/// A geometry in NDHWC terms.
struct VolumeGeometry {
  std::string label;
  std::int64_t n;
  Three in;
  std::int64_t c, out_c;
  Three kernel, stride, dilation;
  std::string padding;
  Three before = {0, 0, 0}, after = {0, 0, 0};
  bool channels_first = false;

  std::int64_t extent(std::size_t i) const { return (kernel[i] - 1) * dilation[i] + 1; }
  std::int64_t front(std::size_t i) const { return padding == "SAME" ? same(i) / 2 : before[i]; }
  std::int64_t back(std::size_t i) const { return padding == "SAME" ? same(i) - same(i) / 2 : after[i]; }
  std::int64_t out(std::size_t i) const { return (in[i] + front(i) + back(i) - extent(i)) / stride[i] + 1; }
  std::int64_t same(std::size_t i) const {
    const std::int64_t windows = (in[i] + stride[i] - 1) / stride[i];
    return std::max<std::int64_t>((windows - 1) * stride[i] + extent(i) - in[i], 0);
  }
  Shape volume(bool of_output, std::int64_t channels) const {
    const auto size = [&](std::size_t i) { return of_output ? out(i) : in[i]; };
    return channels_first ? Shape{n, channels, size(0), size(1), size(2)}
                          : Shape{n, size(0), size(1), size(2), channels};
  }
  std::size_t at(bool of_output, std::int64_t image, const Three& place, std::int64_t channel,
                 std::int64_t channels) const {
    const auto size = [&](std::size_t i) { return of_output ? out(i) : in[i]; };
    const std::int64_t position = (place[0] * size(1) + place[1]) * size(2) + place[2];
    const std::int64_t places = size(0) * size(1) * size(2);
    return static_cast<std::size_t>(channels_first ? (image * channels + channel) * places + position
                                                   : (image * places + position) * channels + channel);
  }
  AttrMap attrs() const {
    const auto order = [&](const Three& v) {
      return channels_first ? Ints{1, 1, v[0], v[1], v[2]} : Ints{1, v[0], v[1], v[2], 1};
    };
    AttrMap map{{"strides", order(stride)},
                {"dilations", order(dilation)},
                {"padding", padding},
                {"data_format", channels_first ? "NCDHW" : "NDHWC"},
                {"ksize", order(kernel)}};
    Ints pads(10, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t axis = i + (channels_first ? 2 : 1);
      pads[2 * axis] = before[i];
      pads[2 * axis + 1] = after[i];
    }
    if (padding == "EXPLICIT") map.set("explicit_paddings", pads);
    return map;
  }
};

void PrintTo(const VolumeGeometry& g, std::ostream* out) { *out << g.label; }

/// visit(out place, in place, number of the tap) for all positions inside of one volume, row-major.
template <class Visit>
void for_all_taps(const VolumeGeometry& g, const Visit& visit) {
  const std::int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  for (std::int64_t o = 0; o < g.out(0) * g.out(1) * g.out(2); ++o)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const Three out{o / (g.out(1) * g.out(2)), o / g.out(2) % g.out(1), o % g.out(2)};
      const Three k{tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
      Three in{};
      bool inside = true;
      for (std::size_t i = 0; i < 3; ++i) {
        in[i] = out[i] * g.stride[i] - g.front(i) + k[i] * g.dilation[i];
        inside = inside && in[i] >= 0 && in[i] < g.in[i];
      }
      if (inside) visit(out, in, tap);
    }
}

void expect_near(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = to_doubles(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t k = 0; k < values.size(); ++k)
    ASSERT_NEAR(values[k], expected[k], tolerance * (1 + std::abs(expected[k]))) << "element " << k;
}

Tensor sizes_of(const Shape& s) {
  return Tensor::from<std::int64_t>({5}, std::vector<std::int64_t>(s.dims().begin(), s.dims().end()));
}

std::vector<double> doubles(const Tensor& like) {
  return std::vector<double>(static_cast<std::size_t>(like.elements()));
}

class VolumeOps : public ::testing::TestWithParam<VolumeGeometry> {};

TEST_P(VolumeOps, ConvolutionAndItsGradientsFollowTheDefinition) {
  const VolumeGeometry& g = GetParam();
  const Shape filter_shape{g.kernel[0], g.kernel[1], g.kernel[2], g.c, g.out_c};
  const Tensor x = converted(random_f64(g.volume(false, g.c), 1), DType::Float32);
  const Tensor filter = converted(random_f64(filter_shape, 2), DType::Float32);
  const Tensor dy = converted(random_f64(g.volume(true, g.out_c), 3), DType::Float32);
  const auto xs = to_doubles(x), ws = to_doubles(filter), dys = to_doubles(dy);
  auto y = doubles(dy), dx = doubles(x), dw = doubles(filter);
  for (std::int64_t image = 0; image < g.n; ++image)
    for_all_taps(g, [&](const Three& place, const Three& from, std::int64_t tap) {
      for (std::int64_t o = 0; o < g.out_c; ++o)
        for (std::int64_t c = 0; c < g.c; ++c) {
          const std::size_t in = g.at(false, image, from, c, g.c);
          const std::size_t out = g.at(true, image, place, o, g.out_c);
          const auto weight = static_cast<std::size_t>((tap * g.c + c) * g.out_c + o);
          y[out] += xs[in] * ws[weight];
          dx[in] += dys[out] * ws[weight];
          dw[weight] += dys[out] * xs[in];
        }
    });
  expect_near(run_op("Conv3D", {x, filter}, g.attrs())[0], y, 1e-5);
  expect_near(run_op("Conv3DBackpropInputV2", {sizes_of(x.shape()), filter, dy}, g.attrs())[0], dx, 1e-5);
  expect_near(run_op("Conv3DBackpropFilterV2", {x, sizes_of(filter_shape), dy}, g.attrs())[0], dw, 3e-5);
}

TEST_P(VolumeOps, PoolingAndItsGradientsFollowTheDefinition) {
  const VolumeGeometry& g = GetParam();
  if (g.dilation != Three{1, 1, 1}) return;
  Tensor x = random_f64(g.volume(false, g.c), 1);
  for (double& value : std::span(x.data<double>())) value = std::round(value * 2);  // many are equal
  const Tensor dy = random_f64(g.volume(true, g.c), 3);
  const auto xs = to_doubles(x), dys = to_doubles(dy);
  std::vector<double> max(dys.size(), -1e9), sum = doubles(dy), count = doubles(dy);
  const auto for_all = [&](const auto& visit) {
    for (std::int64_t image = 0; image < g.n; ++image)
      for (std::int64_t c = 0; c < g.c; ++c)
        for_all_taps(g, [&](const Three& place, const Three& from, std::int64_t) {
          visit(g.at(true, image, place, c, g.c), g.at(false, image, from, c, g.c));
        });
  };
  for_all([&](std::size_t out, std::size_t in) {
    max[out] = std::max(max[out], xs[in]);
    sum[out] += xs[in];
    count[out] += 1;
  });
  auto mean = sum, all_dx = doubles(x), first_dx = doubles(x), mean_dx = doubles(x);
  std::vector<bool> given(dys.size());
  for (std::size_t k = 0; k < mean.size(); ++k) mean[k] /= count[k];
  for_all([&](std::size_t out, std::size_t in) {
    mean_dx[in] += dys[out] / count[out];
    if (xs[in] != max[out]) return;
    all_dx[in] += dys[out];
    if (!given[out]) first_dx[in] += dys[out];
    given[out] = true;
  });
  AttrMap attrs = g.attrs();
  const Tensor y = run_op("MaxPool3D", {x}, attrs)[0];
  expect_near(y, max, 0);
  expect_near(run_op("AvgPool3D", {x}, attrs)[0], mean, 1e-12);
  expect_near(run_op("AvgPool3DGrad", {sizes_of(x.shape()), dy}, attrs)[0], mean_dx, 1e-12);
  expect_near(run_op("MaxPool3DGrad", {x, y, dy}, attrs)[0], all_dx, 1e-12);
  attrs.set("_first_maximum", true);
  expect_near(run_op("MaxPool3DGrad", {x, y, dy}, attrs)[0], first_dx, 1e-12);
  const std::vector<Tensor> kept = run_op("braid.MaxPoolPlaces3D", {x}, attrs);
  expect_near(kept[0], max, 0);
  attrs.set("image_shape", Ints(x.shape().dims().begin(), x.shape().dims().end()));
  expect_near(run_op("braid.MaxPoolPlacesGrad3D", {kept[1], dy}, attrs)[0], first_dx, 1e-12);
}

const VolumeGeometry kVolumes[] = {
    {"Valid", 2, {4, 5, 6}, 3, 4, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, "VALID"},
    {"Same", 2, {3, 5, 4}, 3, 4, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, "SAME"},
    {"SameStrided", 1, {5, 7, 6}, 2, 5, {3, 3, 2}, {2, 2, 2}, {1, 1, 1}, "SAME"},
    {"ValidStridedWide", 3, {5, 6, 7}, 17, 33, {2, 2, 3}, {2, 1, 3}, {1, 1, 1}, "VALID"},
    {"Explicit", 2, {4, 5, 3}, 3, 4, {3, 3, 2}, {1, 2, 1}, {1, 1, 1}, "EXPLICIT", {1, 0, 1}, {2, 1, 0}},
    {"ChannelsFirst", 2, {4, 5, 3}, 3, 2, {2, 3, 1}, {1, 2, 1}, {1, 1, 1}, "SAME", {}, {}, true},
    {"ChannelsFirstExplicit",
     2,
     {3, 4, 5},
     2,
     3,
     {2, 2, 3},
     {2, 1, 1},
     {1, 1, 1},
     "EXPLICIT",
     {1, 0, 2},
     {0, 1, 1},
     true},
    {"Dilated", 1, {7, 8, 6}, 2, 3, {2, 3, 2}, {1, 1, 2}, {3, 2, 1}, "VALID"},
    {"ManyVolumes", 40, {4, 5, 5}, 4, 8, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, "SAME"},
};

std::string label_of_volume(const ::testing::TestParamInfo<VolumeGeometry>& info) { return info.param.label; }

INSTANTIATE_TEST_SUITE_P(Geometries, VolumeOps, ::testing::ValuesIn(kVolumes), label_of_volume);

TEST(VolumeOpsTest, RefusesByName) {
  const Tensor x = random_f64({1, 4, 4, 4, 2}, 1);
  try {
    run_op("AvgPool3D", {x}, {{"ksize", Ints{1, 2, 2, 1}}});
    FAIL() << "a window of images over volumes";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("ksize must have 5 numbers"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace braid::testing
