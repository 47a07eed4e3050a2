// What kernels of ragged attention take, and the tables of those that use tensor cores.
#pragma once

#include "engine/ops/ragged/attention_plan.cuh"

namespace braid::cuda::attention {

using Rules = MaskRulesOf<std::int32_t>;
using Mask = RowMaskOf<std::int32_t>;

/// Launches take it by value. Values are of one type; sums, and what is kept of softmax, of the type that is
/// computed in: float, or double for double.
struct AttentionArgs {
  const void *q, *k, *v, *d_out;  // d_out: of gradients
  const void *log_sum, *dots;     // [values, heads], of softmax's gradients
  void* results[3];               // the output; or dq, dk, dv
  bool are_halves[3];             // of the values' type, where that is a half; else float
  void* new_log_sum;              // of softmax's output
  Plan plan;
  Rules rules;
  std::int32_t heads, qk_width, v_width;  // widths of a head
  std::int64_t max_length;                // 0: the longest row
  double scale;

  __device__ Mask mask(const PlannedRow& row) const { return {rules, row.length, row.history}; }
  __device__ std::int64_t qk_at(std::int64_t value, std::int64_t head) const {
    return (value * heads + head) * qk_width;
  }
  __device__ std::int64_t v_at(std::int64_t value, std::int64_t head) const {
    return (value * heads + head) * v_width;
  }
  /// SiLU's 1 / N.
  __device__ double share() const {
    return 1.0 / static_cast<double>(max_length > 0 ? max_length : *plan.longest);
  }
};

/// Where a head of a row begins.
template <class E>
struct Places {
  const E *q, *k, *v, *d_out;
  std::int64_t qk_step, v_step;  // from a value to the next

  __device__ Places(const AttentionArgs& args, const PlannedRow& row, int head)
      : q(static_cast<const E*>(args.q) + args.qk_at(row.begin, head)),
        k(static_cast<const E*>(args.k) + args.qk_at(row.begin, head)),
        v(static_cast<const E*>(args.v) + args.v_at(row.begin, head)),
        d_out(static_cast<const E*>(args.d_out) + args.v_at(row.begin, head)),
        qk_step(static_cast<std::int64_t>(args.heads) * args.qk_width),
        v_step(static_cast<std::int64_t>(args.heads) * args.v_width) {}
};

/// The piece of kOwn values, a divisor of kPlanTile, and the head that a block has; false: none.
/// `from_front`: of keys, the first of which most queries see.
template <int kOwn>
__device__ bool piece_of_block(const AttentionArgs& args, bool from_front, Plan::Piece& piece, int& head) {
  constexpr int kParts = kPlanTile / kOwn;
  const std::int64_t block = blockIdx.x;
  const int part = static_cast<int>(block % kParts);
  head = static_cast<int>(block / kParts % args.heads);
  if (!args.plan.piece(block / kParts / args.heads, from_front, piece)) return false;
  piece.first += (from_front ? part : kParts - 1 - part) * kOwn;
  return piece.first < piece.row.length;
}
/// How many blocks to launch. Throws: InvalidArgument where that are too many.
unsigned blocks_of_pieces(std::int64_t plan_tiles, int own, int heads);

using Launch = void (*)(const AttentionArgs& args, std::int64_t plan_tiles, StreamRef stream);
struct Kernels {
  Launch forward = nullptr, backward = nullptr;
  std::size_t shared_bytes = 0;  // that a block must be able to have
};

/// Kernels for heads of up to `width`; none where that is too wide. Values must be aligned to 16 bytes, and
/// widths multiples of 16 bytes. tf32_kernels() round float32 values to TF32, float32_kernels() do not.
Kernels bfloat16_kernels(std::int64_t width, bool softmax);
Kernels float16_kernels(std::int64_t width, bool softmax);
Kernels tf32_kernels(std::int64_t width, bool softmax);
Kernels float32_kernels(std::int64_t width, bool softmax);
/// For halves, by groups of warps, on devices of compute capability 9.0 alone; none for heads of up to 32.
Kernels group_kernels(DType half, std::int64_t width, bool softmax);
/// For any widths, without tensor cores. REQUIRES: a floating type.
Kernels plain_kernels(DType dtype, bool softmax);

/// dots [values, heads]: the sums of output d_output, in the type that is computed in.
void row_dots(DType dtype, const AttentionArgs& args, const void* output, void* dots, std::int64_t values,
              StreamRef stream);

}  // namespace braid::cuda::attention
