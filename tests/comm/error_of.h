// What a call says when it fails. It may run on the thread of a rank, so nothing leaves it.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace braid::comm {

/// The message of the ErrorType with which `call` fails, or a note that it failed otherwise or not at all.
template <class ErrorType, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.message();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace braid::comm
