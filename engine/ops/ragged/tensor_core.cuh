// Instructions that CUDA C++ has no words for (PTX ISA, sm_80 on): a warp's products of small matrices, loads
// of matrices from shared memory, copies into shared memory that run ahead, and fast functions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/ops/common/half.h"

namespace braid::cuda {

/// Four matrices of 8 x 8 16-bit elements, whose rows' addresses lanes 8 i to 8 i + 7 give for matrix i. Lane
/// 4 g + t gets elements 2 t and 2 t + 1 of row g, or transposed those of column g.
template <bool kTransposed>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/// c[16, 8] += a[16, 16] b[16, 8]. Lane 4 g + t has rows g and g + 8 of c in columns 2 t and 2 t + 1; of a in
/// columns 2 t and 2 t + 1, then both rows in 8 columns further; column g of b in such rows.
template <class E>
__device__ inline void multiply_halves(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                       std::uint32_t b1) {
  if constexpr (std::is_same_v<E, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c[16, 8] += a[16, 8] b[8, 8]. Lane 4 g + t has rows g and g + 8 of a in columns t and then t + 4, column g
/// of b in rows t and t + 4, and c as above.
__device__ inline void multiply_tf32(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                     std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Two numbers as halves, the first in the lower bits.
template <class E>
__device__ inline std::uint32_t pack_halves(float x, float y) {
  std::uint32_t both;
  if constexpr (std::is_same_v<E, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  return both;
}

__device__ inline std::uint32_t nearest_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/// 16 bytes into shared memory, or zeros. Complete after wait_for_copies().
__device__ inline void copy_ahead(void* to, const void* from, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ inline void end_group_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most `kGroups` of the thread's latest groups are not complete.
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Of sm_90a: products of a group of four warps, whose matrices lie in shared memory. A tile of 64 columns of
// halves has 128 bytes a row, whose 16-byte pieces are swapped: piece c of row r lies at c ^ (r % 8). Tiles
// begin at multiples of 1024 bytes.

/// What the instructions take for the piece of 16 columns that begins at `column` of rows from `row` on, a
/// multiple of 8; where rows are added over, at column 0. Tiles side by side follow each other as rows.
class GroupMatrix {
 public:
  /// `tile` is the same in all lanes. The shuffle tells the compiler, and keeps it from holding all of a
  /// tile's numbers in registers from loop to loop.
  __device__ explicit GroupMatrix(const void* tile)
      : first_(__shfl_sync(~0U,
                           kNext64Columns << 16 |
                               (static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffffU) >> 4,
                           0)) {}
  __device__ std::uint64_t at(int row, int column) const {
    return std::uint64_t{kSwapsOf128Bytes | kEightRows} << 32 |
           (first_ + static_cast<std::uint32_t>((row * 128 + column * 2) >> 4));
  }

 private:
  static constexpr std::uint32_t kSwapsOf128Bytes = 1U << 30, kEightRows = 1024 / 16;
  static constexpr std::uint32_t kNext64Columns = 64 * 128 / 16;  // of 64 rows that are added over
  std::uint32_t first_;
};
/// What ordinary instructions, and copies that are complete, wrote is seen by products from now on. By those
/// who wrote, before others are told, or by those who were told.
__device__ inline void show_to_groups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// The compiler moves no use of these numbers across.
template <int kTiles>
__device__ inline void keep_in_order(float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n][e])::"memory");
}
/// Before products of sums, or factors, that other instructions wrote.
template <int... kTiles>
__device__ inline void begin_products(float (&... c)[kTiles][4]) {
  (keep_in_order(c), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void end_group_of_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most kGroups of the latest groups of products are not complete. The others gave these sums.
template <int kGroups, int... kTiles>
__device__ inline void wait_for_products(float (&... c)[kTiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (keep_in_order(c), ...);
}

#define BRAID_ADDED(x) "+f"(x)
#define BRAID_SET(x) "=f"(x)
#define BRAID_8_TILES(how)                                                                              \
  how(c[0][0]), how(c[0][1]), how(c[0][2]), how(c[0][3]), how(c[1][0]), how(c[1][1]), how(c[1][2]),     \
      how(c[1][3]), how(c[2][0]), how(c[2][1]), how(c[2][2]), how(c[2][3]), how(c[3][0]), how(c[3][1]), \
      how(c[3][2]), how(c[3][3]), how(c[4][0]), how(c[4][1]), how(c[4][2]), how(c[4][3]), how(c[5][0]), \
      how(c[5][1]), how(c[5][2]), how(c[5][3]), how(c[6][0]), how(c[6][1]), how(c[6][2]), how(c[6][3]), \
      how(c[7][0]), how(c[7][1]), how(c[7][2]), how(c[7][3])
#define BRAID_NEXT_8_TILES(how)                                                                     \
  how(c[8][0]), how(c[8][1]), how(c[8][2]), how(c[8][3]), how(c[9][0]), how(c[9][1]), how(c[9][2]), \
      how(c[9][3]), how(c[10][0]), how(c[10][1]), how(c[10][2]), how(c[10][3]), how(c[11][0]),      \
      how(c[11][1]), how(c[11][2]), how(c[11][3]), how(c[12][0]), how(c[12][1]), how(c[12][2]),     \
      how(c[12][3]), how(c[13][0]), how(c[13][1]), how(c[13][2]), how(c[13][3]), how(c[14][0]),     \
      how(c[14][1]), how(c[14][2]), how(c[14][3]), how(c[15][0]), how(c[15][1]), how(c[15][2]),     \
      how(c[15][3])
#define BRAID_32_NAMES                                                                               \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define BRAID_64_NAMES                                                                               \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "  \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "  \
  "%59, %60, %61, %62, %63}, "

/// c[64, 64] = a[64, 16] b[16, 64], and with kAdds += it: 16 rows a warp, in eight tiles as of
/// multiply_halves(). `a` and `b`: of GroupMatrix; rows of b's matrix are its columns.
template <class E, bool kAdds>
__device__ inline void multiply_groups(float (&c)[8][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (kAdds && std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " BRAID_32_NAMES
                 "%32, %33, 1, 1, 1, 0, 0;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "l"(a), "l"(b));
  else if constexpr (kAdds)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " BRAID_32_NAMES
                 "%32, %33, 1, 1, 1, 0, 0;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "l"(a), "l"(b));
  else if constexpr (std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " BRAID_32_NAMES
                 "%32, %33, 0, 1, 1, 0, 0;"
                 : BRAID_8_TILES(BRAID_SET)
                 : "l"(a), "l"(b));
  else
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " BRAID_32_NAMES
                 "%32, %33, 0, 1, 1, 0, 0;"
                 : BRAID_8_TILES(BRAID_SET)
                 : "l"(a), "l"(b));
}
/// The same with a in registers, as of multiply_halves().
template <class E, bool kAdds>
__device__ inline void multiply_groups(float (&c)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (kAdds && std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else if constexpr (kAdds)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else if constexpr (std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 0, 1, 1, 0;"
                 : BRAID_8_TILES(BRAID_SET)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 0, 1, 1, 0;"
                 : BRAID_8_TILES(BRAID_SET)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
/// c += a b, where 16 rows of b's matrix, of 64 or 128 columns, are b.
template <class E>
__device__ inline void multiply_groups_across(float (&c)[8][4], const std::uint32_t (&a)[4],
                                              std::uint64_t b) {
  if constexpr (std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " BRAID_32_NAMES
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : BRAID_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <class E>
__device__ inline void multiply_groups_across(float (&c)[16][4], const std::uint32_t (&a)[4],
                                              std::uint64_t b) {
  if constexpr (std::is_same_v<E, BFloat16>)
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " BRAID_64_NAMES
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : BRAID_8_TILES(BRAID_ADDED), BRAID_NEXT_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  else
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " BRAID_64_NAMES
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : BRAID_8_TILES(BRAID_ADDED), BRAID_NEXT_8_TILES(BRAID_ADDED)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef BRAID_8_TILES
#undef BRAID_NEXT_8_TILES
#undef BRAID_ADDED
#undef BRAID_SET
#undef BRAID_32_NAMES
#undef BRAID_64_NAMES

// Barriers in shared memory, for threads that wait for each other in turns (mbarrier): a turn is complete
// after `count` arrivals, and the parity of turns tells one from the next.

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
__device__ inline void begin_barrier(std::uint64_t* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives when all copies that the thread began before are complete.
__device__ inline void arrive_when_copied(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
/// Whether the turn of this parity is complete; may wait a while for it.
__device__ inline bool is_complete(std::uint64_t* barrier, unsigned parity) {
  unsigned is;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(is)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return is != 0;
}
__device__ inline void wait_for(std::uint64_t* barrier, unsigned parity) {
  while (!is_complete(barrier, parity)) {
  }
}
/// Until kThreads threads are here. kBarrier 0 is that of __syncthreads().
template <int kBarrier, int kThreads>
__device__ inline void wait_for_threads() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}
/// The same with a barrier that is not known to the compiler; and without waiting for the others.
template <int kThreads>
__device__ inline void wait_for_threads(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ inline void arrive_for_threads(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
/// A group of four warps takes this many registers a thread, or keeps no more (sm_90a).
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Within 2^-10.9 of it.
__device__ inline float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace braid::cuda
