// Rows pass between variables and page-locked memory of the host, which the device reads and writes where it
// lies: how many there are the host alone knows when the step runs, and a copy would be of all that have
// room.
#include "engine/ops/common/home_swap.h"

#include <algorithm>
#include <utility>

#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

constexpr int kMostPieces = 4;   // values and slots
constexpr int kMostTables = 64;  // of a launch, and lists

struct Variables {
  float* at[kMostTables][kMostPieces];
  int first, count;  // tables
};
struct Pieces {
  std::int32_t begin[kMostPieces + 1] = {};  // of a row's numbers
  int count = 0;
};
struct Memory {
  HomeLayout layout;
  std::byte* memory;
};

/// A thread a number: old ones go to the host, new ones to their places. With the first tables the rows of
/// all keys go to `slots`, [keys] i32 on the device.
__global__ void swap_kernel(Memory home, const __grid_constant__ Variables variables, Pieces pieces,
                            std::int32_t* slots, const StepParams* params) {
  const HomeBlock block = home_block(home.layout, home.memory, params->step);
  const std::int64_t keys = block.counts[0], swaps = block.counts[1];
  const auto width = static_cast<std::int64_t>(home.layout.width);
  for (std::int64_t i = cuda::grid_index(); i < swaps * width; i += cuda::grid_size()) {
    const std::int64_t k = i / width, number = i - k * width;
    const HomeSwap swap = block.swaps[k];
    const int table = swap.table - variables.first;
    if (table < 0 || table >= variables.count) continue;
    int piece = 0;
    while (number >= pieces.begin[piece + 1]) ++piece;
    const std::int64_t piece_width = pieces.begin[piece + 1] - pieces.begin[piece];
    float* const place = variables.at[table][piece] + swap.slot * piece_width + number - pieces.begin[piece];
    const float came = block.in[i];
    block.out[i] = *place;
    *place = came;
  }
  if (slots != nullptr)
    for (std::int64_t i = cuda::grid_index(); i < keys; i += cuda::grid_size()) slots[i] = block.slots[i];
  __threadfence_system();
}

struct Lists {
  const std::int32_t* places[kMostTables];
  std::int32_t* rows[kMostTables];
  std::int64_t ids[kMostTables];
};

/// rows[i] = slots[places[i]], or -1, of the list blockIdx.y.
__global__ void rows_of_ids_kernel(const __grid_constant__ Lists lists, const std::int32_t* slots,
                                   float* done) {
  const int list = static_cast<int>(blockIdx.y);
  const std::int32_t* const places = lists.places[list];
  std::int32_t* const rows = lists.rows[list];
  for (std::int64_t i = cuda::grid_index(); i < lists.ids[list]; i += cuda::grid_size())
    rows[i] = places[i] < 0 ? -1 : slots[places[i]];
  if (done != nullptr && list == 0 && cuda::grid_index() == 0) *done = 0;
}

void swap_rows(const HomeSwapSpec& spec, const Pieces& pieces, const KernelArgs& a, std::int32_t* slots) {
  constexpr unsigned kBlocks = 132;  // the link is slower than these
  for (int first = 0; first < spec.tables; first += kMostTables) {
    Variables variables{};
    variables.first = first;
    variables.count = std::min(kMostTables, spec.tables - first);
    for (int t = 0; t < variables.count; ++t)
      for (int p = 0; p < pieces.count; ++p) variables.at[t][p] = a.var<float>(spec.variable(first + t, p));
    cuda::launch(swap_kernel, kBlocks, cuda::kThreads, 0, a.stream, Memory{spec.layout, spec.memory},
                 variables, pieces, first == 0 ? slots : nullptr, a.params);
  }
}

void rows_of_ids(const HomeSwapSpec& spec, const KernelArgs& a, const std::int32_t* slots) {
  const int all = static_cast<int>(spec.ids.size());
  for (int first = 0; first < all; first += kMostTables) {
    Lists lists{};
    const int count = std::min(kMostTables, all - first);
    std::int64_t most = 1;
    for (int l = 0; l < count; ++l) {
      lists.places[l] = spec.places(a, static_cast<std::size_t>(first + l));
      lists.rows[l] = a.out<std::int32_t>(first + l);
      lists.ids[l] = spec.ids[static_cast<std::size_t>(first + l)];
      most = std::max(most, lists.ids[l]);
    }
    cuda::launch(rows_of_ids_kernel, dim3(cuda::blocks_for(most), static_cast<unsigned>(count)),
                 cuda::kThreads, 0, a.stream, lists, slots, first == 0 ? a.out<float>(all) : nullptr);
  }
}

}  // namespace

PreparedKernel device_home_swap(const PrepareContext& c, HomeSwapSpec spec) {
  if (spec.widths.size() > kMostPieces) c.fail("a row has more slots than optimizers have");
  Pieces pieces;
  for (const std::int64_t width : spec.widths) {
    pieces.begin[pieces.count + 1] = pieces.begin[pieces.count] + static_cast<std::int32_t>(width);
    ++pieces.count;
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = std::max<std::size_t>(spec.layout.keys, 1) * sizeof(std::int32_t);
  kernel.run = [spec = std::move(spec), pieces](const KernelArgs& a) {
    auto* const slots = static_cast<std::int32_t*>(a.scratch);
    swap_rows(spec, pieces, a, slots);
    rows_of_ids(spec, a, slots);
  };
  return kernel;
}

}  // namespace braid
