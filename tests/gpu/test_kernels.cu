#include "tests/gpu/test_kernels.h"

#include "base/cuda/check.h"
#include "base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "tests/engine/testing/test_formulas.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr int kMostInputs = 8, kThreads = 128;
constexpr std::uint64_t kSpoilt = 0xDDDDDDDDDDDDDDDDULL;

struct Values {
  const std::uint64_t* at[kMostInputs];
  std::int64_t elements[kMostInputs];
  int count;
};

__device__ std::uint64_t now_ns() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// A third of the delays are none.
__device__ void wait_a_random_time(unsigned most_ns) {
  if (most_ns == 0) return;
  const std::uint64_t begin = now_ns();
  const std::uint64_t drawn = scramble(scramble(begin) + static_cast<std::uint64_t>(clock64())) >> 20;
  if (drawn % 3 == 0) return;
  while (now_ns() - begin < drawn % most_ns) {
  }
}

__global__ void delay(unsigned most_ns, unsigned least_ns) {
  for (const std::uint64_t begin = now_ns(); now_ns() - begin < least_ns;) {
  }
  wait_a_random_time(most_ns);
}

__device__ std::uint64_t digest(const Values& values, int first, std::uint64_t salt) {
  std::uint64_t sum = digest_of_nothing(salt);
  for (int i = first; i < values.count; ++i)
    for (std::int64_t k = 0; k < values.elements[i]; ++k)
      sum = digest_with(sum, values.at[i][k], static_cast<std::uint64_t>(i));
  return sum;
}

/// The digest, to all threads of the block, after the delay.
__device__ std::uint64_t late_digest(const Values& values, int first, std::uint64_t salt, unsigned most_ns) {
  __shared__ std::uint64_t shared;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    wait_a_random_time(most_ns);
    shared = digest(values, first, salt);
  }
  __syncthreads();
  return shared;
}

__global__ void mix(Values values, std::uint64_t salt, unsigned most_ns, std::uint64_t* out, std::int64_t n) {
  for (std::int64_t k = threadIdx.x; k < n; k += blockDim.x) out[k] = kSpoilt;
  const std::uint64_t sum = late_digest(values, 0, salt, most_ns);
  for (std::int64_t k = threadIdx.x; k < n; k += blockDim.x)
    out[k] = scramble(sum + static_cast<std::uint64_t>(k));
}

__global__ void change(Values values, std::uint64_t salt, unsigned most_ns, std::uint64_t* out) {
  if (threadIdx.x == 0) wait_a_random_time(most_ns);
  __syncthreads();
  for (std::int64_t k = threadIdx.x; k < values.elements[0]; k += blockDim.x) {
    std::uint64_t sum = salt;
    for (int i = 0; i < values.count; ++i) sum = scramble(sum + values.at[i][k]);
    out[k] = sum;
  }
}

__global__ void update(Values values, std::uint64_t salt, unsigned most_ns, std::uint64_t* variable) {
  const std::uint64_t sum = late_digest(values, 1, salt, most_ns);
  for (std::int64_t k = threadIdx.x; k < values.elements[0]; k += blockDim.x)
    variable[k] = scramble(variable[k] + sum);
}

__global__ void fail(const StepParams* params, std::uint64_t at_step, std::int64_t* out) {
  if (params->step == at_step) asm volatile("trap;");
  *out = 1;
}

PreparedKernel prepare_fail(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [at = static_cast<std::uint64_t>(c.attr<std::int64_t>("at_step", 0))](const KernelArgs& args) {
    fail<<<1, 1, 0, cuda::native(args.stream)>>>(args.params, at, args.out<std::int64_t>(0));
    BRAID_CUDA_CHECK(cudaGetLastError());
  };
  return kernel;
}

/// Calls `launch(args, values, elements of the output, salt, most_ns)`.
template <class Launch>
PrepareFn prepare(Launch launch) {
  return [launch](const PrepareContext& c) {
    Values values{};
    if (c.inputs.size() > kMostInputs) throw InvalidArgument("test kernels take up to 8 inputs");
    values.count = static_cast<int>(c.inputs.size());
    for (int i = 0; i < values.count; ++i)
      values.elements[i] = c.inputs[static_cast<std::size_t>(i)].shape.elements();
    const std::int64_t elements = c.outputs.empty() ? 0 : c.outputs[0].shape.elements();
    const auto salt = static_cast<std::uint64_t>(c.attr<std::int64_t>("salt", 0));
    PreparedKernel kernel;
    kernel.run = [launch, values, elements, salt](const KernelArgs& args) {
      Values now = values;
      for (int i = 0; i < now.count; ++i) now.at[i] = args.in<std::uint64_t>(i);
      launch(args, now, elements, salt, static_cast<unsigned>(random_delay_us()) * 1000U);
      BRAID_CUDA_CHECK(cudaGetLastError());
    };
    return kernel;
  };
}

}  // namespace

void random_delay(StreamRef stream, unsigned most_ns, unsigned least_ns) {
  delay<<<1, 1, 0, cuda::native(stream)>>>(most_ns, least_ns);
  BRAID_CUDA_CHECK(cudaGetLastError());
}

void register_test_kernels() {
  static const bool once = [] {
    register_test_ops();
    OpRegistry& registry = OpRegistry::global();
    const auto mix_on_device = prepare([](const KernelArgs& args, const Values& values, std::int64_t elements,
                                          std::uint64_t salt, unsigned most_ns) {
      mix<<<1, kThreads, 0, cuda::native(args.stream)>>>(values, salt, most_ns, args.out<std::uint64_t>(0),
                                                         elements);
    });
    registry.add_cuda("test.Mix", mix_on_device);
    registry.add_cuda("test.Gather", mix_on_device);
    registry.add_cuda("test.Change", prepare([](const KernelArgs& args, const Values& values, std::int64_t,
                                                std::uint64_t salt, unsigned most_ns) {
                        change<<<1, kThreads, 0, cuda::native(args.stream)>>>(values, salt, most_ns,
                                                                              args.out<std::uint64_t>(0));
                      }));
    registry.add_cuda("test.Update", prepare([](const KernelArgs& args, const Values& values, std::int64_t,
                                                std::uint64_t salt, unsigned most_ns) {
                        update<<<1, kThreads, 0, cuda::native(args.stream)>>>(values, salt, most_ns,
                                                                              args.var<std::uint64_t>(0));
                      }));
    registry.add_cuda("test.Fail", prepare_fail);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace braid::testing
