// What a body of If, Loop or Scan reads. Thread rule: a pure function.
#pragma once

#include <set>
#include <string>

#include "proto/onnx.pb.h"

namespace braid::onnx {

/// Names of the values that nodes of `body` and of the bodies in it read, and of its outputs. Without what
/// Resize reads beside its image, which are settings.
std::set<std::string> values_read_by(const GraphProto& body);

}  // namespace braid::onnx
