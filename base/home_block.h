// The memory through which a step's rows come to the worker that is their home, and go: written by the host
// ahead of the step, read and written by the kernel that puts rows to their places
// (engine/ops/common/home_swap.h).
//
//   counts [2] i32: keys, swaps
//   slots [keys] i32: by key, the row of its table here that it has
//   swaps [swaps] {table, slot} i32: rows that change places; table counts within the group
//   in, out [swaps, width] f32: what comes, what was there
//
// Blocks of the steps under way follow each other; step s has block s mod steps. Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define BRAID_HOME __host__ __device__
#else
#define BRAID_HOME
#endif

namespace braid {

struct HomeSwap {
  std::int32_t table = 0, slot = 0;
};

struct HomeLayout {
  std::size_t keys = 0;   // that a step may name, at most
  std::size_t swaps = 0;  // at most
  std::size_t width = 0;  // numbers of a row and its slots
  std::size_t steps = 1;  // under way at a time

  BRAID_HOME static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  BRAID_HOME constexpr std::size_t slots_at() const { return aligned(2 * sizeof(std::int32_t)); }
  BRAID_HOME constexpr std::size_t swaps_at() const {
    return slots_at() + aligned(keys * sizeof(std::int32_t));
  }
  BRAID_HOME constexpr std::size_t in_at() const { return swaps_at() + aligned(swaps * sizeof(HomeSwap)); }
  BRAID_HOME constexpr std::size_t rows_bytes() const { return aligned(swaps * width * sizeof(float)); }
  BRAID_HOME constexpr std::size_t block_bytes() const { return in_at() + 2 * rows_bytes(); }
  BRAID_HOME constexpr std::size_t bytes() const { return steps * block_bytes(); }
};

/// One step's part of that memory.
struct HomeBlock {
  std::int32_t* counts = nullptr;
  std::int32_t* slots = nullptr;
  HomeSwap* swaps = nullptr;
  float* in = nullptr;
  float* out = nullptr;
};

BRAID_HOME inline HomeBlock home_block(const HomeLayout& layout, std::byte* memory, std::uint64_t step) {
  std::byte* const block = memory + step % layout.steps * layout.block_bytes();
  return {reinterpret_cast<std::int32_t*>(block), reinterpret_cast<std::int32_t*>(block + layout.slots_at()),
          reinterpret_cast<HomeSwap*>(block + layout.swaps_at()),
          reinterpret_cast<float*>(block + layout.in_at()),
          reinterpret_cast<float*>(block + layout.in_at() + layout.rows_bytes())};
}

}  // namespace braid
