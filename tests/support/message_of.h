// What a call says when it fails, to be compared with what it should say.
#pragma once

#include <string>

#include "base/error.h"

namespace braid {

/// The message of the E that `call` throws, "nothing was thrown" when it returns. Other exceptions go on.
template <class E = InvalidArgument, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.message();
  }
  return "nothing was thrown";
}

}  // namespace braid
