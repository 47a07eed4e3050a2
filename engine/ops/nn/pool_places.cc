// braid.MaxPoolPlaces(x) -> y, places and braid.MaxPoolPlacesGrad(places, dy) -> dx, and the same of volumes
// with names that end in 3D: max pooling that keeps what it took, so that its gradient reads no image, and
// goes to the element that was taken whatever types x, y and dy are stored in.
//
// y is MaxPool's (engine/ops/nn/pool2d.cc). `places`, uint8 of y's shape, has the place in its window of the
// first element, in row-major order, that holds the maximum: 1 + (plane * rows + row) * columns + column,
// counted from the window's start, which may lie in the padding; 0 where none does, such as of NaN alone. So
// windows have at most 255 elements. Attributes are those of MaxPool, and
//   keeps        bool, true: else `places` is empty, of shape [0]
//   image_shape  of the gradient: the shape of x
// float32 and float64, and halves. Made by the pass pool_places. Inner loops run over channels; NCHW is seen
// as N * C images of one channel.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/pooling.h"

namespace braid {
namespace {

/// The window of one place of the output, and the numbers of its elements.
struct Taps {
  PoolSpan d, h, w;
  std::int64_t rows, columns, d0, h0, w0;  // of whole windows, and where this one starts
  BRAID_INLINE Taps(const Pooling& p, std::int64_t place)
      : d(p.window.d, place / (p.out_h * p.out_w), p.in_d),
        h(p.window.h, place / p.out_w % p.out_h, p.in_h),
        w(p.window.w, place % p.out_w, p.in_w),
        rows(p.window.h.kernel),
        columns(p.window.w.kernel),
        d0(start(p.window.d, place / (p.out_h * p.out_w))),
        h0(start(p.window.h, place / p.out_w % p.out_h)),
        w0(start(p.window.w, place % p.out_w)) {}
  BRAID_INLINE static std::int64_t start(const WindowAxis& axis, std::int64_t out) {
    return out * axis.stride - axis.pad_before;
  }
  BRAID_INLINE std::int64_t number(std::int64_t z, std::int64_t r, std::int64_t s) const {
    return 1 + ((z - d0) * rows + r - h0) * columns + s - w0;
  }
  /// Of input pixels, for a number that this window has.
  BRAID_INLINE std::int64_t pixel(const Pooling& p, std::int64_t number) const {
    const std::int64_t tap = number - 1, line = tap / columns;
    return ((d0 + line / rows) * p.in_h + h0 + line % rows) * p.in_w + w0 + tap % columns;
  }
};

template <class T>
BRAID_VECTOR_CLONES void take_larger(const T* tap, T* y, std::uint8_t* places, std::uint8_t number,
                                     std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const bool takes = tap[i] > y[i] || (places[i] == 0 && tap[i] == y[i]);
    y[i] = takes ? tap[i] : y[i];
    places[i] = takes ? number : places[i];
  }
}

constexpr std::int64_t kChannels = 256;  // channels whose places are found at a time where none are kept

/// One place of the output, n channels of it; `x` is the image. `places` is written all the same.
template <class T>
void pool_place(const Pooling& p, std::int64_t place, std::int64_t n, const T* x, T* y,
                std::uint8_t* places) {
  const Taps at(p, place);
  std::fill(y, y + n, std::numeric_limits<T>::lowest());
  std::fill(places, places + n, std::uint8_t{0});
  for (std::int64_t z = at.d.first; z < at.d.end; ++z)
    for (std::int64_t r = at.h.first; r < at.h.end; ++r)
      for (std::int64_t s = at.w.first; s < at.w.end; ++s)
        take_larger(x + ((z * p.in_h + r) * p.in_w + s) * p.channels, y, places,
                    static_cast<std::uint8_t>(at.number(z, r, s)), n);
}

void infer_forward(InferContext& c, int rank) {
  require_floating(c, 0);
  c.require_rank(0, rank);
  Shape in = c.shape(0);
  if (!in.has_rank()) in = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(rank), -1));
  const Pooling p = make_pooling(c.node(), in, [&c](const std::string& m) { c.fail(m); });
  if (p.taps() > kMostPlaces) c.fail("windows of more than 255 elements have no places");
  c.output(c.dtype(0), pooled_shape(p));
  c.output(DType::UInt8, c.attr("keeps", true) ? pooled_shape(p) : Shape{0});
}

PreparedKernel prepare_forward(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.inputs[0].shape);
  const bool keeps = c.attr<bool>("keeps", true);
  const std::int64_t pixels = p.out_d * p.out_h * p.out_w;
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, p.images * pixels, row_grain(p.channels * p.taps()),
                           [p, pixels, keeps](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             std::array<std::uint8_t, kChannels> unkept;
                             for (std::int64_t i = begin; i < end; ++i)
                               for (std::int64_t first = 0; first < p.channels; first += kChannels) {
                                 const std::int64_t out = i * p.channels + first;
                                 pool_place(p, i % pixels, std::min(kChannels, p.channels - first),
                                            a.in<T>(0) + i / pixels * p.in_image() + first, a.out<T>(0) + out,
                                            keeps ? a.out<std::uint8_t>(1) + out : unkept.data());
                               }
                           });
  });
}

void infer_gradient(InferContext& c, int rank) {
  require_dtype(c, 0, {DType::UInt8});
  require_floating(c, 1);
  c.require_rank(1, rank);
  merged_shape(c, 0, 1);
  const Shape in(c.attr("image_shape", std::vector<std::int64_t>{}));
  if (in.rank() != rank || !in.is_static()) c.fail("attribute image_shape must be a shape of images");
  const Pooling p = make_pooling(c.node(), in, [&c](const std::string& m) { c.fail(m); });
  if (c.shape(1).is_static() && c.shape(1) != pooled_shape(p))
    c.fail("the output's gradient has shape " + c.shape(1).to_string() + ", images of shape " +
           in.to_string() + " do not give it");
  c.output(c.dtype(1), in);
}

template <class T>
void backward(const Pooling& p, const std::uint8_t* places, const T* dy, T* dx) {
  for (std::int64_t place = 0; place < p.out_d * p.out_h * p.out_w; ++place) {
    const Taps at(p, place);
    for (std::int64_t i = 0; i < p.channels; ++i, ++places, ++dy)
      if (*places != 0) dx[at.pixel(p, *places) * p.channels + i] += *dy;
  }
}

PreparedKernel prepare_gradient(const PrepareContext& c) {
  const Pooling p = prepared_pooling(c, c.outputs[0].shape);
  return with_float(c.node.op->name, c.inputs[1].dtype, [&]<class T>() {
    return parallel_kernel(
        c, p.images, row_grain(p.in_image() + p.out_image()),
        [p](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
          std::fill(a.out<T>(0) + begin * p.in_image(), a.out<T>(0) + end * p.in_image(), T{});
          for (std::int64_t image = begin; image < end; ++image)
            backward(p, a.in<std::uint8_t>(0) + image * p.out_image(), a.in<T>(1) + image * p.out_image(),
                     a.out<T>(0) + image * p.in_image());
        });
  });
}

void add(OpRegistry& registry, const char* name, const char* gradient, int rank) {
  registry.add(takes_halves({.name = name,
                             .traits = computes().names({"y", "places"}),
                             .min_inputs = 1,
                             .max_inputs = 1,
                             .infer = [rank](InferContext& c) { infer_forward(c, rank); },
                             .no_gradient_reason = "it is made where gradients are there already",
                             .cost = pool_cost,
                             .cpu = prepare_forward},
                            {.kind = HalfKind::Follower, .inputs = {0}, .outputs = {0}}));
  registry.add(takes_halves({.name = gradient,
                             .traits = computes(),
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .infer = [rank](InferContext& c) { infer_gradient(c, rank); },
                             .no_gradient_reason = "second derivatives of max pooling are not supported",
                             .cost = pool_cost,
                             .cpu = prepare_gradient},
                            {.kind = HalfKind::Follower, .inputs = {1}, .outputs = {0}}));
}

}  // namespace

void register_pool_places(OpRegistry& registry) {
  add(registry, "braid.MaxPoolPlaces", "braid.MaxPoolPlacesGrad", 4);
  add(registry, "braid.MaxPoolPlaces3D", "braid.MaxPoolPlacesGrad3D", 5);
}

}  // namespace braid
