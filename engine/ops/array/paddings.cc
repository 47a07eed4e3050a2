#include "engine/ops/array/paddings.h"

#include <fmt/format.h>

#include "engine/ops/common/shape_rules.h"

namespace braid {

Paddings require_paddings(const InferContext& c) {
  c.require_rank(1, 2);
  require_index_dtype(c, 1);
  const Shape& in = c.shape(0);
  const Tensor* value = c.value(1);
  const Shape shape = value ? value->shape() : c.shape(1);
  if (shape.has_rank() && shape[1] != 2 && shape[1] != Shape::kUnknown)
    c.fail("paddings must have shape [rank, 2], got " + shape.to_string());
  Paddings paddings;
  paddings.rank = in.has_rank() ? in.rank() : shape.has_rank() ? shape[0] : Shape::kUnknown;
  if (shape.has_rank() && shape[0] != paddings.rank && shape[0] != Shape::kUnknown)
    c.fail(fmt::format("paddings of shape {} for shape {}", shape.to_string(), in.to_string()));
  if (value) paddings.values = tensor_to_int64s(*value);
  for (std::size_t i = 0; i < paddings.values.size(); ++i)
    if (paddings.values[i] < 0) c.fail(fmt::format("axis {} has a negative padding", i / 2));
  return paddings;
}

}  // namespace braid
