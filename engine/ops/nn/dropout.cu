// CUDA kernel of braid.Dropout: a thread four elements, whose mask is one Philox block; nothing is kept for
// the gradient.
#include "engine/ops/common/cuda/random.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/nn/dropout_mask.h"

namespace braid {
namespace {

template <class T>
__global__ void dropout_kernel(const T* x, T* y, std::int64_t n, bool packed, cuda::DeviceRandomKey key,
                               const StepParams* params, float threshold, T scale) {
  const std::uint64_t stream = key.at(*params);
  for (std::int64_t block = cuda::grid_index(); block * 4 < n; block += cuda::grid_size()) {
    const auto bits = cuda::random_bits(stream, static_cast<std::uint64_t>(block));
    if (packed && block * 4 + 4 <= n) {
      // Two packs of 16 bytes for doubles, one for floats.
      constexpr int kCount = cuda::kPackOf<T>;
      using Pack = cuda::Pack<T, kCount>;
#pragma unroll
      for (int half = 0; half < 4 / kCount; ++half) {
        Pack pack = reinterpret_cast<const Pack*>(x + block * 4)[half];
#pragma unroll
        for (int k = 0; k < kCount; ++k)
          pack.at[k] = random::uniform01(bits.at[half * kCount + k]) < threshold ? T{0} : pack.at[k] * scale;
        reinterpret_cast<Pack*>(y + block * 4)[half] = pack;
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (block * 4 + k < n)
          y[block * 4 + k] = random::uniform01(bits.at[k]) < threshold ? T{0} : x[block * 4 + k] * scale;
    }
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const double rate = c.node.attrs.require<double>("rate");
  const std::int64_t n = c.inputs[0].shape.elements();
  const cuda::DeviceRandomKey key(RandomKey(c.node.attrs, dropout_mask_name(c.node)));
  return with_float("braid.Dropout", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n, key, threshold = static_cast<float>(rate),
                  scale = static_cast<T>(1 / (1 - rate))](const KernelArgs& a) {
      if (n == 0) return;
      const bool packed = cuda::is_aligned16(a.inputs[0]) && cuda::is_aligned16(a.outputs[0]);
      cuda::launch(dropout_kernel<T>, cuda::blocks_for((n + 3) / 4), cuda::kThreads, 0, a.stream, a.in<T>(0),
                   a.out<T>(0), n, packed, key, a.params, threshold, scale);
    };
    return kernel;
  });
}

}  // namespace

void register_dropout_cuda(OpRegistry& registry) { registry.add_cuda("braid.Dropout", prepare); }

}  // namespace braid
