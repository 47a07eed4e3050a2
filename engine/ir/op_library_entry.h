// What makes a shared library an op library. It is a project of its own against an installed Braid, as
// examples/own_op is:
//
//   void register_my_ops(braid::OpRegistry& registry) { registry.add({.name = "Swish2", ...}); }
//   BRAID_OP_LIBRARY(register_my_ops)
//
// The CMake function braid_op_library() of the installed package compiles and links it as it must be.
#pragma once

#include "engine/ir/op.h"
#include "engine/ir/op_contract.h"  // generated: BRAID_OP_CONTRACT, the version and a sum over the headers

#define BRAID_TEXT_OF_(x) #x
#define BRAID_TEXT_OF(x) BRAID_TEXT_OF_(x)
/// What both sides must have in common.
#define BRAID_OP_LIBRARY_STAMP \
  "braid " BRAID_OP_CONTRACT   \
  ", C++ ABI " BRAID_TEXT_OF(__GXX_ABI_VERSION) ", libstdc++ strings " BRAID_TEXT_OF(_GLIBCXX_USE_CXX11_ABI)

/// Makes a shared library an op library. `function`: void(braid::OpRegistry&), which adds its ops; once a
/// library, outside of all namespaces.
#define BRAID_OP_LIBRARY(function)                                                                         \
  extern "C" __attribute__((visibility("default"))) const char* braid_op_contract() {                      \
    return BRAID_OP_LIBRARY_STAMP;                                                                         \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) void braid_register_ops(braid::OpRegistry* registry) { \
    function(*registry);                                                                                   \
  }
