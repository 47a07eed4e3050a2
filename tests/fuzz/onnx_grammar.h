// ONNX models that no exporter writes: one operator, or a few, with inputs that are absent, of ranks, types
// and sizes that do not fit, attributes of any value and type, bodies with other numbers of values than their
// nodes, names given twice. A share of them is right, so that what lies behind the checks is reached. The
// operators are all that the importer translates (onnx_operators.def). Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "engine/ir/tensor.h"
#include "proto/onnx.pb.h"
#include "tests/fuzz/choices.h"

namespace braid::fuzz {

struct OnnxCase {
  onnx::ModelProto model;
  std::map<std::string, Tensor> feeds;  // by input; those that are left out get none
};

OnnxCase make_onnx_case(Choices& choices);

/// The operators of the table that the importer does not know, and those that it knows and the table lacks.
std::string operators_that_differ();

}  // namespace braid::fuzz
