#include "engine/ops/common/gemm.h"

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {

PreparedKernel prepare_gemm(const PrepareContext& c, const Gemm& gemm) {
  const DType dtype = c.inputs[0].dtype;
  if (gemm.batch() * gemm.m * gemm.n * gemm.k == 0) {
    const std::size_t bytes = static_cast<std::size_t>(gemm.batch() * gemm.m * gemm.n) * dtype_size(dtype);
    return serial_kernel([bytes](const KernelArgs& args) { std::memset(args.outputs[0], 0, bytes); });
  }
  const bool vector = gemm.batch() == 1 && (gemm.m == 1 || gemm.n == 1);
  return with_number("MatMul", dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>)
      if (vector) return prepare_matrix_vector<T>(c, gemm);
    if constexpr (std::is_same_v<T, float>)
      return prepare_gemm_dnnl(c, gemm);
    else
      return prepare_gemm_loops<T>(c, gemm);
  });
}

}  // namespace braid
