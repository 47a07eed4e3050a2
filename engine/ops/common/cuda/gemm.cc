#include "engine/ops/common/cuda/gemm.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/common/cuda/integer_matmul.h"
#include "engine/ops/common/cuda/skinny_product.h"

namespace braid::cuda {
namespace {

/// What cuBLASLt recommends for Hopper; older devices need less.
constexpr std::size_t kWorkspaceBytes = 32U << 20;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw_error(ErrorCode::DeviceError,
                fmt::format("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(status)));
}

struct Descriptors {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool has_vector = false;

  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  ~Descriptors() {
    if (product) cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t layout : {a, b, y})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
  }
};

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)), "an attribute");
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                              std::int64_t row_stride, std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  // A column-major matrix of `columns` columns with `rows` elements each is our row-major one.
  check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), row_stride ? row_stride : rows),
        "a layout");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "a batch");
    check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                           sizeof(stride)),
          "a batch's stride");
  }
  return made;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::None:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Relu:
      return CUBLASLT_EPILOGUE_RELU;
    case Epilogue::BiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::BiasGrad:
      return CUBLASLT_EPILOGUE_BGRADA;  // our b is the first factor there
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

PreparedGemm prepare_gemm(const PrepareContext& c, const Gemm& g) {
  if (g.dtype == DType::Int32 || g.dtype == DType::Int64) {
    if (g.epilogue != Epilogue::None) c.fail("a product of integers with an epilogue");
    return prepare_integer_matmul(g);
  }
  if (!g.is_scaled && is_skinny_product(g)) return prepare_skinny_product(c, g);
  if (g.batch > std::numeric_limits<std::int32_t>::max())
    c.fail(fmt::format("{} products are too many for cuBLASLt", g.batch));
  CudaDevice& device = device_of(c.accelerator);
  const bool is_double = g.dtype == DType::Float64;
  const cudaDataType_t type = is_double ? CUDA_R_64F : CUDA_R_32F;
  const cublasComputeType_t compute = is_double               ? CUBLAS_COMPUTE_64F
                                      : device.options().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                              : CUBLAS_COMPUTE_32F;
  auto d = std::make_shared<Descriptors>();
  check(cublasLtMatmulDescCreate(&d->product, compute, type), "a description");
  // y^T = op(b)^T op(a)^T: in column-major terms our b comes first, and a transposition stays one.
  set(d->product, CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(d->product, CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(g.epilogue));
  if (g.is_scaled) set(d->product, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  d->has_vector = g.epilogue != Epilogue::None && g.epilogue != Epilogue::Relu;
  if (d->has_vector && g.batch > 1) set(d->product, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, g.stride_vector);
  d->b = g.transpose_b ? layout(type, g.k, g.n, 0, g.batch, g.stride_b)
                       : layout(type, g.n, g.k, 0, g.batch, g.stride_b);
  d->a = g.transpose_a ? layout(type, g.m, g.k, g.row_stride_a, g.batch, g.stride_a)
                       : layout(type, g.k, g.m, g.row_stride_a, g.batch, g.stride_a);
  d->y = layout(type, g.n, g.m, g.row_stride_y, g.batch, g.stride_y);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
  const std::size_t workspace = kWorkspaceBytes;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof(workspace));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &g.alignment_bytes,
                                         sizeof(g.alignment_bytes));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(device.blas(), d->product, d->b, d->a, d->y,
                                                               d->y, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    c.fail(fmt::format("cuBLASLt has no algorithm for [{}, {}] x [{}, {}]: {}", g.m, g.k, g.k, g.n,
                       cublasLtGetStatusString(status)));
  d->algorithm = found.algo;

  PreparedGemm prepared;
  prepared.scratch_bytes = found.workspaceSize;
  prepared.run = [d, is_double, is_scaled = g.is_scaled, handle = device.blas(),
                  bytes = found.workspaceSize](const GemmArgs& args) {
    // The description is this kernel's own, and kernels are run by one thread at a time.
    if (d->has_vector) {
      const auto attribute = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
      check(cublasLtMatmulDescSetAttribute(d->product, attribute, &args.vector, sizeof(args.vector)),
            "a bias");
    }
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const void* alpha = is_double ? static_cast<const void*>(&one) : &one_f;
    const void* beta = is_double ? static_cast<const void*>(&zero) : &zero_f;
    if (is_scaled) {
      alpha = args.scale;
      beta = args.scale + 1;
    }
    check(cublasLtMatmul(handle, d->product, alpha, args.b, d->b, args.a, d->a, beta, args.y, d->y, args.y,
                         d->y, &d->algorithm, args.scratch, bytes, native(args.stream)),
          "a product");
  };
  return prepared;
}

PreparedKernel gemm_kernel(const PrepareContext& c, const Gemm& g) {
  PreparedKernel kernel;
  if (g.m == 0 || g.n == 0 || g.batch == 0) {
    kernel.run = [](const KernelArgs&) {};
  } else if (g.k == 0) {
    if (g.epilogue != Epilogue::None) c.fail("a product over no elements with a bias");
    const auto bytes = static_cast<std::uint64_t>(g.batch * g.m * g.n) * dtype_size(g.dtype);
    kernel.run = [bytes, device = c.accelerator](const KernelArgs& a) {
      device->fill_zero(a.outputs[0], bytes, a.stream);
    };
  } else {
    PreparedGemm gemm = prepare_gemm(c, g);
    kernel.scratch_bytes = gemm.scratch_bytes;
    const bool bias = g.epilogue == Epilogue::Bias || g.epilogue == Epilogue::BiasRelu;
    kernel.run = [gemm = std::move(gemm), bias](const KernelArgs& a) {
      gemm.run({a.inputs[0], a.inputs[1], a.outputs[0], bias ? a.inputs[2] : nullptr, a.scratch, a.stream});
    };
  }
  return kernel;
}

}  // namespace braid::cuda
