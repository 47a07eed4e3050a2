// What kernels of dense attention take (attention_args.cuh): rows of equal lengths, whose queries and keys
// are counted apart, at any steps; and a mask, added to scores or choosing which of them stay.
#pragma once

#include "engine/ops/nn/attention_node.h"
#include "engine/ops/ragged/attention_args.cuh"
#include "engine/ops/ragged/dense_mask.h"

namespace braid::cuda::attention {

struct DenseArgs : AttentionArgs {
  struct Row {
    std::int64_t outer;
  };
  using Mask = braid::attention::DenseRulesOf<std::int32_t>;
  using Steps = braid::attention::DenseSteps;
  static constexpr bool kHasMask = true, kIsSoftmax = true, kStays = false;

  std::int64_t outer;  // how many rows
  Mask rules;
  Steps at_q, at_k, at_v, at_out, at_sums, at_dq, at_dk, at_dv;
  const void* added;  // of the type that is computed in; one of both, or none
  const bool* seen;
  braid::attention::MaskSteps at_mask;
  double hidden;
  float* mask_sums;  // of the gradient: [slices, mask_groups(), queries, keys], or none
  std::int32_t slices;

  /// Heads and rows that do not share the mask's numbers.
  std::int64_t mask_groups() const {
    return (at_mask.outer != 0 ? outer : 1) * (at_mask.head != 0 ? heads : 1);
  }
  unsigned blocks(int own, bool of_keys) const {
    const std::int64_t values = of_keys ? rules.history : rules.count;
    return checked_blocks((values + own - 1) / own * heads * outer);
  }
  template <int kOwn>
  __device__ bool begin_piece(std::int64_t block, bool of_keys, BlockPiece<Row>& piece) const {
    const std::int64_t parts = ((of_keys ? rules.history : rules.count) + kOwn - 1) / kOwn;
    const auto part = static_cast<std::int32_t>(block % parts);
    piece.head = static_cast<std::int32_t>(block / parts % heads);
    piece.row.outer = block / parts / heads;
    piece.first = (of_keys ? part : static_cast<std::int32_t>(parts) - 1 - part) * kOwn;
    return true;
  }
  __device__ std::int64_t taken(bool) const { return blockIdx.x; }
  __device__ Mask mask(const Row&) const { return rules; }
  __device__ std::int64_t q_at(const Row& row, int head) const { return at_q.at(row.outer, head); }
  __device__ std::int64_t k_at(const Row& row, int head) const { return at_k.at(row.outer, head); }
  __device__ std::int64_t v_at(const Row& row, int head) const { return at_v.at(row.outer, head); }
  __device__ std::int64_t out_at(const Row& row, int head) const { return at_out.at(row.outer, head); }
  __device__ std::int64_t q_step() const { return at_q.row; }
  __device__ std::int64_t k_step() const { return at_k.row; }
  __device__ std::int64_t v_step() const { return at_v.row; }
  __device__ std::int64_t out_step() const { return at_out.row; }
  __device__ std::int64_t dq_at(const Row& row, int head) const { return at_dq.at(row.outer, head); }
  __device__ std::int64_t dq_step() const { return at_dq.row; }
  __device__ std::int64_t dk_at(const Row& row, int head) const { return at_dk.at(row.outer, head); }
  __device__ std::int64_t dk_step() const { return at_dk.row; }
  __device__ std::int64_t dv_at(const Row& row, int head) const { return at_dv.at(row.outer, head); }
  __device__ std::int64_t dv_step() const { return at_dv.row; }
  __device__ std::int64_t sums_at(const Row& row, int head, int query) const {
    return at_sums.outer * row.outer + at_sums.head * head + at_sums.row * query;
  }
  __device__ std::int64_t dot_at(const Row& row, int head, int query) const {
    return sums_at(row, head, query) / 2;
  }
  template <class C>
  __device__ void keep_sums(const Row& row, int head, int query, KeptSums<C> sums) const {
    C* const to = static_cast<C*>(new_log_sum) + sums_at(row, head, query);
    to[0] = sums.max;
    to[1] = sums.log_sum;
  }
  template <class C>
  __device__ KeptSums<C> kept_sums(const Row& row, int head, int query) const {
    const C* const at = static_cast<const C*>(log_sum) + sums_at(row, head, query);
    if (!has_mask()) return {0, at[0] + at[1]};
    return {at[0], at[1]};
  }
  __device__ double share() const { return 1; }

  __device__ bool has_mask() const { return added != nullptr || seen != nullptr; }
  __device__ bool hides() const { return seen != nullptr; }
  __device__ std::int64_t mask_at(const Row& row, int head, int query, int key) const {
    return at_mask.outer * row.outer + at_mask.head * head + at_mask.query * query + at_mask.key * key;
  }
  /// q k^T of a pair, scaled and masked. Pairs that are not there are as they are. Finite
  /// scores stay finite in units of ln 2.
  __device__ float masked(const BlockPiece<Row>& piece, int query, int key, float score) const {
    if (query >= rules.count || key >= rules.history) return score;
    return masked_at(mask_at(piece.row, piece.head, query, key), score);
  }
  __device__ float masked_at(std::int64_t at, float score) const {
    const float scaled = score * static_cast<float>(scale);
    if (seen) return seen[at] ? scaled : static_cast<float>(hidden);
    const float sum = scaled + static_cast<const float*>(added)[at];
    return sum < kLeastScore && sum > -INFINITY ? kLeastScore : sum;
  }

  static constexpr float kLeastScore = -1e30F;
};

/// Of attention of few queries and keys (attention_short.cuh). False: blocks have less than `shared` bytes of
/// shared memory, and nothing is launched. REQUIRES: at least one query and key, at most kMostShort of each;
/// places as of kernels with tensor cores.
using ShortLaunch = bool (*)(const DenseArgs& args, bool backward, std::size_t shared, StreamRef stream);
inline constexpr int kMostShort = 128;

/// For heads of up to `width`; none where that is too wide.
ShortLaunch bfloat16_short(std::int64_t width);
ShortLaunch float16_short(std::int64_t width);
ShortLaunch tf32_short(std::int64_t width);
ShortLaunch float32_short(std::int64_t width);

/// The one of a node, and the shared memory that blocks of its device have.
struct ShortKernels {
  ShortLaunch launch = nullptr;
  std::size_t shared = 0;
};
ShortKernels short_kernels(const PrepareContext& c, const braid::attention::DenseNode& node);

/// Of what shares a number of the mask: as many slices as the device has room for blocks.
std::int32_t mask_slices(const DenseArgs& args);
/// to [numbers] = the sums of args.mask_sums over slices.
void add_slices(const DenseArgs& args, float* to, std::int64_t numbers, StreamRef stream);
/// d_mask [numbers], for any widths and sizes. REQUIRES: args of the gradient, with dots.
void mask_gradient(DType dtype, const DenseArgs& args, void* d_mask, std::int64_t numbers, StreamRef stream);

}  // namespace braid::cuda::attention
