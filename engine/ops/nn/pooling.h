// Pooling windows over images and volumes: what an op's attributes and shapes make of them, for the kernels
// of CPU (pool2d.cc, pool3d.cc) and CUDA (pool2d.cu, pool3d.cu). Thread rule: pure functions.
#pragma once

#include "engine/ir/op.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/window.h"

namespace braid {

/// Elements of a window whose places a byte counts, beside none (pool_places.cc).
inline constexpr std::int64_t kMostPlaces = 255;

/// An image is a volume of depth 1.
struct Pooling {
  std::int64_t images = 0, channels = 0;
  std::int64_t in_h = 0, in_w = 0, out_h = 0, out_w = 0;
  std::int64_t in_d = 1, out_d = 1;
  Window window;

  BRAID_INLINE std::int64_t in_image() const { return in_d * in_h * in_w * channels; }
  BRAID_INLINE std::int64_t out_image() const { return out_d * out_h * out_w * channels; }
  std::int64_t taps() const { return window.d.kernel * window.h.kernel * window.w.kernel; }
};

/// Pooling of images of shape `in`, or of volumes where the node is of MaxPool3D's kin; sizes may be unknown.
/// `images` and `channels` are the tensor's own axes.
Pooling make_pooling(const Node& node, const Shape& in, const Fail& fail);
Shape pooled_shape(const Pooling& p);
/// For a kernel; NCHW (NCDHW) is seen as N * C images of one channel.
Pooling prepared_pooling(const PrepareContext& c, const Shape& in);

/// Shapes of MaxPoolGrad(x, y, dy) and AvgPoolGrad(sizes, dy) and of their kin over volumes: rank 4 or 5.
void infer_max_pool_grad(InferContext& c, int rank);
void infer_average_pool_grad(InferContext& c, int rank);
/// One operation for each position of each window.
Cost pool_cost(const InferContext& c, std::span<const OutputInfo> outputs);

/// The part of a window that lies inside the input.
struct PoolSpan {
  std::int64_t first, end;
  BRAID_INLINE PoolSpan(const WindowAxis& axis, std::int64_t out, std::int64_t in) {
    const std::int64_t start = out * axis.stride - axis.pad_before;
    first = start > 0 ? start : 0;
    end = start + axis.kernel < in ? start + axis.kernel : in;
  }
  BRAID_INLINE std::int64_t size() const { return end - first; }
};

}  // namespace braid
