// Tables of CUDA kernels for ops that are one formula each: a row an op, a column a dtype of the first input.
#pragma once

#include <span>

#include "engine/ir/op.h"
#include "engine/ops/common/by_dtype.h"

namespace braid::cuda {

using Prepare = PreparedKernel (*)(const PrepareContext&);

struct DtypeRow {
  const char* name;
  ByDtype<Prepare> kernels = {};  // null: the op stays on the CPU
};

/// The rows outlive the registry.
inline void register_rows(OpRegistry& registry, std::span<const DtypeRow> rows) {
  for (const DtypeRow& row : rows)
    registry.add_cuda(
        row.name, [&row](const PrepareContext& c) { return row.kernels.of(c.inputs[0].dtype)(c); },
        [&row](const Node&, std::span<const OutputInfo> inputs) {
          return row.kernels.of(inputs[0].dtype) != nullptr;
        });
}

}  // namespace braid::cuda
