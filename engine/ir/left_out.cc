#include "engine/ir/left_out.h"

namespace braid {

std::string_view left_out_text() { return {}; }

}  // namespace braid
