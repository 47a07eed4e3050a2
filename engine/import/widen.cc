#include "engine/import/widen.h"

namespace braid {

std::optional<DType> compute_type(const OpDef& op, DType dtype) {
  const auto own_rule = op.traits.widening.compute_type;
  return own_rule ? own_rule(dtype) : wide_type(dtype);
}

bool has_data_type(const OpDef& op, int output) {
  const int count = op.traits.widening.data_outputs;
  return count < 0 || output < count;
}

}  // namespace braid
