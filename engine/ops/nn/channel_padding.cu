#include "engine/ops/nn/channel_padding.h"

#include <utility>

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

using Half = std::uint16_t;  // of either type: bits are moved

constexpr int kVector = 8;

/// A tensor [rows, channels] inside a larger one, whose channels are vectors.
struct Inner {
  std::int64_t rows, channels, wide_rows, wide_channels;

  bool is_same() const { return rows == wide_rows && channels == wide_channels; }
  std::size_t wide_bytes() const {
    constexpr std::int64_t kAligned = 256;
    const std::int64_t bytes = wide_rows * wide_channels * static_cast<std::int64_t>(sizeof(Half));
    return is_same() ? 0 : static_cast<std::size_t>((bytes + kAligned - 1) / kAligned * kAligned);
  }
};

__global__ void widen_kernel(Inner t, const Half* from, Pack<Half, kVector>* to, std::int64_t n) {
  const std::int64_t vectors = t.wide_channels / kVector;
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    const std::int64_t row = i / vectors, first = (i - row * vectors) * kVector;
    Pack<Half, kVector> pack;
#pragma unroll
    for (int e = 0; e < kVector; ++e)
      pack.at[e] = row < t.rows && first + e < t.channels ? from[row * t.channels + first + e] : Half{0};
    to[i] = pack;
  }
}

__global__ void narrow_kernel(Inner t, const Half* from, Half* to, std::int64_t n) {
  for (std::int64_t i = grid_index(); i < n; i += grid_size()) {
    const std::int64_t row = i / t.channels;
    to[i] = from[row * t.wide_channels + i - row * t.channels];
  }
}

void widen(const Inner& t, StreamRef stream, const void* from, void* to) {
  const std::int64_t n = t.wide_rows * t.wide_channels / kVector;
  if (!t.is_same())
    launch(widen_kernel, blocks_for(n), kThreads, 0, stream, t, static_cast<const Half*>(from),
           static_cast<Pack<Half, kVector>*>(to), n);
}

void narrow(const Inner& t, StreamRef stream, const void* from, void* to) {
  const std::int64_t n = t.rows * t.channels;
  if (!t.is_same())
    launch(narrow_kernel, blocks_for(n), kThreads, 0, stream, t, static_cast<const Half*>(from),
           static_cast<Half*>(to), n);
}

std::int64_t in_eights(std::int64_t channels) { return (channels + kVector - 1) / kVector * kVector; }

}  // namespace

std::optional<Convolution> with_eight_channels(const Convolution& conv) {
  if (!has_channels_for_eight(conv)) return std::nullopt;
  Convolution wide = conv;
  wide.in_c = in_eights(conv.in_c);
  wide.out_c = in_eights(conv.out_c);
  return wide;
}

PreparedConvolution padded_channels(const Convolution& conv, const Convolution& wide_conv,
                                    ConvolutionPass pass, PreparedConvolution wide) {
  const std::int64_t taps = conv.taps(), in_places = conv.in_d * conv.in_h * conv.in_w;
  const Inner images{conv.batch * in_places, conv.in_c, conv.batch * in_places, wide_conv.in_c};
  const Inner filter{conv.out_c * taps, conv.in_c, wide_conv.out_c * taps, wide_conv.in_c};
  const std::int64_t places = conv.batch * conv.out_places();
  const Inner outputs{places, conv.out_c, places, wide_conv.out_c};
  PreparedConvolution prepared;
  prepared.workspace_bytes =
      images.wide_bytes() + filter.wide_bytes() + outputs.wide_bytes() + wide.workspace_bytes;
  prepared.run = [=, run = std::move(wide.run)](const ConvolutionArgs& a) {
    auto* room = static_cast<char*>(a.workspace);
    ConvolutionArgs inner = a;
    const auto take = [&room](const Inner& t, void* own) -> void* {
      return t.is_same() ? own : std::exchange(room, room + t.wide_bytes());
    };
    inner.images = take(images, a.images);
    inner.filter = take(filter, a.filter);
    inner.outputs = take(outputs, a.outputs);
    inner.workspace = room;
    if (pass != ConvolutionPass::BackwardInput) widen(images, a.stream, a.images, inner.images);
    if (pass != ConvolutionPass::BackwardFilter) widen(filter, a.stream, a.filter, inner.filter);
    if (pass != ConvolutionPass::Forward) widen(outputs, a.stream, a.outputs, inner.outputs);
    run(inner);
    if (pass == ConvolutionPass::BackwardInput) narrow(images, a.stream, inner.images, a.images);
    if (pass == ConvolutionPass::BackwardFilter) narrow(filter, a.stream, inner.filter, a.filter);
    if (pass == ConvolutionPass::Forward) narrow(outputs, a.stream, inner.outputs, a.outputs);
  };
  return prepared;
}

}  // namespace braid::cuda
