// Tensors and types of ONNX files as the engine's. Both ways of storing elements: raw_data and the list of
// the type; data in files beside the model is read from there. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/ir/tensor.h"
#include "proto/onnx.pb.h"

namespace braid::onnx {

/// The model that bytes are; `source` says in errors where they are from. Throws: InvalidArgument.
ModelProto parse_model(std::string_view bytes, const std::string& source);

/// Throws: InvalidArgument for a type that the engine does not have (complex, float8, 4-bit).
DType dtype_of_onnx(int type);

/// `folder` is where the model is, for external data, which must stay below it. Throws: InvalidArgument with
/// the tensor's name.
Tensor read_tensor(const TensorProto& proto, const std::filesystem::path& folder);

/// Whether its elements are integers of 4 bits, two a byte, which the engine does not have.
bool is_four_bit(const TensorProto& proto);
/// As read_tensor, of integers of 4 bits: they become int8 or uint8. Throws: InvalidArgument.
Tensor read_four_bit_tensor(const TensorProto& proto, const std::filesystem::path& folder);

/// The dense form. Throws: InvalidArgument.
Tensor read_sparse_tensor(const SparseTensorProto& proto, const std::filesystem::path& folder);

}  // namespace braid::onnx
