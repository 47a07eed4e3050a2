#include "worker/strategies/ordered_sum.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "engine/ops/common/half.h"

namespace braid::worker {
namespace {

/// part[i] = the sum over ranks of parts[rank * count + i].
template <class T>
void add_parts(const std::byte* parts, int ranks, std::int64_t count, std::byte* part) {
  const auto* const from = reinterpret_cast<const T*>(parts);
  auto* const to = reinterpret_cast<T*>(part);
  for (std::int64_t i = 0; i < count; ++i) {
    auto sum = static_cast<float>(from[i]);
    for (int r = 1; r < ranks; ++r) sum += static_cast<float>(from[r * count + i]);
    to[i] = T(sum);
  }
}

}  // namespace

OrderedSum::OrderedSum(std::vector<std::int64_t> counts, int ranks, DType dtype)
    : counts_(std::move(counts)), ranks_(ranks), dtype_(dtype) {
  const std::int64_t total = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  of_rank_ = (total + ranks_ - 1) / ranks_;
}

std::size_t OrderedSum::scratch_bytes() const {
  return (2 * static_cast<std::size_t>(ranks_) + 1) * bytes_of_rank();
}

void OrderedSum::run(comm::Communicator& communicator, void* const* inputs, void* const* outputs,
                     void* scratch, StreamRef stream, const WaitContext& wait) const {
  const std::size_t all_bytes = static_cast<std::size_t>(ranks_) * bytes_of_rank();
  auto* const own = static_cast<std::byte*>(scratch);
  std::byte* const parts = own + all_bytes;
  std::byte* const part = parts + all_bytes;
  std::size_t at = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::size_t bytes = static_cast<std::size_t>(counts_[i]) * dtype_size(dtype_);
    if (bytes != 0) std::memcpy(own + at, inputs[i], bytes);
    at += bytes;
  }
  std::memset(own + at, 0, all_bytes - at);
  communicator.all_to_all(own, parts, of_rank_, dtype_, stream, wait);
  if (dtype_ == DType::Float16)
    add_parts<Float16>(parts, ranks_, of_rank_, part);
  else if (dtype_ == DType::Float32)
    add_parts<float>(parts, ranks_, of_rank_, part);
  else
    add_parts<BFloat16>(parts, ranks_, of_rank_, part);
  communicator.all_gather(part, own, of_rank_, dtype_, stream, wait);
  at = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::size_t bytes = static_cast<std::size_t>(counts_[i]) * dtype_size(dtype_);
    if (bytes != 0) std::memcpy(outputs[i], own + at, bytes);
    at += bytes;
  }
}

}  // namespace braid::worker
