// Convolutions and pooling against loops that follow the definition, over paddings, strides, dilations and
// layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ostream>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// A geometry in NHWC terms. Paddings are before and after, h then w.
struct Geometry {
  std::string label;
  std::int64_t n, h, w, c, out_c, kh, kw, sh, sw, dh, dw;
  std::string padding;
  Ints pads = {0, 0, 0, 0};
  bool nchw = false;
  bool depthwise = false;

  std::int64_t extent_h() const { return (kh - 1) * dh + 1; }
  std::int64_t extent_w() const { return (kw - 1) * dw + 1; }
  Ints resolved_pads() const {
    if (padding == "VALID") return {0, 0, 0, 0};
    if (padding == "EXPLICIT") return pads;
    const auto same = [](std::int64_t in, std::int64_t stride, std::int64_t extent) {
      return std::max<std::int64_t>(((in + stride - 1) / stride - 1) * stride + extent - in, 0);
    };
    const std::int64_t ph = same(h, sh, extent_h()), pw = same(w, sw, extent_w());
    return {ph / 2, ph - ph / 2, pw / 2, pw - pw / 2};
  }
  std::int64_t out_h() const { return (h + resolved_pads()[0] + resolved_pads()[1] - extent_h()) / sh + 1; }
  std::int64_t out_w() const { return (w + resolved_pads()[2] + resolved_pads()[3] - extent_w()) / sw + 1; }

  AttrMap attrs() const {
    const auto order = [&](std::int64_t a, std::int64_t b) {
      return nchw ? Ints{1, 1, a, b} : Ints{1, a, b, 1};
    };
    AttrMap map{{"strides", order(sh, sw)},
                {"dilations", order(dh, dw)},
                {"padding", padding},
                {"data_format", nchw ? "NCHW" : "NHWC"},
                {"ksize", order(kh, kw)}};
    if (padding == "EXPLICIT")
      map.set("explicit_paddings", nchw ? Ints{0, 0, 0, 0, pads[0], pads[1], pads[2], pads[3]}
                                        : Ints{0, 0, pads[0], pads[1], pads[2], pads[3], 0, 0});
    return map;
  }
  Shape image(std::int64_t height, std::int64_t width, std::int64_t channels) const {
    return nchw ? Shape{n, channels, height, width} : Shape{n, height, width, channels};
  }
  std::int64_t at(std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t ch, std::int64_t height,
                  std::int64_t width, std::int64_t channels) const {
    return nchw ? ((i * channels + ch) * height + y) * width + x
                : ((i * height + y) * width + x) * channels + ch;
  }
  std::int64_t in_at(std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t ch) const {
    return at(i, y, x, ch, h, w, c);
  }
  std::int64_t out_at(std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t ch,
                      std::int64_t channels) const {
    return at(i, y, x, ch, out_h(), out_w(), channels);
  }
};

/// Attributes of a gradient that is told the shape of its images.
AttrMap with_shape(AttrMap attrs, const Shape& shape) {
  attrs.set("image_shape", Ints(shape.dims().begin(), shape.dims().end()));
  return attrs;
}

/// visit(image, out y, out x, in y, in x, kernel y, kernel x) for all positions inside the input.
template <class Visit>
void for_all_taps(const Geometry& g, Visit visit) {
  const Ints pads = g.resolved_pads();
  for (std::int64_t i = 0; i < g.n; ++i)
    for (std::int64_t oy = 0; oy < g.out_h(); ++oy)
      for (std::int64_t ox = 0; ox < g.out_w(); ++ox)
        for (std::int64_t ky = 0; ky < g.kh; ++ky)
          for (std::int64_t kx = 0; kx < g.kw; ++kx) {
            const std::int64_t y = oy * g.sh - pads[0] + ky * g.dh, x = ox * g.sw - pads[2] + kx * g.dw;
            if (y >= 0 && y < g.h && x >= 0 && x < g.w) visit(i, oy, ox, y, x, ky, kx);
          }
}

std::vector<double> doubles(std::int64_t n) { return std::vector<double>(static_cast<std::size_t>(n)); }

/// What test runners show for a case.
void PrintTo(const Geometry& g, std::ostream* out) { *out << g.label; }

void expect_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = to_doubles(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t k = 0; k < values.size(); ++k)
    ASSERT_NEAR(values[k], expected[k], tolerance * (1 + std::abs(expected[k]))) << "element " << k;
}

class ConvolutionOps : public ::testing::TestWithParam<Geometry> {};
class PoolingOps : public ::testing::TestWithParam<Geometry> {};

TEST_P(ConvolutionOps, ConvolutionAndItsGradientsFollowTheDefinition) {
  const Geometry& g = GetParam();
  const std::int64_t multiplier = g.depthwise ? g.out_c / g.c : 0;
  const Shape filter_shape =
      g.depthwise ? Shape{g.kh, g.kw, g.c, multiplier} : Shape{g.kh, g.kw, g.c, g.out_c};
  const Tensor x = converted(random_f64(g.image(g.h, g.w, g.c), 1), DType::Float32);
  const Tensor filter = converted(random_f64(filter_shape, 2), DType::Float32);
  const Tensor dy = converted(random_f64(g.image(g.out_h(), g.out_w(), g.out_c), 3), DType::Float32);
  const auto xs = to_doubles(x), ws = to_doubles(filter), dys = to_doubles(dy);
  auto y = doubles(dy.elements()), dx = doubles(x.elements()), dw = doubles(filter.elements());
  for_all_taps(g, [&](auto i, auto oy, auto ox, auto iy, auto ix, auto ky, auto kx) {
    for (std::int64_t o = 0; o < g.out_c; ++o)
      for (std::int64_t c = g.depthwise ? o / multiplier : 0; c < (g.depthwise ? o / multiplier + 1 : g.c);
           ++c) {
        const auto in = static_cast<std::size_t>(g.in_at(i, iy, ix, c));
        const auto out = static_cast<std::size_t>(g.out_at(i, oy, ox, o, g.out_c));
        const auto weight = static_cast<std::size_t>(
            g.depthwise ? (ky * g.kw + kx) * g.out_c + o : ((ky * g.kw + kx) * g.c + c) * g.out_c + o);
        y[out] += xs[in] * ws[weight];
        dx[in] += dys[out] * ws[weight];
        dw[weight] += dys[out] * xs[in];
      }
  });
  const auto sizes = [](const Shape& s) {
    return Tensor::from<std::int64_t>({4}, std::vector<std::int64_t>(s.dims().begin(), s.dims().end()));
  };
  const std::string name = g.depthwise ? "DepthwiseConv2dNative" : "Conv2D";
  expect_close(run_op(name, {x, filter}, g.attrs())[0], y, 1e-5);
  expect_close(run_op(name + "BackpropInput", {sizes(x.shape()), filter, dy}, g.attrs())[0], dx, 1e-5);
  expect_close(run_op(name + "BackpropFilter", {x, sizes(filter_shape), dy}, g.attrs())[0], dw, 3e-5);
}

TEST_P(PoolingOps, PoolingAndItsGradientsFollowTheDefinition) {
  const Geometry& g = GetParam();
  const Tensor x = random_f64(g.image(g.h, g.w, g.c), 1);
  const Tensor dy = random_f64(g.image(g.out_h(), g.out_w(), g.c), 3);
  const auto xs = to_doubles(x), dys = to_doubles(dy);
  const double low = -std::numeric_limits<double>::infinity();
  std::vector<double> max(dys.size(), low);
  std::vector<std::size_t> where(dys.size());
  auto sum = doubles(dy.elements()), count = doubles(dy.elements());
  for_all_taps(g, [&](auto i, auto oy, auto ox, auto iy, auto ix, auto, auto) {
    for (std::int64_t c = 0; c < g.c; ++c) {
      const auto in = static_cast<std::size_t>(g.in_at(i, iy, ix, c));
      const auto out = static_cast<std::size_t>(g.out_at(i, oy, ox, c, g.c));
      if (xs[in] > max[out]) {
        max[out] = xs[in];
        where[out] = in;
      }
      sum[out] += xs[in];
      count[out] += 1;
    }
  });
  auto mean = sum, max_dx = doubles(x.elements()), mean_dx = doubles(x.elements());
  for (std::size_t k = 0; k < mean.size(); ++k) mean[k] /= count[k];
  for (std::size_t k = 0; k < max.size(); ++k) max_dx[where[k]] += dys[k];
  for_all_taps(g, [&](auto i, auto oy, auto ox, auto iy, auto ix, auto, auto) {
    for (std::int64_t c = 0; c < g.c; ++c) {
      const auto out = static_cast<std::size_t>(g.out_at(i, oy, ox, c, g.c));
      mean_dx[static_cast<std::size_t>(g.in_at(i, iy, ix, c))] += dys[out] / count[out];
    }
  });
  AttrMap attrs = g.attrs();
  const Tensor y = run_op("MaxPool", {x}, attrs)[0];
  expect_close(y, max, 0);
  expect_close(run_op("MaxPoolGrad", {x, y, dy}, attrs)[0], max_dx, 1e-12);
  const std::vector<Tensor> kept = run_op("braid.MaxPoolPlaces", {x}, attrs);
  expect_close(kept[0], max, 0);
  expect_close(run_op("braid.MaxPoolPlacesGrad", {kept[1], dy}, with_shape(attrs, x.shape()))[0], max_dx,
               1e-12);
  expect_close(run_op("AvgPool", {x}, attrs)[0], mean, 1e-12);
  const Tensor sizes = Tensor::from<std::int64_t>(
      {4}, std::vector<std::int64_t>(x.shape().dims().begin(), x.shape().dims().end()));
  expect_close(run_op("AvgPoolGrad", {sizes, dy}, attrs)[0], mean_dx, 1e-12);
}

const Geometry kDilated[] = {
    Geometry{"Dilated", 1, 9, 9, 3, 4, 3, 3, 1, 1, 2, 3, "SAME"},
    Geometry{"DilatedStrided", 1, 9, 8, 3, 4, 2, 2, 2, 1, 3, 2, "VALID"},
};
const Geometry kGeometries[] = {
    Geometry{"ValidThree", 2, 6, 7, 3, 4, 3, 3, 1, 1, 1, 1, "VALID"},
    Geometry{"SameThree", 2, 5, 5, 3, 4, 3, 3, 1, 1, 1, 1, "SAME"},
    Geometry{"SameStrided", 2, 7, 6, 2, 5, 3, 3, 2, 2, 1, 1, "SAME"},
    Geometry{"SameEvenKernel", 1, 5, 6, 2, 3, 2, 4, 1, 1, 1, 1, "SAME"},
    Geometry{"SameStrideBeyondKernel", 1, 8, 7, 2, 3, 1, 2, 3, 3, 1, 1, "SAME"},
    Geometry{"ValidStridedWide", 3, 9, 8, 17, 33, 3, 2, 2, 3, 1, 1, "VALID"},
    Geometry{"Explicit", 2, 5, 6, 3, 4, 3, 3, 2, 1, 1, 1, "EXPLICIT", {1, 2, 0, 2}},
    Geometry{"Quarters", 3, 6, 8, 5, 4, 2, 2, 2, 2, 1, 1, "VALID"},
    Geometry{"QuartersChannelsFirst", 2, 4, 6, 3, 2, 2, 2, 2, 2, 1, 1, "SAME", {0, 0, 0, 0}, true},
    Geometry{"OneChannel", 5, 12, 12, 1, 16, 3, 3, 1, 1, 1, 1, "SAME"},
    Geometry{"ManyImages", 50, 9, 9, 16, 32, 3, 3, 1, 1, 1, 1, "SAME"},
    Geometry{"ChannelsFirst", 2, 5, 6, 3, 4, 3, 2, 2, 1, 1, 1, "SAME", {0, 0, 0, 0}, true},
    Geometry{"ChannelsFirstExplicit", 2, 5, 6, 3, 4, 3, 3, 1, 1, 1, 1, "EXPLICIT", {0, 1, 2, 0}, true},
    Geometry{"Depthwise", 2, 6, 5, 4, 4, 3, 3, 1, 1, 1, 1, "SAME", {0, 0, 0, 0}, false, true},
    Geometry{"DepthwiseMultiplied", 2, 6, 5, 3, 6, 3, 3, 2, 2, 1, 1, "VALID", {0, 0, 0, 0}, false, true},
};

std::string label_of(const ::testing::TestParamInfo<Geometry>& info) { return info.param.label; }

INSTANTIATE_TEST_SUITE_P(Geometries, ConvolutionOps, ::testing::ValuesIn(kGeometries), label_of);
INSTANTIATE_TEST_SUITE_P(Dilations, ConvolutionOps, ::testing::ValuesIn(kDilated), label_of);
INSTANTIATE_TEST_SUITE_P(Geometries, PoolingOps, ::testing::ValuesIn(kGeometries), label_of);

// What TensorFlow's CPU kernel gives.
TEST(MaxPoolTest, PassesOverNanAndIsFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const double lowest = std::numeric_limits<double>::lowest();
  const Tensor x = f64({1, 2, 6, 1}, {nan, 1, 5, nan, nan, -inf, 2, 3, nan, 4, -inf, nan});
  for (const std::int64_t stride : {2, 1}) {
    const AttrMap attrs{{"ksize", std::vector<std::int64_t>{1, 2, 2, 1}},
                        {"strides", std::vector<std::int64_t>{1, stride, stride, 1}},
                        {"padding", "VALID"}};
    EXPECT_EQ(values("MaxPool", {x}, attrs),
              stride == 2 ? (std::vector<double>{3, 5, lowest}) : (std::vector<double>{3, 5, 5, 4, lowest}));
  }
}

TEST(MaxPoolGradTest, GoesToTheFirstOfEqualMaxima) {
  const AttrMap attrs{{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}};
  const Tensor x = f64({1, 2, 2, 1}, {3, 5, 5, 5});
  const Tensor dx = run_op("MaxPoolGrad", {x, f64({1, 1, 1, 1}, {5}), f64({1, 1, 1, 1}, {7})}, attrs)[0];
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{0, 7, 0, 0}));
}

/// Halves round what they store, and the gradient goes where float32's goes all the same.
TEST(MaxPoolPlacesTest, RoundedMaximaHaveTheSameGradient) {
  const AttrMap attrs{{"ksize", Ints{1, 3, 3, 1}}, {"strides", Ints{1, 2, 2, 1}}};
  const Tensor x = converted(random_f64({3, 9, 9, 5}, 1), DType::Float32);
  AttrMap halves = attrs;
  halves.set("_half_outputs", Ints{0});
  halves.set("_half_type", DType::BFloat16);
  const std::vector<Tensor> wide = run_op("braid.MaxPoolPlaces", {x}, attrs),
                            narrow = run_op("braid.MaxPoolPlaces", {x}, halves);
  EXPECT_EQ(narrow[0].dtype(), DType::BFloat16);
  EXPECT_EQ(to_doubles(narrow[1]), to_doubles(wide[1]));
  for (const double place : to_doubles(wide[1])) EXPECT_TRUE(place >= 1 && place <= 9) << place;
}

TEST(MaxPoolPlacesTest, WhatNoPlaceHoldsHasNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const AttrMap attrs{{"ksize", Ints{1, 1, 2, 1}}, {"strides", Ints{1, 1, 2, 1}}};
  const Tensor x = f64({1, 1, 10, 1}, {nan, nan, -inf, nan, nan, 2, 3, 3, 1, inf});
  const std::vector<Tensor> kept = run_op("braid.MaxPoolPlaces", {x}, attrs);
  EXPECT_EQ(to_doubles(kept[1]), (std::vector<double>{0, 0, 2, 1, 2}));
  const Tensor dx = run_op("braid.MaxPoolPlacesGrad", {kept[1], f64({1, 1, 5, 1}, {1, 2, 3, 4, 5})},
                           with_shape(attrs, x.shape()))[0];
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{0, 0, 0, 0, 0, 3, 4, 0, 0, 5}));
}

TEST(MaxPoolPlacesTest, RefusesWindowsThatAByteDoesNotCount) {
  const AttrMap attrs{{"ksize", Ints{1, 16, 16, 1}}};
  EXPECT_NE(refusal("braid.MaxPoolPlaces", {random_f64({1, 16, 16, 1}, 1)}, attrs).find("255"),
            std::string::npos);
  const AttrMap small{{"ksize", Ints{1, 2, 2, 1}}};
  EXPECT_NE(refusal("braid.MaxPoolPlacesGrad",
                    {Tensor(DType::UInt8, Shape{1, 2, 2, 1}), random_f64({1, 2, 2, 1}, 1)},
                    with_shape(small, Shape{1, 4, 4, 1}))
                .find("do not give it"),
            std::string::npos);
}

/// A filter that no cache holds: the images are cut into fewer blocks, and what two halves of them give is
/// still what all give.
TEST(Conv2DTest, ALargeFilterIsReadForManyImages) {
  const auto f32 = [](const Tensor& x) { return converted(x, DType::Float32); };
  const Tensor w = f32(random_f64({1, 1, 520, 530}, 1));
  const Tensor x = f32(random_f64({61, 3, 3, 520}, 2)), dy = f32(random_f64({61, 3, 3, 530}, 3));
  const Tensor sizes = Tensor::from<std::int64_t>(Shape{2}, Ints{40, 21});
  const Tensor axis = Tensor::scalar<std::int32_t>(0);
  const Tensor filter_shape = Tensor::from<std::int32_t>(Shape{4}, std::vector<std::int32_t>{1, 1, 520, 530});
  const auto xs = run_op("SplitV", {x, sizes, axis}, {{"num_split", 2}});
  const auto dys = run_op("SplitV", {dy, sizes, axis}, {{"num_split", 2}});
  const AttrMap attrs{{"padding", "SAME"}};
  std::vector<Tensor> images, filters;
  for (std::size_t half : {0, 1}) {
    images.push_back(run_op("Conv2D", {xs[half], w}, attrs)[0]);
    filters.push_back(run_op("Conv2DBackpropFilter", {xs[half], filter_shape, dys[half]}, attrs)[0]);
  }
  images.push_back(axis);
  expect_close(run_op("Conv2D", {x, w}, attrs)[0], to_doubles(run_op("ConcatV2", images)[0]), 1e-4);
  expect_close(run_op("Conv2DBackpropFilter", {x, filter_shape, dy}, attrs)[0],
               to_doubles(run_op("AddV2", filters)[0]), 1e-4);
}

TEST(Conv2DTest, GroupsAreConvolutionsSideBySide) {
  const Tensor x = converted(random_f64({2, 5, 4, 6}, 1), DType::Float32);
  const Tensor w = converted(random_f64({3, 2, 2, 9}, 2), DType::Float32);
  const Tensor axis = Tensor::scalar<std::int32_t>(3);
  const auto images = run_op("Split", {axis, x}, {{"num_split", 3}});
  const auto filters = run_op("Split", {axis, w}, {{"num_split", 3}});
  std::vector<Tensor> parts;
  for (std::size_t g = 0; g < 3; ++g)
    parts.push_back(run_op("Conv2D", {images[g], filters[g]}, {{"padding", "SAME"}})[0]);
  parts.push_back(axis);
  expect_close(run_op("Conv2D", {x, w}, {{"padding", "SAME"}})[0], to_doubles(run_op("ConcatV2", parts)[0]),
               1e-6);
}

TEST(Conv2DTest, RefusesWhatDoesNotFit) {
  const Tensor x = f32({1, 2, 2, 1}, {1, 2, 3, 4}), w = f32({3, 3, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(refusal("Conv2D", {x, w}, {{"padding", "VALID"}}),
            "[Conv2D] node 'op': a window of 3 does not fit an input of 2 with paddings 0 and 0");
  EXPECT_EQ(refusal("Conv2D", {x, w}, {{"padding", "HALF"}}),
            "[Conv2D] node 'op': attribute padding must be SAME, VALID or EXPLICIT, got 'HALF'");
  EXPECT_EQ(
      refusal("Conv2D", {x, w},
              {{"padding", "SAME"}, {"strides", std::vector<std::int64_t>{1, std::int64_t{1} << 31, 1, 1}}}),
      "[Conv2D] node 'op': attribute strides must be at most 1048576");
  EXPECT_EQ(refusal("Conv2D", {x, f32({1, 1, 2, 1}, {1, 1})}, {}),
            "[Conv2D] node 'op': images of shape [1, 2, 2, 1] have 1 channels, filter [1, 1, 2, 1] takes 2");
}

std::vector<double> resized(const std::string& op, std::vector<std::int32_t> size, bool corners, bool half) {
  const Tensor x = f32({1, 2, 3, 1}, {0, 10, 20, 30, 40, 50});
  std::vector<double> y = values(op, {x, Tensor::from<std::int32_t>({2}, size)},
                                 {{"align_corners", corners}, {"half_pixel_centers", half}});
  for (double& v : y) v = std::round(v * 100) / 100;
  return y;
}

TEST(ResizeTest, EachRuleOfPlacesGivesTensorFlowsImages) {
  using Doubles = std::vector<double>;
  EXPECT_EQ(resized("ResizeBilinear", {3, 4}, false, false),
            (Doubles{0, 7.5, 15, 20, 20, 27.5, 35, 40, 30, 37.5, 45, 50}));
  EXPECT_EQ(resized("ResizeBilinear", {3, 4}, true, false),
            (Doubles{0, 6.67, 13.33, 20, 15, 21.67, 28.33, 35, 30, 36.67, 43.33, 50}));
  EXPECT_EQ(resized("ResizeBilinear", {3, 4}, false, true),
            (Doubles{0, 6.25, 13.75, 20, 15, 21.25, 28.75, 35, 30, 36.25, 43.75, 50}));
  EXPECT_EQ(resized("ResizeNearestNeighbor", {3, 5}, false, false),
            (Doubles{0, 0, 10, 10, 20, 0, 0, 10, 10, 20, 30, 30, 40, 40, 50}));
  EXPECT_EQ(resized("ResizeNearestNeighbor", {3, 5}, true, false),
            (Doubles{0, 10, 10, 20, 20, 30, 40, 40, 50, 50, 30, 40, 40, 50, 50}));
  EXPECT_EQ(resized("ResizeNearestNeighbor", {3, 5}, false, true),
            (Doubles{0, 0, 10, 20, 20, 30, 30, 40, 50, 50, 30, 30, 40, 50, 50}));
}

TEST(LrnTest, DividesByTheChannelsBeside) {
  const AttrMap attrs{{"depth_radius", 1}, {"bias", 1.0}, {"alpha", 2.0}, {"beta", 0.5}};
  const std::vector<double> y = values("LRN", {f64({1, 1, 1, 3}, {1, 2, 3})}, attrs);
  EXPECT_NEAR(y[0], 1 / std::sqrt(1 + 2 * 5.0), 1e-12);
  EXPECT_NEAR(y[1], 2 / std::sqrt(1 + 2 * 14.0), 1e-12);
  EXPECT_NEAR(y[2], 3 / std::sqrt(1 + 2 * 13.0), 1e-12);
}

}  // namespace
}  // namespace braid::testing
