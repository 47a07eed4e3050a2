// A convolution's filter between the graph's order of elements and cuDNN's, on a device, in tiles. Float32 or
// halves. Thread rule: pure functions. Stream: the one that is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/stream_ref.h"

namespace braid::cuda {

/// The graph has [taps, in, out], cuDNN [out, taps, in] (NHWC) or [out, in, taps]. `same`: the graph has
/// cuDNN's order.
struct FilterOrder {
  std::int64_t taps = 0, in = 0, out = 0;
  bool nchw = false;
  DType dtype = DType::Float32;
  bool same = false;

  std::int64_t elements() const { return taps * in * out; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * dtype_size(dtype); }
};

void to_cudnn(StreamRef stream, const FilterOrder& order, const void* from, void* to);
/// `add`: to what is there, in float32.
void from_cudnn(StreamRef stream, const FilterOrder& order, const void* from, void* to, bool add);

}  // namespace braid::cuda
