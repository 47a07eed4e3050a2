// A tensor's first elements as text, as Assert and Print show them: "1 2 3...", strings as they are, no
// shape. A summary in the manner of TensorFlow, for people, not for machines.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace braid {

/// `memory` holds `elements` elements, strings as engine/ir/tensor.h lays them out; `summarize` elements are
/// shown, all of them when it is negative.
std::string format_elements(DType dtype, const void* memory, std::int64_t elements, std::int64_t summarize);

}  // namespace braid
