// CUDA kernels of braid.Gru, braid.Lstm and their gradients. There are two ways.
//   resident: one kernel for all steps. A block has some rows, which do not know those of others, and the
//     factors in shared memory; a thread has a unit of these rows. Of float32 where the factors fit.
//   by steps: a product by cuBLASLt and a kernel for the cells, for each step.
// Sums have one order, so equal inputs give equal bits. Formulas: recurrent_cells.h.
#include <algorithm>
#include <string>

#include "engine/ops/common/cuda/gemm.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/nn/recurrent_cells.h"

namespace braid {
namespace {

using recurrent::Gru;
using recurrent::Lstm;
using recurrent::Sizes;

/// Pointers of a run. Forwards `extra` is a GRU's bias or an LSTM's c0, backwards a GRU's `before` or c0.
template <class T>
struct Values {
  const T *in, *u, *h0, *extra, *saved_in, *dc;
  T* out[4];
  Sizes s;
};

template <class T>
Values<T> forward_values(const KernelArgs& a, const Sizes& s, bool has_cell) {
  return {a.in<T>(0),
          a.in<T>(1),
          a.in<T>(2),
          a.in<T>(3),
          nullptr,
          nullptr,
          {a.out<T>(0), a.out<T>(1), a.out<T>(2), has_cell ? a.out<T>(3) : nullptr},
          s};
}

template <class T>
Values<T> backward_values(const KernelArgs& a, const Sizes& s, bool has_cell) {
  return {a.in<T>(0),
          a.in<T>(1),
          nullptr,
          a.in<T>(3),
          a.in<T>(2),
          has_cell ? a.in<T>(4) : nullptr,
          {a.out<T>(0), a.out<T>(1), a.out<T>(2), nullptr},
          s};
}

/// h' of a GRU, c' of an LSTM, of step s.
template <class Cell, class T>
__device__ T value_before(const Values<T>& v, std::int64_t s, std::int64_t row, std::int64_t j) {
  if (!Cell::kHasCell) return v.extra[(v.s.place(s) * v.s.rows + row) * v.s.units + j];
  if (s == 0) return v.extra[row * v.s.units + j];
  return v.saved_in[((v.s.place(s - 1) * v.s.rows + row) * Cell::kSaved + Cell::kSaved - 1) * v.s.units + j];
}

// ---------------------------------------------------------------------------------------------------
// resident

constexpr int kMostUnits = 512;
constexpr int kQuad = 4;  // terms of a sum whose factors are read together

__host__ __device__ constexpr int quads(int n) { return (n + kQuad - 1) / kQuad * kQuad; }

/// Floats of shared memory. Forwards factors lie [units, gates + 1], so that rows begin in different banks,
/// and two states; backwards [gates, units] and the gradient of a.
__host__ __device__ constexpr int forward_floats(int units, int gates, int rows) {
  return quads(quads(units) * (gates + 1)) + 2 * rows * quads(units);
}
__host__ __device__ constexpr int backward_floats(int units, int gates, int rows) {
  return quads(quads(gates) * units) + rows * quads(gates);
}

template <class Cell, int kRows>
__global__ void __launch_bounds__(kMostUnits) resident_forward(Values<float> v) {
  constexpr int kGates = Cell::kGates, kSaved = Cell::kSaved;
  extern __shared__ __align__(16) float shared[];
  const int units = static_cast<int>(v.s.units), gates = kGates * units, depth = quads(units);
  const int j = static_cast<int>(threadIdx.x);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const bool is_unit = j < units;
  float* const states = shared + quads(depth * (gates + 1));
  for (int i = j; i < 2 * kRows * depth; i += static_cast<int>(blockDim.x)) states[i] = 0;
  for (int i = j; i < gates * depth; i += static_cast<int>(blockDim.x)) {
    const int g = i / depth, k = i % depth;
    shared[k * (gates + 1) + g] = k < units ? v.u[g * units + k] : 0.0F;
  }
  __syncthreads();
  float h[kRows], cell[kRows], bias[kGates] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool is_there = is_unit && first + r < v.s.rows;
    h[r] = is_there ? v.h0[(first + r) * units + j] : 0.0F;
    cell[r] = Cell::kHasCell && is_there ? v.extra[(first + r) * units + j] : 0.0F;
    if (is_unit) states[r * depth + j] = h[r];
  }
  if (!Cell::kHasCell && is_unit)
    for (int g = 0; g < kGates; ++g) bias[g] = v.extra[g * units + j];
  __syncthreads();
  for (std::int64_t s = 0; s < v.s.steps; ++s) {
    const std::int64_t row = v.s.place(s) * v.s.rows + first;
    const float* const now = states + (s % 2) * kRows * depth;
    float* const next = states + ((s + 1) % 2) * kRows * depth;
    if (is_unit) {
      float x[kRows][kGates], a[kRows][kGates];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          x[r][g] = first + r < v.s.rows ? v.in[(row + r) * gates + g * units + j] : 0.0F;
          a[r][g] = bias[g];
        }
      for (int k = 0; k < depth; k += kQuad) {
        float factors[kQuad][kGates];
#pragma unroll
        for (int q = 0; q < kQuad; ++q)
#pragma unroll
          for (int g = 0; g < kGates; ++g) factors[q][g] = shared[(k + q) * (gates + 1) + g * units + j];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 state = *reinterpret_cast<const float4*>(now + r * depth + k);
#pragma unroll
          for (int g = 0; g < kGates; ++g) {
            a[r][g] = fmaf(state.x, factors[0][g], a[r][g]);
            a[r][g] = fmaf(state.y, factors[1][g], a[r][g]);
            a[r][g] = fmaf(state.z, factors[2][g], a[r][g]);
            a[r][g] = fmaf(state.w, factors[3][g], a[r][g]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float saved[kSaved];
        const float before = h[r];
        h[r] = Cell::forward(x[r], a[r], before, cell[r], saved);
        next[r * depth + j] = h[r];
        if (first + r >= v.s.rows) continue;
        v.out[0][(row + r) * units + j] = h[r];
        v.out[1][(row + r) * units + j] = before;
#pragma unroll
        for (int i = 0; i < kSaved; ++i) v.out[2][((row + r) * kSaved + i) * units + j] = saved[i];
      }
    }
    __syncthreads();
  }
  if constexpr (Cell::kHasCell)
    for (int r = 0; r < kRows && is_unit && first + r < v.s.rows; ++r)
      v.out[3][(first + r) * units + j] = cell[r];
}

template <class Cell, int kRows>
__global__ void __launch_bounds__(kMostUnits) resident_backward(Values<float> v) {
  constexpr int kGates = Cell::kGates, kSaved = Cell::kSaved;
  extern __shared__ __align__(16) float shared[];
  const int units = static_cast<int>(v.s.units), gates = kGates * units, depth = quads(gates);
  const int j = static_cast<int>(threadIdx.x);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const bool is_unit = j < units;
  float* const das = shared + quads(depth * units);
  for (int i = j; i < depth * units; i += static_cast<int>(blockDim.x))
    shared[i] = i < gates * units ? v.u[i] : 0.0F;
  for (int i = j; i < kRows * depth; i += static_cast<int>(blockDim.x)) das[i] = 0;
  __syncthreads();
  float carry[kRows] = {}, d_cell[kRows] = {};
  if (Cell::kHasCell && is_unit)
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (first + r < v.s.rows) d_cell[r] = v.dc[(first + r) * units + j];
  for (std::int64_t s = v.s.steps - 1; s >= 0; --s) {
    const std::int64_t row = v.s.place(s) * v.s.rows + first;
    if (is_unit)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= v.s.rows) continue;
        float saved[kSaved], dx[kGates], da[kGates];
#pragma unroll
        for (int i = 0; i < kSaved; ++i) saved[i] = v.saved_in[((row + r) * kSaved + i) * units + j];
        const float dh = v.in[(row + r) * units + j] + carry[r];
        carry[r] = Cell::backward(saved, value_before<Cell>(v, s, first + r, j), dh, d_cell[r], dx, da);
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          v.out[0][(row + r) * gates + g * units + j] = dx[g];
          if (!Cell::kHasCell) v.out[1][(row + r) * gates + g * units + j] = da[g];
          das[r * depth + g * units + j] = da[g];
        }
      }
    __syncthreads();
    if (is_unit)
      for (int k = 0; k < depth; k += kQuad) {
        float factors[kQuad];
#pragma unroll
        for (int q = 0; q < kQuad; ++q) factors[q] = shared[(k + q) * units + j];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 da = *reinterpret_cast<const float4*>(das + r * depth + k);
          carry[r] = fmaf(da.x, factors[0], carry[r]);
          carry[r] = fmaf(da.y, factors[1], carry[r]);
          carry[r] = fmaf(da.z, factors[2], carry[r]);
          carry[r] = fmaf(da.w, factors[3], carry[r]);
        }
      }
    __syncthreads();
  }
  if (!is_unit) return;
  constexpr int kFirstState = Cell::kHasCell ? 1 : 2;
  for (int r = 0; r < kRows && first + r < v.s.rows; ++r) {
    v.out[kFirstState][(first + r) * units + j] = carry[r];
    if (Cell::kHasCell) v.out[2][(first + r) * units + j] = d_cell[r];
  }
}

/// Bytes of shared memory that a block may have.
std::int64_t shared_limit() {
  int device = 0, bytes = 0;
  BRAID_CUDA_CHECK(cudaGetDevice(&device));
  BRAID_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

struct Resident {
  void (*kernel)(Values<float>) = nullptr;
  int rows = 0;
  std::size_t bytes = 0;
};

template <class Cell, int kRows>
Resident resident_of(const Sizes& s, bool backward) {
  const int units = static_cast<int>(s.units), gates = Cell::kGates * units;
  const int floats = backward ? backward_floats(units, gates, kRows) : forward_floats(units, gates, kRows);
  return {backward ? resident_backward<Cell, kRows> : resident_forward<Cell, kRows>, kRows,
          static_cast<std::size_t>(floats) * sizeof(float)};
}

/// The fewest rows a block with which all blocks run at once, or the most; no kernel where factors do not
/// fit.
template <class Cell>
Resident choose_resident(const Sizes& s, bool backward) {
  if (s.units < 1 || s.units > kMostUnits || s.rows < 1 || s.steps < 1) return {};
  const std::int64_t limit = shared_limit();
  constexpr std::int64_t kProcessors = 132, kMostOfOne = 4;
  Resident found;
  for (const Resident& r : {resident_of<Cell, 2>(s, backward), resident_of<Cell, 4>(s, backward),
                            resident_of<Cell, 8>(s, backward), resident_of<Cell, 16>(s, backward)}) {
    const auto bytes = static_cast<std::int64_t>(r.bytes);
    if (bytes > limit) break;
    found = r;
    if ((s.rows + r.rows - 1) / r.rows <= kProcessors * std::min(kMostOfOne, limit / bytes)) break;
  }
  if (found.kernel == nullptr) return found;
  BRAID_CUDA_CHECK(cudaFuncSetAttribute(found.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(found.bytes)));
  return found;
}

void launch_resident(const Resident& r, const Values<float>& v, StreamRef stream) {
  constexpr std::int64_t kWarp = 32;
  const auto blocks = static_cast<unsigned>((v.s.rows + r.rows - 1) / r.rows);
  const auto threads = static_cast<unsigned>((v.s.units + kWarp - 1) / kWarp * kWarp);
  cuda::launch(r.kernel, dim3(blocks), dim3(threads), r.bytes, stream, v);
}

// ---------------------------------------------------------------------------------------------------
// by steps

template <class Cell, class T>
__global__ void forward_cells(Values<T> v, std::int64_t s, const T* a, T* cells) {
  constexpr int kGates = Cell::kGates, kSaved = Cell::kSaved;
  const std::int64_t units = v.s.units, first = v.s.place(s) * v.s.rows;
  for (std::int64_t i = cuda::grid_index(); i < v.s.states(); i += cuda::grid_size()) {
    const std::int64_t r = i / units, j = i % units, row = first + r;
    T xs[kGates], as[kGates], saved[kSaved];
    for (int g = 0; g < kGates; ++g) {
      xs[g] = v.in[(row * kGates + g) * units + j];
      as[g] = a[(r * kGates + g) * units + j];
      if (!Cell::kHasCell) as[g] += v.extra[g * units + j];
    }
    const T before = s == 0 ? v.h0[i] : v.out[0][v.s.place(s - 1) * v.s.states() + i];
    T cell = Cell::kHasCell ? (s == 0 ? v.extra[i] : cells[i]) : T(0);
    v.out[0][row * units + j] = Cell::forward(xs, as, before, cell, saved);
    v.out[1][row * units + j] = before;
    for (int k = 0; k < kSaved; ++k) v.out[2][(row * kSaved + k) * units + j] = saved[k];
    if (Cell::kHasCell) cells[i] = cell;
  }
}

/// `through` is the gradient of h by the products of the step behind, `direct` the other part, and gets that
/// of this step.
template <class Cell, class T>
__global__ void backward_cells(Values<T> v, std::int64_t s, const T* through, T* direct, T* d_cells) {
  constexpr int kGates = Cell::kGates, kSaved = Cell::kSaved;
  const std::int64_t units = v.s.units, first = v.s.place(s) * v.s.rows;
  const bool is_last = s + 1 == v.s.steps;
  for (std::int64_t i = cuda::grid_index(); i < v.s.states(); i += cuda::grid_size()) {
    const std::int64_t r = i / units, j = i % units, row = first + r;
    T saved[kSaved], dx[kGates], da[kGates];
    for (int k = 0; k < kSaved; ++k) saved[k] = v.saved_in[(row * kSaved + k) * units + j];
    T dh = v.in[row * units + j];
    if (!is_last) dh += through[i];
    if (!is_last && !Cell::kHasCell) dh += direct[i];
    T dc = Cell::kHasCell ? (is_last ? v.dc[i] : d_cells[i]) : T(0);
    const T rest = Cell::backward(saved, value_before<Cell>(v, s, r, j), dh, dc, dx, da);
    for (int g = 0; g < kGates; ++g) {
      v.out[0][(row * kGates + g) * units + j] = dx[g];
      if (!Cell::kHasCell) v.out[1][(row * kGates + g) * units + j] = da[g];
    }
    if (!Cell::kHasCell) direct[i] = rest;
    if (Cell::kHasCell) d_cells[i] = dc;
  }
}

template <class T>
__global__ void add_in_place(T* to, const T* x, std::int64_t n) {
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) to[i] += x[i];
}

template <class T>
void copy(T* to, const T* from, std::int64_t n, StreamRef stream) {
  BRAID_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(n) * sizeof(T),
                                   cudaMemcpyDeviceToDevice, cuda::native(stream)));
}

constexpr std::size_t kAligned = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

cuda::PreparedGemm step_product(const PrepareContext& c, const Sizes& s, int gates, bool backward) {
  cuda::Gemm gemm{.m = s.rows, .n = gates * s.units, .k = s.units, .transpose_b = true};
  if (backward) gemm = {.m = s.rows, .n = s.units, .k = gates * s.units};
  gemm.dtype = c.inputs[0].dtype;
  gemm.alignment_bytes = s.units % 4 == 0 ? 16 : static_cast<std::uint32_t>(dtype_size(gemm.dtype));
  return cuda::prepare_gemm(c, gemm);
}

template <class Cell, class T>
PreparedKernel forward_by_steps(const PrepareContext& c, const Sizes& s) {
  const cuda::PreparedGemm product = step_product(c, s, Cell::kGates, false);
  const std::size_t products = aligned(static_cast<std::size_t>(Cell::kGates * s.states()) * sizeof(T));
  PreparedKernel kernel;
  kernel.scratch_bytes = products + product.scratch_bytes;
  kernel.run = [=](const KernelArgs& args) {
    const Values<T> v = forward_values<T>(args, s, Cell::kHasCell);
    char* const scratch = static_cast<char*>(args.scratch);
    T* const a = reinterpret_cast<T*>(scratch);
    for (std::int64_t i = 0; i < s.steps; ++i) {
      const T* const before = i == 0 ? v.h0 : v.out[0] + s.place(i - 1) * s.states();
      product.run({.a = before, .b = v.u, .y = a, .scratch = scratch + products, .stream = args.stream});
      cuda::launch(forward_cells<Cell, T>, dim3(cuda::blocks_for(s.states())), dim3(cuda::kThreads), 0,
                   args.stream, v, i, a, v.out[3]);
    }
    if (s.steps == 0 && Cell::kHasCell) copy(v.out[3], v.extra, s.states(), args.stream);
  };
  return kernel;
}

template <class Cell, class T>
PreparedKernel backward_by_steps(const PrepareContext& c, const Sizes& s) {
  const cuda::PreparedGemm product = step_product(c, s, Cell::kGates, true);
  const std::size_t state = aligned(static_cast<std::size_t>(s.states()) * sizeof(T));
  PreparedKernel kernel;
  kernel.scratch_bytes = 2 * state + product.scratch_bytes;
  kernel.run = [=](const KernelArgs& args) {
    const Values<T> v = backward_values<T>(args, s, Cell::kHasCell);
    char* const scratch = static_cast<char*>(args.scratch);
    T *const through = reinterpret_cast<T*>(scratch), *const direct = reinterpret_cast<T*>(scratch + state);
    T *const dh0 = v.out[Cell::kHasCell ? 1 : 2], *const dc = v.out[2];
    const std::int64_t n = s.states();
    for (std::int64_t i = s.steps - 1; i >= 0; --i) {
      cuda::launch(backward_cells<Cell, T>, dim3(cuda::blocks_for(n)), dim3(cuda::kThreads), 0, args.stream,
                   v, i, through, direct, dc);
      const T* const da = v.out[Cell::kHasCell ? 0 : 1] + s.place(i) * Cell::kGates * n;
      product.run({.a = da,
                   .b = v.u,
                   .y = i == 0 ? dh0 : through,
                   .scratch = scratch + 2 * state,
                   .stream = args.stream});
    }
    if (s.steps == 0) {
      BRAID_CUDA_CHECK(
          cudaMemsetAsync(dh0, 0, static_cast<std::size_t>(n) * sizeof(T), cuda::native(args.stream)));
      if (Cell::kHasCell) copy(dc, v.dc, n, args.stream);
    } else if (!Cell::kHasCell) {
      cuda::launch(add_in_place<T>, dim3(cuda::blocks_for(n)), dim3(cuda::kThreads), 0, args.stream, dh0,
                   direct, n);
    }
  };
  return kernel;
}

template <class Cell>
PreparedKernel prepare(const PrepareContext& c, bool backward) {
  const Shape& h = backward ? c.inputs[0].shape : c.outputs[0].shape;
  const Sizes s{h[0], h[1], h[2], c.attr("reverse", false)};
  if (s.states() == 0) return {.run = [](const KernelArgs&) {}};
  if (c.inputs[0].dtype == DType::Float32) {
    const Resident resident = choose_resident<Cell>(s, backward);
    if (resident.kernel != nullptr)
      return {.run = [=](const KernelArgs& a) {
        launch_resident(resident,
                        backward ? backward_values<float>(a, s, Cell::kHasCell)
                                 : forward_values<float>(a, s, Cell::kHasCell),
                        a.stream);
      }};
  }
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return backward ? backward_by_steps<Cell, T>(c, s) : forward_by_steps<Cell, T>(c, s);
  });
}

}  // namespace

void register_recurrent_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.Gru", [](const PrepareContext& c) { return prepare<Gru>(c, false); });
  registry.add_cuda("braid.Lstm", [](const PrepareContext& c) { return prepare<Lstm>(c, false); });
  registry.add_cuda("braid.GruGrad", [](const PrepareContext& c) { return prepare<Gru>(c, true); });
  registry.add_cuda("braid.LstmGrad", [](const PrepareContext& c) { return prepare<Lstm>(c, true); });
}

}  // namespace braid
