#include "engine/ops/common/cuda/index_groups.h"

#include <bit>
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "engine/ops/common/cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int kPositionBits = 32;
constexpr int kSortThreads = 256;
constexpr int kItems = 8;  // entries a thread of the single block
constexpr std::int64_t kFewEntries = kSortThreads * kItems;

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

__global__ void sort_few_kernel(const std::uint64_t* from, std::uint64_t* to, int n, int end_bit) {
  using Sort = cub::BlockRadixSort<std::uint64_t, kSortThreads, kItems>;
  __shared__ typename Sort::TempStorage storage;
  std::uint64_t keys[kItems];
  for (int i = 0; i < kItems; ++i) {
    const int at = static_cast<int>(threadIdx.x) * kItems + i;
    keys[i] = at < n ? from[at] : ~std::uint64_t{0};  // after all entries: the sort is stable
  }
  Sort(storage).Sort(keys, kPositionBits, end_bit);
  for (int i = 0; i < kItems; ++i) {
    const int at = static_cast<int>(threadIdx.x) * kItems + i;
    if (at < n) to[at] = keys[i];
  }
}

}  // namespace

IndexSort::IndexSort(std::int64_t n, std::int64_t bound)
    : n_(n),
      bound_(bound),
      end_bit_(kPositionBits +
               std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bound))))),
      keys_bytes_(rounded(static_cast<std::size_t>(n) * sizeof(std::uint64_t))) {
  if (n <= kFewEntries) return;
  BRAID_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, sort_bytes_, static_cast<std::uint64_t*>(nullptr),
                                                  static_cast<std::uint64_t*>(nullptr), static_cast<int>(n),
                                                  kPositionBits, end_bit_));
  sort_bytes_ = rounded(sort_bytes_);
}

const std::uint64_t* IndexSort::sort(void* scratch, StreamRef stream) const {
  auto* const to = reinterpret_cast<std::uint64_t*>(static_cast<char*>(scratch) + work_bytes());
  sort(scratch, to, stream);
  return to;
}

void IndexSort::sort(void* scratch, std::uint64_t* to, StreamRef stream) const {
  const std::uint64_t* from = unsorted(scratch);
  if (n_ == 0) return;
  if (n_ <= kFewEntries) {
    launch(sort_few_kernel, 1, kSortThreads, 0, stream, from, to, static_cast<int>(n_), end_bit_);
    return;
  }
  std::size_t bytes = sort_bytes_;
  BRAID_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(static_cast<char*>(scratch) + keys_bytes_, bytes, from, to,
                                                  static_cast<int>(n_), kPositionBits, end_bit_,
                                                  native(stream)));
}

}  // namespace braid::cuda
