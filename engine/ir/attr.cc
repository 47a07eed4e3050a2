#include "engine/ir/attr.h"

#include "base/error.h"

namespace braid {

void throw_attr_missing(std::string_view name) {
  throw InvalidArgument("attribute '" + std::string(name) + "' is missing");
}

void throw_attr_type(std::string_view name) {
  throw InvalidArgument("attribute '" + std::string(name) + "' has another type than the op expects");
}

}  // namespace braid
