// Tables of CUDA kernels for ops that are one formula each: a row an op, a column a dtype of the first input.
#pragma once

#include <span>

#include "engine/ops/op.h"

namespace braid::cuda {

using Prepare = PreparedKernel (*)(const PrepareContext&);

struct DtypeRow {
  const char* name;
  Prepare f32 = nullptr, f64 = nullptr, i32 = nullptr, i64 = nullptr, boolean = nullptr;

  /// Null where the op stays on the CPU.
  Prepare of(DType dtype) const {
    switch (dtype) {
      case DType::Float32:
        return f32;
      case DType::Float64:
        return f64;
      case DType::Int32:
        return i32;
      case DType::Int64:
        return i64;
      case DType::Bool:
        return boolean;
      default:
        return nullptr;
    }
  }
};

/// The rows outlive the registry.
inline void register_rows(OpRegistry& registry, std::span<const DtypeRow> rows) {
  for (const DtypeRow& row : rows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return row.of(c.inputs[0].dtype)(c); },
        [&row](const Node&, std::span<const OutputInfo> inputs) {
          return row.of(inputs[0].dtype) != nullptr;
        });
}

}  // namespace braid::cuda
