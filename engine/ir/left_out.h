// What a build without BRAID_GRAPHS lacks, for errors: the importer of ONNX, and ops that only graphs of
// other programs have. left_out.cc, or no_graphs.cc in such a build. Thread rule: any.
#pragma once

#include <string_view>

namespace braid {

/// Behind "the op is not supported" and the like: " in this build: ..." and how to build the rest. Empty
/// where nothing is left out.
std::string_view left_out_text();

}  // namespace braid
