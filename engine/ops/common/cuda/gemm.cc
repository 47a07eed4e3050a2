#include "engine/ops/common/cuda/gemm.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/common/cuda/fastest.h"
#include "engine/ops/common/cuda/integer_matmul.h"
#include "engine/ops/common/cuda/skinny_product.h"
#include "engine/ops/common/cuda/split_gemm.h"
#include "engine/ops/common/cuda/widened_gemm.h"
#include "engine/ops/common/halves.h"

namespace braid::cuda {
namespace {

/// What cuBLASLt recommends for Hopper; older devices need less.
constexpr std::size_t kWorkspaceBytes = 32U << 20;
constexpr std::size_t kSuggestions = 8;  // of cuBLASLt's that are measured

using Suggestion = cublasLtMatmulHeuristicResult_t;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw_error(ErrorCode::DeviceError,
                fmt::format("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(status)));
}

struct Descriptors {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;
  Suggestion chosen{};
  bool has_vector = false, is_double = false, is_scaled = false;

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

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return CUDA_R_64F;
    case DType::Float16:
      return CUDA_R_16F;
    case DType::BFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

DType result_of(const Gemm& g) { return g.result == DType::Invalid ? g.dtype : g.result; }

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

cublasStatus_t multiply(cublasLtHandle_t handle, const Descriptors& d, const Suggestion& how,
                        const GemmArgs& args) {
  if (d.has_vector) {
    const cublasStatus_t status = cublasLtMatmulDescSetAttribute(d.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                                 &args.vector, sizeof(args.vector));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  const void* alpha = d.is_double ? static_cast<const void*>(&one) : &one_f;
  const void* beta = d.is_double ? static_cast<const void*>(&zero) : &zero_f;
  if (d.is_scaled) {
    alpha = args.scale;
    beta = args.scale + 1;
  }
  return cublasLtMatmul(handle, d.product, alpha, args.b, d.b, args.a, d.a, beta, args.y, d.y, args.y, d.y,
                        &how.algo, args.scratch, how.workspaceSize, native(args.stream));
}

/// Which suggestion is fastest on the device, on zeros.
std::size_t measured(CudaDevice& device, const Gemm& g, const Descriptors& d,
                     const std::vector<Suggestion>& suggestions) {
  const auto take = [&](std::uint64_t bytes) { return device.allocate(bytes, "products that are measured"); };
  const auto operand = [&](std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                           std::int64_t stride) {
    const std::int64_t elements = (g.batch - 1) * stride + rows * std::max(columns, row_stride);
    return take(static_cast<std::uint64_t>(elements) * dtype_size(result_of(g)));  // which is no narrower
  };
  const auto a = g.transpose_a ? operand(g.k, g.m, g.row_stride_a, g.stride_a)
                               : operand(g.m, g.k, g.row_stride_a, g.stride_a);
  const auto b = g.transpose_b ? operand(g.n, g.k, 0, g.stride_b) : operand(g.k, g.n, 0, g.stride_b);
  const auto y = operand(g.m, g.n, g.row_stride_y, g.stride_y);
  const auto vector = operand(g.batch, g.n, 0, 0), scratch = take(kWorkspaceBytes);
  const float scale[] = {1, 1};
  const auto scales = take(sizeof(scale));
  device.copy_now(scales.get(), scale, sizeof(scale));
  const auto run = [&](int way, StreamRef stream) {
    return multiply(device.blas(), d, suggestions[static_cast<std::size_t>(way)],
                    {a.get(), b.get(), y.get(), vector.get(), scratch.get(), stream,
                     reinterpret_cast<const float*>(scales.get())}) == CUBLAS_STATUS_SUCCESS;
  };
  return static_cast<std::size_t>(fastest(device, static_cast<int>(suggestions.size()), run));
}

/// The fastest one, which stays the same for all programs of the process: their bits do not depend on when
/// they are measured.
std::size_t choose(CudaDevice& device, const Gemm& g, const Descriptors& d,
                   const std::vector<Suggestion>& suggestions) {
  using Key = std::tuple<int, bool, std::array<std::int64_t, 9>, std::array<bool, 3>, DType, DType, Epilogue,
                         std::uint32_t>;
  static std::mutex mu;
  static std::map<Key, std::size_t> known;
  const Key key{device.ordinal(),
                device.options().tf32,
                {g.m, g.n, g.k, g.batch, g.stride_a, g.stride_b, g.stride_y, g.row_stride_a, g.row_stride_y},
                {g.transpose_a, g.transpose_b, g.is_scaled},
                g.dtype,
                result_of(g),
                g.epilogue,
                g.alignment_bytes};
  const std::lock_guard lock(mu);
  const auto [at, is_new] = known.try_emplace(key, 0);
  if (!is_new) return at->second;
  try {
    at->second = measured(device, g, d, suggestions);
  } catch (const OutOfMemory&) {  // then the first one
  }
  return at->second;
}

}  // namespace

PreparedGemm prepare_gemm(const PrepareContext& c, const Gemm& g) {
  if (g.dtype == DType::Int32 || g.dtype == DType::Int64) {
    if (g.epilogue != Epilogue::None) c.fail("a product of integers with an epilogue");
    return prepare_integer_matmul(g);
  }
  if (!g.is_scaled && is_skinny_product(g)) return prepare_skinny_product(c, g);
  if (!g.is_scaled && chunks_of_sum(g) > 1) return prepare_split_gemm(c, g);
  if (g.batch > std::numeric_limits<std::int32_t>::max())
    c.fail(fmt::format("{} products are too many for cuBLASLt", g.batch));
  CudaDevice& device = device_of(c.accelerator);
  const bool is_double = g.dtype == DType::Float64;
  const cudaDataType_t type = type_of(g.dtype), result = type_of(result_of(g));
  const bool tf32 = device.options().tf32 && !is_half(g.dtype);
  const cublasComputeType_t compute = is_double ? CUBLAS_COMPUTE_64F
                                      : tf32    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                : CUBLAS_COMPUTE_32F;
  auto d = std::make_shared<Descriptors>();
  check(cublasLtMatmulDescCreate(&d->product, compute, is_double ? CUDA_R_64F : CUDA_R_32F), "a description");
  // y^T = op(b)^T op(a)^T: in column-major terms our b comes first, and a transposition stays one.
  set(d->product, CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(d->product, CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(g.epilogue));
  if (g.is_scaled) set(d->product, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  d->has_vector = g.epilogue != Epilogue::None && g.epilogue != Epilogue::Relu;
  if (d->has_vector && is_half(g.dtype)) set(d->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, result);
  if (d->has_vector && g.batch > 1) set(d->product, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, g.stride_vector);
  d->b = g.transpose_b ? layout(type, g.k, g.n, 0, g.batch, g.stride_b)
                       : layout(type, g.n, g.k, 0, g.batch, g.stride_b);
  d->a = g.transpose_a ? layout(type, g.m, g.k, g.row_stride_a, g.batch, g.stride_a)
                       : layout(type, g.k, g.m, g.row_stride_a, g.batch, g.stride_a);
  d->y = layout(result, g.n, g.m, g.row_stride_y, g.batch, g.stride_y);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
  const std::size_t workspace = kWorkspaceBytes;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof(workspace));
  if (is_half(g.dtype)) {  // parts of a sum are added up in float32 too
    const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof(reductions));
  }
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &g.alignment_bytes,
                                         sizeof(g.alignment_bytes));
  std::vector<Suggestion> found(device.options().measure_products ? kSuggestions : 1);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(device.blas(), d->product, d->b, d->a, d->y, d->y, preference,
                                     static_cast<int>(found.size()), found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  const bool is_missing = status != CUBLAS_STATUS_SUCCESS || count == 0;
  if (is_missing && is_half(g.dtype)) return prepare_widened_gemm(c, g);
  if (is_missing)
    c.fail(fmt::format("cuBLASLt has no algorithm for {} [{}, {}] x [{}, {}]: {}", dtype_name(g.dtype), g.m,
                       g.k, g.k, g.n, cublasLtGetStatusString(status)));
  found.resize(static_cast<std::size_t>(count));
  d->is_double = is_double;
  d->is_scaled = g.is_scaled;
  d->chosen = found[found.size() > 1 ? choose(device, g, *d, found) : 0];

  PreparedGemm prepared;
  prepared.scratch_bytes = d->chosen.workspaceSize;
  // The description is this kernel's own, and kernels are run by one thread at a time.
  prepared.run = [d, handle = device.blas()](const GemmArgs& args) {
    check(multiply(handle, *d, d->chosen, args), "a product");
  };
  return prepared;
}

PreparedKernel gemm_kernel(const PrepareContext& c, const Gemm& g) {
  PreparedKernel kernel;
  if (g.m == 0 || g.n == 0 || g.batch == 0) {
    kernel.run = [](const KernelArgs&) {};
  } else if (g.k == 0) {
    if (g.epilogue != Epilogue::None) c.fail("a product over no elements with a bias");
    const auto bytes = static_cast<std::uint64_t>(g.batch * g.m * g.n) * dtype_size(result_of(g));
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
