#include "engine/ir/left_out.h"

namespace braid {

std::string_view left_out_text() {
  return " in this build, which has what Braid's own models need; the rest is built by `cmake build/release "
         "-DBRAID_GRAPHS=ON && cmake --build build/release --target braid` (docs/user/installing.md)";
}

}  // namespace braid
