// Matrix products by cuBLASLt with fused epilogues. Row-major as everywhere in the engine:
//   y[m, n] = act(op(a) op(b) + bias), for `batch` products whose operands lie a stride apart.
// The algorithm is cuBLASLt's first choice for the shape, made once in `prepare`, so a program's bits do not
// change from run to run; or with AcceleratorOptions::measure_products the fastest of its choices, measured
// once a process. Float32 products use TF32 inputs where the device's options allow it. Products of float16
// and bfloat16 are added up in float32, and rounded once where y has their type. Products of integers,
// and those with few columns and long sums for lanes that share `a`, have kernels of our own
// (integer_matmul.h, skinny_product.h), and long sums of lanes are split (split_gemm.h). Halves that cuBLASLt
// has no algorithm for are widened (widened_gemm.h).
#pragma once

#include <cstdint>

#include "engine/ir/op.h"

namespace braid::cuda {

enum class Epilogue {
  None,
  Bias,      // + bias[n]
  Relu,      // max(x, 0)
  BiasRelu,  // max(x + bias, 0)
  BiasGrad,  // also bias_grad[n] = sum over k of op(b)'s columns: the gradient of a bias beside that of a
             // weight
};

struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_y = 0;  // in elements
  std::int64_t stride_vector = 0;  // of the biases of a batch; 0: all have one
  /// Elements from one row in memory to the next; 0: rows lie side by side.
  std::int64_t row_stride_a = 0, row_stride_y = 0;
  DType dtype = DType::Float32;
  /// Of y, and of the biases: float32 or `dtype`, where that is a half; none: `dtype`.
  DType result = DType::Invalid;
  Epilogue epilogue = Epilogue::None;
  bool is_scaled = false;  // y = scale[0] op(a) op(b) + scale[1] y, float32, without an epilogue
  /// Of the addresses of a, b and y. Values are 64-byte aligned, variables and slots of more than an element
  /// at least 16-byte, but a view, or a matrix of a batch, may begin at any element.
  std::uint32_t alignment_bytes = 16;
};

/// What one run needs; pointers to device memory. `vector` is the bias, or where the bias' gradient goes.
struct GemmArgs {
  const void* a;
  const void* b;
  void* y;
  void* vector = nullptr;
  void* scratch = nullptr;
  StreamRef stream;
  const float* scale = nullptr;  // of scaled products: two numbers in device memory
};

/// A prepared product: copyable, cheap to run.
struct PreparedGemm {
  std::size_t scratch_bytes = 0;
  std::function<void(const GemmArgs&)> run;
};

/// Throws: InvalidArgument when cuBLASLt has no algorithm for this.
PreparedGemm prepare_gemm(const PrepareContext& c, const Gemm& gemm);

/// The kernel of an op with inputs a, b (and bias, for epilogues that read one) and output y. No elements in
/// y: it does nothing; none to sum over: y is zero (plus what the epilogue adds).
PreparedKernel gemm_kernel(const PrepareContext& c, const Gemm& gemm);

}  // namespace braid::cuda
