// Trained values back into an ONNX model. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "engine/ir/tensor.h"

namespace braid {

/// The bytes of the model in `file` with `values`, by the names that its graph has here, in the place of what
/// its initializers and Constant nodes have. Data in files beside it become part of the model; everything
/// else stays. Throws: InvalidArgument for a value that the model does not have, or has with another type or
/// shape, and for a model of 2 GiB and more.
std::string onnx_with_values(const std::filesystem::path& file, const std::map<std::string, Tensor>& values);

}  // namespace braid
