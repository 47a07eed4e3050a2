// What an ONNX model says of its training. A file holds all numbers of a model as initializers: weights that
// training changes, and constants that it must not. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "proto/onnx.pb.h"

namespace braid::onnx {

/// Names of initializers that training may change. Where PyTorch's exporter has written what each is, those
/// that it calls parameters, and what it has computed of parameters. Otherwise all but those that an operator
/// takes as a setting (statistics of batch normalisation, weights of classes, limits, scales), and single
/// numbers in files of other exporters, which write the constants of formulas so.
std::set<std::string> parameters_of(const ModelProto& model);

/// Whether the node, an Identity, is `detach()` of the PyTorch program: no gradient passes it.
bool is_detach(const NodeProto& node);

/// Whether a BatchNormalization of that operator set is in training mode.
bool normalises_by_batch(const NodeProto& node, std::int64_t opset);

/// What whoever trains the model should know, a sentence each: normalisation that was exported for inference,
/// parameters that the exporter has joined or computed with, initializers that may be none, and weights in
/// nodes; values that the program detached, but whose mark the exporter's optimizer has removed.
std::vector<std::string> remarks_on_training(const ModelProto& model);

}  // namespace braid::onnx
