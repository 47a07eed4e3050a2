// The device writes rows into page-locked memory of the host, a block of limited size at a time.
#include <algorithm>
#include <cstring>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/gather_rows.h"

namespace braid {
namespace {

constexpr std::uint64_t kBlockBytes = 4 << 20;

/// from [..., words], rows [n] -> to [n, words], a thread a word.
__global__ void gather_rows_kernel(const std::uint32_t* from, const std::int64_t* rows, std::uint32_t* to,
                                   std::int64_t n, std::int64_t words) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n * words;
       i += step) {
    const std::int64_t k = i / words;
    to[i] = from[rows[k] * words + (i - k * words)];
  }
}

}  // namespace

void gather_rows_now(Accelerator& device, void* to, const void* from, std::span<const std::int64_t> rows,
                     std::uint64_t row_bytes) {
  if (row_bytes % sizeof(std::uint32_t) != 0) throw Internal("rows must be of whole 4 bytes");
  if (rows.empty() || row_bytes == 0) return;
  const std::size_t most =
      std::clamp<std::size_t>(kBlockBytes / (row_bytes + sizeof(std::int64_t)), 1, rows.size());
  const auto block = device.allocate_pinned(most * (row_bytes + sizeof(std::int64_t)), "rows of a variable");
  auto* const wanted = reinterpret_cast<std::int64_t*>(block.get());
  auto* const found = reinterpret_cast<std::uint32_t*>(block.get() + most * sizeof(std::int64_t));
  const cuda::DeviceGuard guard(device.options().ordinal);
  const cuda::Stream stream = cuda::make_stream();
  const auto words = static_cast<std::int64_t>(row_bytes / sizeof(std::uint32_t));
  for (std::size_t first = 0; first < rows.size(); first += most) {
    const std::span<const std::int64_t> part = rows.subspan(first, std::min(most, rows.size() - first));
    std::ranges::copy(part, wanted);
    const auto n = static_cast<std::int64_t>(part.size());
    constexpr int kThreads = 256;
    const auto blocks =
        static_cast<unsigned>(std::min<std::int64_t>((n * words + kThreads - 1) / kThreads, 1024));
    gather_rows_kernel<<<blocks, kThreads, 0, stream.get()>>>(static_cast<const std::uint32_t*>(from), wanted,
                                                              found, n, words);
    BRAID_CUDA_CHECK(cudaGetLastError());
    cuda::await_stream(stream.get(), WaitContext::with_timeout(device.options().wait_timeout),
                       "rows of a variable");
    std::memcpy(static_cast<std::byte*>(to) + first * row_bytes, found, part.size() * row_bytes);
  }
}

}  // namespace braid
