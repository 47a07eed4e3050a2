// braid.KeepValues(variable..., value...): each variable has that value from now on, whatever its type. One
// kernel writes all of them.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

void register_keep_op(OpRegistry& registry);

}  // namespace braid::worker
