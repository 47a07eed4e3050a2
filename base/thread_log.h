// How one thread logs that does what another one does, too. Thread rule: of the calling thread.
#pragma once

#include <string>

namespace braid {

/// Lines of this thread begin with `name` from now on, and those of level Info are Debug.
void repeat_log_as(std::string name);

}  // namespace braid
