// Arrays in .npy files as the feeds of a graph. Thread rule: pure functions, apart from reading the file.
#pragma once

#include <filesystem>
#include <string>

#include "engine/ir/tensor.h"

namespace braid::worker {

/// Throws: what read_file() and parse_npy() throw.
Tensor read_npy_tensor(const std::filesystem::path& file);

/// Numbers of another type than the graph's become the graph's, where that loses nothing but precision; NumPy
/// makes float64 and int64 where others make float32 and int32. `what` stands in front of errors. Throws:
/// InvalidArgument.
Tensor converted(const Tensor& tensor, DType dtype, const std::string& what);

}  // namespace braid::worker
