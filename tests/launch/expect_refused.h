// The message of the InvalidArgument that an expression must throw.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace braid::launch {

template <class Action>
std::string refusal_of(Action action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace braid::launch
