// What kernels of attention take, and the tables of those that use tensor cores. Kernels are templates of
// what they take, Args: RaggedArgs here, DenseArgs in dense_args.cuh. An Args says
//   Row, Mask          a row of the batch, and who sees whom in it (queries(), all_keys(), ...)
//   begin_piece(...)   the piece of a head of a row that a block has, by the block's number
//   kStays             whether blocks may stay for further pieces: taken() gives each number once
//   q_at ... out_at    where a head of a row begins, and q_step ... from a value to the next
//   dq_at ... dv_at    the same of the gradients, with dq_step ...
//   keep_sums(...)     what softmax keeps of a query, and kept_sums(...) where it is again; dot_at(...)
//   kHasMask           whether there may be a mask; then masked(), hides(), hidden
//   kIsSoftmax         whether there is no other activation
#pragma once

#include "engine/ops/ragged/attention_plan.cuh"

namespace braid::cuda::attention {

/// Launches take it by value. Values are of one type; sums, and what is kept of softmax, of the type that is
/// computed in: float, or double for double.
struct AttentionArgs {
  const void *q, *k, *v, *d_out;          // d_out: of gradients
  const void *log_sum, *dots;             // of softmax's gradients
  void* results[3];                       // the output; or dq, dk, dv
  bool are_halves[3];                     // of the values' type, where that is a half; else float
  void* new_log_sum;                      // of softmax's output
  std::int32_t heads, qk_width, v_width;  // widths of a head
  double scale;
};

/// What softmax keeps of a query: the largest score, the logarithm of the sum of exp(score - that). Where
/// both are kept as their sum, the largest counts as 0.
template <class C>
struct KeptSums {
  C max, log_sum;
};

/// What a block of queries or keys has: values from `first` on of a head of a row.
template <class Row>
struct BlockPiece {
  Row row;
  std::int32_t first, head;
};

/// How many blocks to launch. Throws: InvalidArgument where that are too many.
unsigned checked_blocks(std::int64_t blocks);

struct RaggedArgs : AttentionArgs {
  using Row = PlannedRow;
  using Mask = RowMaskOf<std::int32_t>;
  static constexpr bool kHasMask = false, kIsSoftmax = false, kStays = true;

  Plan plan;
  MaskRulesOf<std::int32_t> rules;
  std::int64_t max_length;  // 0: the longest row
  std::int64_t most_tiles;  // of kPlanTile values
  /// Elements from a value to the next, of all heads or more where values are parts of wider ones.
  std::int64_t q_row, k_row, v_row, out_row, dq_row, dk_row, dv_row;

  unsigned blocks(int own, bool) const { return checked_blocks(most_tiles * (kPlanTile / own) * heads); }
  /// `of_keys`: of the first ones, which most queries see, at first. False: there is none.
  template <int kOwn>
  __device__ bool begin_piece(std::int64_t block, bool of_keys, BlockPiece<Row>& piece) const {
    constexpr int kParts = kPlanTile / kOwn;
    const int part = static_cast<int>(block % kParts);
    piece.head = static_cast<int>(block / kParts % heads);
    Plan::Piece tile;
    if (!plan.piece(block / kParts / heads, of_keys, tile)) return false;
    piece.row = tile.row;
    piece.first = tile.first + (of_keys ? part : kParts - 1 - part) * kOwn;
    return piece.first < piece.row.length;
  }
  /// The next block number that nobody has taken, of those of queries or of keys.
  __device__ std::int64_t taken(bool of_keys) const {
    return static_cast<std::int64_t>(atomicAdd(plan.taken + (of_keys ? 1 : 0), 1U));
  }
  __device__ Mask mask(const Row& row) const { return {rules, row.length, row.history}; }
  __device__ std::int64_t q_at(const Row& row, int head) const { return row.begin * q_row + head * qk_width; }
  __device__ std::int64_t q_step() const { return q_row; }
  __device__ std::int64_t k_at(const Row& row, int head) const { return row.begin * k_row + head * qk_width; }
  __device__ std::int64_t k_step() const { return k_row; }
  __device__ std::int64_t v_at(const Row& row, int head) const { return row.begin * v_row + head * v_width; }
  __device__ std::int64_t v_step() const { return v_row; }
  __device__ std::int64_t out_at(const Row& row, int head) const {
    return row.begin * out_row + head * v_width;
  }
  __device__ std::int64_t out_step() const { return out_row; }
  __device__ std::int64_t dq_at(const Row& row, int head) const {
    return row.begin * dq_row + head * qk_width;
  }
  __device__ std::int64_t dq_step() const { return dq_row; }
  __device__ std::int64_t dk_at(const Row& row, int head) const {
    return row.begin * dk_row + head * qk_width;
  }
  __device__ std::int64_t dk_step() const { return dk_row; }
  __device__ std::int64_t dv_at(const Row& row, int head) const {
    return row.begin * dv_row + head * v_width;
  }
  __device__ std::int64_t dv_step() const { return dv_row; }
  __device__ std::int64_t dot_at(const Row& row, int head, int query) const {
    return (row.begin + query) * heads + head;
  }
  template <class C>
  __device__ void keep_sums(const Row& row, int head, int query, KeptSums<C> sums) const {
    static_cast<C*>(new_log_sum)[dot_at(row, head, query)] = sums.max + sums.log_sum;
  }
  template <class C>
  __device__ KeptSums<C> kept_sums(const Row& row, int head, int query) const {
    return {0, static_cast<const C*>(log_sum)[dot_at(row, head, query)]};
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
  std::int64_t q_step, k_step, v_step, out_step;  // from a value to the next

  template <class Args>
  __device__ Places(const Args& args, const typename Args::Row& row, int head)
      : q(static_cast<const E*>(args.q) + args.q_at(row, head)),
        k(static_cast<const E*>(args.k) + args.k_at(row, head)),
        v(static_cast<const E*>(args.v) + args.v_at(row, head)),
        d_out(static_cast<const E*>(args.d_out) + args.out_at(row, head)),
        q_step(args.q_step()),
        k_step(args.k_step()),
        v_step(args.v_step()),
        out_step(args.out_step()) {}
};

template <class Args>
struct KernelsOf {
  using Launch = void (*)(const Args& args, StreamRef stream);
  Launch forward = nullptr, backward = nullptr;
  std::size_t shared_bytes = 0;  // that a block must be able to have
};

/// Kernels for heads of up to `width`; none where that is too wide. Values must be aligned to 16 bytes, and
/// widths multiples of 16 bytes. tf32_kernels() round float32 values to TF32, float32_kernels() do not.
template <class Args>
KernelsOf<Args> bfloat16_kernels(std::int64_t width, bool softmax);
template <class Args>
KernelsOf<Args> float16_kernels(std::int64_t width, bool softmax);
template <class Args>
KernelsOf<Args> tf32_kernels(std::int64_t width, bool softmax);
template <class Args>
KernelsOf<Args> float32_kernels(std::int64_t width, bool softmax);
/// For halves, by groups of warps, on devices of compute capability 9.0 alone; none for heads of up to 32.
template <class Args>
KernelsOf<Args> group_kernels(DType half, std::int64_t width, bool softmax);
/// For any widths, without tensor cores. REQUIRES: a floating type.
template <class Args>
KernelsOf<Args> plain_kernels(DType dtype, bool softmax);

/// The best of them for a device whose blocks have `shared` bytes of shared memory; none where widths are not
/// multiples of 16 bytes. REQUIRES: a floating type.
template <class Args>
KernelsOf<Args> kernels_with_tensor_cores(const PrepareContext& c, std::int64_t qk, std::int64_t v,
                                          bool softmax);

/// Whether values are where kernels with tensor cores take them.
inline bool is_aligned(const AttentionArgs& a) {
  const void* const places[] = {a.q, a.k, a.v, a.d_out, a.results[0], a.results[1], a.results[2]};
  bool all = true;
  for (const void* const at : places) all = all && cuda::is_aligned16(at);
  return all;
}

/// Those of both that fit where the values are.
template <class Args>
const KernelsOf<Args>& kernels_for(const Args& a, const KernelsOf<Args>& tiles,
                                   const KernelsOf<Args>& plain) {
  return tiles.forward && is_aligned(a) ? tiles : plain;
}

/// dots [rows]: the sums of output d_output, rows of args.v_width, in the type that is computed in.
void row_dots(DType dtype, const AttentionArgs& args, const void* output, void* dots, std::int64_t rows,
              StreamRef stream);

}  // namespace braid::cuda::attention
