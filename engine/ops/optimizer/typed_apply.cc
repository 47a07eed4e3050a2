#include "engine/ops/optimizer/typed_apply.h"

#include <fmt/format.h>

namespace braid {

void check_variable_types(const PrepareContext& c, int slots, int gradient) {
  const DType dtype = c.inputs[0].dtype;
  for (int i = 1; i <= slots; ++i)
    if (c.inputs[static_cast<std::size_t>(i)].dtype != dtype)
      c.fail(fmt::format("the variable holds {}, its slot in input {} {}", dtype_name(dtype), i,
                         dtype_name(c.inputs[static_cast<std::size_t>(i)].dtype)));
  const DType computed = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const DType given = c.inputs[static_cast<std::size_t>(gradient)].dtype;
  if (given != computed)
    c.fail(fmt::format("the variable holds {}, the gradient is {}", dtype_name(dtype), dtype_name(given)));
}

void require_one_float_type(InferContext& c, int first, int indices) {
  for (int i = first; i < c.inputs(); ++i) {
    if (i == indices) continue;
    require_dtype(c, i, {DType::Float32, DType::Float64});
    c.require_same_dtype(first, i);
  }
}

}  // namespace braid
