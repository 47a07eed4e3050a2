#include "engine/ops/common/cuda/widened.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/half.h"
#include "engine/ops/common/halves.h"

namespace braid::cuda {
namespace {

template <class From, class To>
struct Converted {
  __device__ To operator()(From x) const { return static_cast<To>(x); }
};

/// A half of the op, and where the kernel of float32 has it: behind its own scratch memory.
struct Wide {
  std::size_t index, offset;
  std::int64_t elements;
  DType half;

  template <class Half>
  void widen(StreamRef stream, const void* from, float* to) const {
    map<1, Half, float>(stream, {static_cast<const Half*>(from)}, to, elements, Converted<Half, float>{});
  }
  template <class Half>
  void narrow(StreamRef stream, const float* from, void* to) const {
    map<1, float, Half>(stream, {from}, static_cast<Half*>(to), elements, Converted<float, Half>{});
  }
};

bool is_shape_only(const OpDef& op, std::size_t input, std::size_t inputs) {
  return std::any_of(op.shape_only.begin(), op.shape_only.end(), [&](int i) {
    return static_cast<std::size_t>(i < 0 ? i + static_cast<int>(inputs) : i) == input;
  });
}

std::vector<OutputInfo> all_float32(std::span<const OutputInfo> infos) {
  std::vector<OutputInfo> wide(infos.begin(), infos.end());
  for (OutputInfo& info : wide)
    if (is_half(info.dtype)) info.dtype = DType::Float32;
  return wide;
}

}  // namespace

PreparedKernel prepare_widened(const PrepareContext& c, const PrepareFn& of_float32) {
  constexpr std::size_t kAlignment = 256;
  const std::vector<OutputInfo> inputs = all_float32(c.inputs), outputs = all_float32(c.outputs);
  const PrepareContext wide{c.node, inputs,     outputs,         c.values,
                            c.pool, c.services, c.deterministic, c.accelerator};
  PreparedKernel inner = of_float32(wide), kernel;
  const auto aligned = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  kernel.scratch_bytes = aligned(inner.scratch_bytes);
  const auto placed = [&](std::size_t index, const OutputInfo& info) {
    const std::int64_t elements = info.shape.elements();
    const Wide made{index, kernel.scratch_bytes, elements, info.dtype};
    kernel.scratch_bytes += aligned(static_cast<std::size_t>(elements) * sizeof(float));
    return made;
  };
  std::vector<Wide> read, written;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (is_half(c.inputs[i].dtype) && !is_shape_only(*c.node.op, i, c.inputs.size()))
      read.push_back(placed(i, c.inputs[i]));
  for (std::size_t o = 0; o < c.outputs.size(); ++o)
    if (is_half(c.outputs[o].dtype)) written.push_back(placed(o, c.outputs[o]));
  kernel.run = [run = std::move(inner.run), read, written, count = inputs.size(),
                results = outputs.size()](const KernelArgs& a) {
    const auto at = [&](const Wide& w) {
      return reinterpret_cast<float*>(static_cast<std::byte*>(a.scratch) + w.offset);
    };
    std::vector<void*> in(a.inputs, a.inputs + count), out(a.outputs, a.outputs + results);
    for (const Wide& w : read) {
      if (w.half == DType::Float16)
        w.widen<Float16>(a.stream, in[w.index], at(w));
      else
        w.widen<BFloat16>(a.stream, in[w.index], at(w));
      in[w.index] = at(w);
    }
    for (const Wide& w : written) out[w.index] = at(w);
    KernelArgs args = a;
    args.inputs = in.data();
    args.outputs = out.data();
    run(args);
    for (const Wide& w : written)
      if (w.half == DType::Float16)
        w.narrow<Float16>(a.stream, at(w), a.outputs[w.index]);
      else
        w.narrow<BFloat16>(a.stream, at(w), a.outputs[w.index]);
  };
  return kernel;
}

}  // namespace braid::cuda
