// An ONNX model as the file of a graph that is trained: running statistics of normalisation become variables
// that each step assigns. Thread rule: pure, but for the graph that is changed.
#pragma once

#include <string>

#include "worker/model/model_file.h"

namespace braid::worker {

/// Remarks on training are logged where it is read as written. Throws: InvalidArgument.
ModelFile read_onnx_file(const std::string& file, OnnxUse use);

/// The node `name`, a constant of `file`, becomes a variable of that name which begins with its value;
/// "next", where it is not empty, is the value that a step assigns to it. What is no constant stays.
void make_statistic(ModelFile& file, const std::string& name, const std::string& next);

}  // namespace braid::worker
