// Ops that are built apart: a shared library with op definitions (engine/ir/op_library_entry.h), loaded into
// a program that was built without it. Both sides hold objects of the classes of engine/ir and base, so both
// must be compiled against the same headers by compatible compilers: a text in the library says which those
// were, and loading refuses another one. The library has its own copies of the functions behind these
// headers, and no other name of it is seen outside.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// Loads the library and adds its ops to `registry`; the library stays in the process for good. Gives the
/// names of its ops, in order. A library that is loaded already is left alone and gives its names again.
/// Thread rule: not while graphs are made by other threads.
/// Throws: InvalidArgument (no such file, no op library, made for another Braid; an op that exists already or
/// that says too little of itself; a name that begins with "braid."). Nothing is added then.
std::vector<std::string> load_op_library(const std::string& path, OpRegistry& registry);

/// Full paths of the libraries that this process has loaded, in their order.
std::vector<std::string> loaded_op_libraries();

}  // namespace braid
